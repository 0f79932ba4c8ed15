"""Builders of PipelineRuns that Tekton tests share."""

from typing import Any


def run(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "p"},
        "spec": {"pipelineRef": {"name": "q"}} | spec,
    }


def inline(*tasks: dict[str, Any], **pipeline: Any) -> dict[str, Any]:
    """The spec of a run with its pipeline inside."""
    made = run()
    made["spec"] = {"pipelineSpec": {"tasks": list(tasks)} | pipeline}
    return made


def task(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "taskRef": {"name": "t"}} | fields
