"""Compares classification with what the reference implementation makes of the same input.

    python -m tests.conformance.classification --cases FILE --config FOLDER    whole PipelineRuns
    python -m tests.conformance.classification --cases FILE --cel              single expressions

The last line is `classification: N of M cases match`; the exit status is 0 only if N equals M.
Annotations under `sluicegate.dev/` are ours and are not compared.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from services.classifier.cel import CelEngine
from services.classifier.rules import CONFIGURATION_FILE, Rules, RulesError, parse_rules
from services.classifier.webhook.mutation import RefusedError, mutate
from shared.contracts.kube import names

__all__ = ["Outcome", "compare_expressions", "compare_pipeline_runs", "main"]

QUEUE_NAME = "pipelines-queue"
OWN_PREFIX = "sluicegate.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One case: what the reference says, and what came out here."""

    name: str
    expected: dict[str, Any]
    got: dict[str, Any]

    @property
    def matches(self) -> bool:
        return self.expected == self.got


def compare_pipeline_runs(cases: list[Any], rules: Rules) -> Iterator[Outcome]:
    """Classify each PipelineRun and compare class, requests, queue, `managedBy`, or the refusal."""
    for case in cases:
        expected = dict(case["expected"])
        if "error" in expected:
            wanted = expected["error"]
            got = _refusal(case["pipelineRun"], rules, contains=wanted.get("contains", ""))
            yield Outcome(name=case["name"], expected=wanted, got=got)
            continue
        expected["requests"] = {k: str(v) for k, v in expected.get("requests", {}).items()}
        expected.setdefault("queueName", rules.queue_name)
        expected["status"] = "PipelineRunPending"
        yield Outcome(
            name=case["name"], expected=expected, got=_classified(case["pipelineRun"], rules)
        )


def _classified(run: dict[str, Any], rules: Rules) -> dict[str, Any]:
    try:
        made = mutate(run, rules).object
    except RefusedError as error:
        return {"error": {"code": error.code, "message": str(error)}}
    labels, annotations = made["metadata"]["labels"], made["metadata"].get("annotations", {})
    prefix = names.REQUESTS_PREFIX
    got: dict[str, Any] = {
        "requests": {
            key.removeprefix(prefix): value
            for key, value in annotations.items()
            if key.startswith(prefix)
        },
        "queueName": labels.get(names.QUEUE),
        "status": made["spec"].get("status"),
    }
    optional = {
        "priorityClass": labels.get(names.PRIORITY_CLASS_LABEL),
        "managedBy": made["spec"].get("managedBy"),
        "validationError": annotations.get("kueue.konflux-ci.dev/validation-error"),
    }
    return got | {field: value for field, value in optional.items() if value is not None}


def _refusal(run: dict[str, Any], rules: Rules, *, contains: str) -> dict[str, Any]:
    """The refusal in the terms of the case: its code, and which of the texts it has."""
    try:
        made = mutate(run, rules).object
    except RefusedError as error:
        message = str(error)
        prefixes = ("pipelinerun validation failed: invalid pipelinerun", "CEL evaluation failed")
        got = {
            "code": error.code,
            "prefix": next((p for p in prefixes if message.startswith(p)), message),
        }
        if contains:
            got["contains"] = contains if contains in message else message
        return got
    return {"allowed": made}


def compare_expressions(cases: list[Any], engine: CelEngine) -> Iterator[Outcome]:
    """Compile and evaluate each expression on the same small PipelineRun."""
    for case in cases:
        expected = {"result": case["result"]}
        if case["result"] == "ok":
            expected |= {field: case.get(field, {}) for field in ("labels", "annotations")}
        yield Outcome(name=case["expr"], expected=expected, got=_evaluated(case["expr"], engine))


def _evaluated(expression: str, engine: CelEngine) -> dict[str, Any]:
    run = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "p", "namespace": "ns", "labels": {"x": "1"}},
        "spec": {"pipelineRef": {"name": "q"}, "params": [{"name": "foo", "value": "3"}]},
    }
    configuration = {"queueName": QUEUE_NAME, "cel": {"expressions": [expression]}}
    try:
        rules = parse_rules(yaml.safe_dump(configuration, width=10**9), engine)
    except RulesError:
        return {"result": "compile-error"}
    try:
        metadata = mutate(run, rules).object["metadata"]
    except RefusedError as error:
        return {"result": "evaluation-error" if error.code == 500 else str(error)}
    annotations = metadata.get("annotations", {})
    return {
        "result": "ok",
        "labels": {
            key: value
            for key, value in metadata["labels"].items()
            # What the run had before is not what the expression did.
            if key not in {"x", names.QUEUE}
        },
        "annotations": {k: v for k, v in annotations.items() if not k.startswith(OWN_PREFIX)},
    }


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison and print every mismatch; return the exit status."""
    parser = argparse.ArgumentParser(prog="classification")
    parser.add_argument("--cases", type=Path, required=True, help="a file with `cases:`")
    parser.add_argument("--config", type=Path, help=f"a folder with {CONFIGURATION_FILE}")
    parser.add_argument("--cel", action="store_true", help="the cases are single expressions")
    options = parser.parse_args(arguments)
    engine = CelEngine()
    cases = yaml.safe_load(options.cases.read_text())["cases"]
    if options.cel:
        outcomes = list(compare_expressions(cases, engine))
    elif options.config is None:
        parser.error("--config FOLDER is needed to classify PipelineRuns")
    else:
        rules = parse_rules((options.config / CONFIGURATION_FILE).read_text(), engine)
        outcomes = list(compare_pipeline_runs(cases, rules))
    for outcome in outcomes:
        if not outcome.matches:
            _say(f"{outcome.name}\n  expected {outcome.expected}\n  got      {outcome.got}")
    matching = sum(outcome.matches for outcome in outcomes)
    _say(f"classification: {matching} of {len(outcomes)} cases match")
    return 0 if outcomes and matching == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
