"""Checks `sluicegate.dev/coschedule` at creation, and counts a node of an isolated run as quota. Pure.

The webhook does not know Tekton's own `coschedule` setting. The patcher compares the two before it starts
the run, and releases its quota with that reason if they contradict.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    PLACEHOLDER_PER_CLAIM,
    PLACEHOLDERS_ANNOTATION,
    CoscheduleError,
    placeholder_name,
)
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import annotations_of, map_at, maps_at, owners_of
from shared.contracts.kube.kinds import Object


def apply_coscheduling(
    annotations: dict[str, str], spec: Mapping[str, Any], *, is_run: bool
) -> None:
    """Check the mode of a new object, and request a node slot for an isolated run.

    Changes `annotations`; a second call changes nothing more. Raises `CoscheduleError`.
    """
    for key in coscheduling.placeholder_annotations(annotations):
        del annotations[key]  # Copied from another run: they name that run's placeholder pods.
    value = annotations.get(names.COSCHEDULE)
    if value is None:
        return
    if not is_run:
        raise CoscheduleError(
            f"annotation {names.COSCHEDULE}: {value!r}: only PipelineRuns can be coscheduled"
        )
    mode = coscheduling.mode_of({"metadata": {"annotations": annotations}})
    if mode == "isolate-pipelinerun":
        annotations[coscheduling.NODE_SLOTS_ANNOTATION] = "1"
    if mode == "workspaces":
        for task in _tasks_with_several_claims(spec):
            raise CoscheduleError(
                f"annotation {names.COSCHEDULE}: {value!r}: {coscheduling.SEVERAL_CLAIMS} to task "
                f"{task!r}, and two claims may be on two nodes; 'pipelineruns' allows it"
            )


def task_run_affinity_patch(task_run: Object) -> tuple[Object, ...]:
    """Return the JSON patch that ties a TaskRun to the placeholder pod of its claim.

    Empty in all modes but `workspaces`. In that mode each task follows the claim that it uses, so that
    no annotation of the run can hold for all its tasks. Raises `CoscheduleError`.
    """
    group = str(task_run.get("apiVersion", "")).rpartition("/")[0]
    if (group, task_run.get("kind")) != (kinds.TASK_RUN.group, kinds.TASK_RUN.kind):
        return ()
    if annotations_of(task_run).get(PLACEHOLDERS_ANNOTATION) != PLACEHOLDER_PER_CLAIM:
        return ()
    owners = (
        owner
        for owner in owners_of(task_run)
        if owner.get("controller") and owner.get("kind") == kinds.PIPELINE_RUN.kind
    )
    run = next(owners, None)
    claims = list(dict.fromkeys(_claims(task_run)))
    if run is None or not claims:
        return ()
    if len(claims) > 1:
        raise CoscheduleError(
            f"annotation {names.COSCHEDULE}: 'workspaces': {coscheduling.SEVERAL_CLAIMS}: "
            f"{', '.join(claims)}"
        )
    path = "/metadata/annotations/" + AFFINITY_ANNOTATION.replace("/", "~1")
    return ({"op": "add", "path": path, "value": placeholder_name(str(run.get("uid")), claims[0])},)


def _claims(task_run: Object) -> Iterator[str]:
    for binding in maps_at(task_run, "spec", "workspaces"):
        if claim := map_at(binding, "persistentVolumeClaim").get("claimName"):
            yield str(claim)


def _tasks_with_several_claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """Tasks of an embedded pipeline. Those of a referenced one are checked as TaskRuns."""
    claims: dict[str, str] = {}
    for binding in _objects(spec.get("workspaces")):
        name = str(binding.get("name", ""))
        claim = binding.get("persistentVolumeClaim")
        if binding.get("volumeClaimTemplate"):
            claims[name] = f"template/{name}"
        elif isinstance(claim, Mapping):
            claims[name] = str(claim.get("claimName"))
    pipeline = spec.get("pipelineSpec")
    if not isinstance(pipeline, Mapping):
        return
    for section in ("tasks", "finally"):
        for task in _objects(pipeline.get(section)):
            used = (
                use.get("workspace") or use.get("name") for use in _objects(task.get("workspaces"))
            )
            if len({claims[str(one)] for one in used if str(one) in claims}) > 1:
                yield str(task.get("name", ""))


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects in a list; Tekton's webhook refuses other items."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))
