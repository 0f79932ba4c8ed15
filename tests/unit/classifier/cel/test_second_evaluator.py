"""A second, independent evaluator (cel-python) agrees, for expressions that it can read.

It has no type checker, reads no trailing comma and no macro with a condition, and takes `has()` of
a missing parent for false, so the expressions here are without those.
"""

from typing import Any

import celpy
import pytest
from celpy import celtypes
from celpy.adapter import json_to_cel

from services.classifier.cel import (
    AddRequest,
    CelEngine,
    Mutation,
    SetAnnotation,
    SetLabel,
    SetManager,
    Variables,
)
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, REQUESTS_PREFIX

RUN: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"type": "managed", "service": "release"}},
    "spec": {
        "params": [
            {"name": "build-platforms", "value": ["linux/arm64", "linux/x86_64", "local"]},
            {"name": "revision", "value": "main"},
        ],
        "pipelineSpec": {"tasks": [{"name": "a", "params": [{"name": "P", "value": "l/a"}]}]},
    },
}
EXPRESSIONS = {
    "a label": 'label("a", "b")',
    "a choice": 'plrNamespace == "mintmaker" ? priority("low") : priority("high")',
    "a nested choice": (
        'pacEventType == "push" ? priority("a") : pacEventType == "pull" ? priority("b") '
        ': priority("c")'
    ),
    "a loop over a parameter": (
        'pipelineRun.spec.params.filter(p, p.name == "build-platforms")[0]'
        '.value.map(p, resource(replace(replace(p, "/", "-"), "_", "-"), 1))'
    ),
    "a loop with exceptions": (
        'pipelineRun.spec.params.filter(p, p.name == "build-platforms")[0]'
        '.value.filter(p, !(p in ["local", "linux/x86_64"])).map(p, resource("aws-ip", 1))'
    ),
    "labels that are there": (
        '"type" in pipelineRun.metadata.labels && pipelineRun.metadata.labels["type"] == '
        '"managed" ? priority("release") : priority("default")'
    ),
    "tasks": ("pipelineRun.spec.pipelineSpec.tasks.map(t, annotation(t.name, t.params[0].value))"),
    "text put together": 'annotation("a", plrNamespace + "/" + pipelineRun.metadata.name)',
    "arithmetic": 'resource("a", 2 * 3 + size(pipelineRun.spec.params))',
    "who runs it": (
        'plrNamespace == "team" ? [multiKueue("far"), managedBy("me")] : [multiKueue()]'
    ),
    "a pattern": '"release-1".matches("^release-[0-9]+$") ? [label("r", "yes")] : []',
}


def _mutation(kind: str, key: str, value: str) -> celtypes.MapType:
    return celtypes.MapType(
        {
            celtypes.StringType("type"): celtypes.StringType(kind),
            celtypes.StringType("key"): celtypes.StringType(key),
            celtypes.StringType("value"): celtypes.StringType(value),
        }
    )


FUNCTIONS: Any = {
    "label": lambda k, v: _mutation("label", k, v),
    "annotation": lambda k, v: _mutation("annotation", k, v),
    "priority": lambda v: _mutation("label", PRIORITY_CLASS_LABEL, v),
    "resource": lambda k, n: _mutation("resource", REQUESTS_PREFIX + k, str(n)),
    "managedBy": lambda v: _mutation("managedBy", "managedBy", v),
    "multiKueue": lambda v="": _mutation("multiKueue", "managedBy", v),
    "replace": lambda s, old, new: celtypes.StringType(str(s).replace(str(old), str(new))),
}


def second_opinion(expression: str) -> list[Mutation]:
    environment = celpy.Environment()
    program = environment.program(environment.compile(expression), functions=FUNCTIONS)
    result: Any = program.evaluate(
        {
            "pipelineRun": json_to_cel(RUN),
            "plrNamespace": celtypes.StringType("team"),
            "pacEventType": celtypes.StringType("pull"),
            "pacTestEventType": celtypes.StringType(""),
        }
    )
    returned: list[Any] = list(result) if isinstance(result, celtypes.ListType) else [result]
    return [_to_mutation({str(k): str(v) for k, v in item.items()}) for item in returned]


def _to_mutation(item: dict[str, str]) -> Mutation:
    match item["type"]:
        case "label":
            return SetLabel(key=item["key"], value=item["value"])
        case "annotation":
            return SetAnnotation(key=item["key"], value=item["value"])
        case "managedBy" | "multiKueue" as kind:
            if kind == "multiKueue":
                return SetManager(manager=None, queue=item["value"])
            return SetManager(manager=item["value"])
        case _:
            return AddRequest(key=item["key"], amount=int(item["value"]))


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS.keys())
def test_both_evaluators_return_the_same(expression: str) -> None:
    variables = Variables(
        pipeline_run=RUN, namespace="team", pac_event_type="pull", pac_test_event_type=""
    )

    ours = CelEngine().compile([expression]).evaluate(variables)

    assert ours
    assert ours == second_opinion(expression)
