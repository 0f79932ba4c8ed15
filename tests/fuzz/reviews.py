"""Borders of the webhook: reviews, conversions, rules and expressions (T1, T4)."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import orjson
from hypothesis import strategies as st

from services.classifier.cel import CelEngine, CompileError, EvaluationError
from services.classifier.cel.evaluate import Variables
from services.classifier.rules import RulesError, parse_rules
from services.classifier.webhook.conversion_review import answer_conversion
from services.classifier.webhook.reviewing.reviewer import Reviewer
from shared.contracts.kube.quantities import QuantityError, amount, format_amount, parse_quantity
from shared.contracts.windows import WindowsError, read_windows
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.messages import NOON
from tests.fuzz.values import ODD, strings, texts

_ENGINE: Final = CelEngine()
_SOURCES: Final = (
    'annotation("a", has(pipelineRun.metadata.labels) ? "x" : "y")',
    'priority("low")',
    'resource("linux-arm64", 1)',
    "pacEventType == 'push' ? priority('high') : priority('low')",
    "pipelineRun.spec.pipelineSpec.tasks.map(t, resource(t.name, 1))",
    "plrNamespace.matches('a+') ? [label('a', 'b')] : []",
    "string(size(pipelineRun.spec.params.filter(p, p.name == 'x'))) + replace('a', 'a', 'bb')",
    "[1, 2, 3].all(x, [1, 2].exists(y, x > y)) && 1 / 0 == 1 && 9223372036854775807 + 1 > 0",
)
_RULES_TEXT: Final = (
    "queueName: main\nmultiKueueOverride: false\ncel:\n  expressions:\n"
    '  - \'has(pipelineRun.metadata.labels) ? [label("a", "b")] : []\'\n'
    '  - \'annotation("kueue.konflux-ci.dev/requests-cpu", "1")\'\n'
)
RULES: Final = parse_rules(_RULES_TEXT, _ENGINE)


def review(obj: Any, old: Any = None, operation: str = "CREATE") -> dict[str, Any]:
    """An AdmissionReview as an API server sends it."""
    return {
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "batch", "version": "v1", "kind": "Job"},
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "name": "train", "namespace": "team-a", "operation": operation, "dryRun": False,
            "userInfo": {"username": "jane", "groups": ["system:authenticated"], "uid": "1"},
            "object": obj, "oldObject": old, "options": {"kind": "CreateOptions"},
        },
    }  # fmt: skip


def _of(*found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for obj in found:
        yield review(obj)
        yield review(obj, obj, "UPDATE")


_OURS: Final = (
    objects.WORKLOAD, objects.CLUSTER_QUEUE, objects.CLUSTER_QUEUE_V1, objects.LOCAL_QUEUE, objects.FLAVOR,
    objects.COHORT, objects.CHECK, objects.WINDOW_CHECK, objects.MULTIKUEUE, objects.SPOKE, objects.TOPOLOGY,
    objects.INTEGRATION, objects.PRIORITY,
)  # fmt: skip
_JOBS: Final = (objects.JOB, objects.RUN, objects.RUN_BY_NAME, objects.JOBSET)


def _conversion(*found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for version in ("v1beta1", "v1beta2"):
        request = {
            "uid": "u",
            "desiredAPIVersion": f"kueue.x-k8s.io/{version}",
            "objects": list(found),
        }
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "ConversionReview",
            "request": request,
        }


def _mutate(data: bytes) -> object:
    return asyncio.run(Reviewer().mutate(data, RULES, None))


def _validate(data: bytes) -> object:
    return asyncio.run(Reviewer().validate(data))


def _evaluate(example: tuple[str, Any]) -> object:
    source, body = example
    try:
        run = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    programs = _ENGINE.compile([source])
    run = run if isinstance(run, dict) else {}
    return programs.evaluate(
        Variables(
            pipeline_run=run, namespace="team-a", pac_event_type="push", pac_test_event_type=""
        )
    )


def _quantity(text: str) -> object:
    return parse_quantity(text), format_amount("cpu", amount("cpu", text)), amount("memory", text)


_ANNOTATIONS: Final = st.dictionaries(
    st.sampled_from(["sluicegate.dev/windows", "sluicegate.dev/time-zone", "a"]),
    st.one_of(
        strings("0 22 * * 1-5 for 8h", "*/5 0-6,22 1 jan mon for 1h30m", "Europe/Berlin", "UTC"),
        st.sampled_from([value for value in ODD if isinstance(value, str)]),
    ),
)


def borders() -> Iterator[Border]:
    """Whole reviews first, then what they are made of."""
    yield Border(
        name="webhook: mutation of jobs", strategy=texts(*_of(*_JOBS)), call=_mutate, weight=3.0
    )
    yield Border(
        name="webhook: validation of jobs", strategy=texts(*_of(*_JOBS)), call=_validate, weight=2.0
    )
    yield Border(
        name="webhook: validation of our kinds",
        strategy=texts(*_of(*_OURS)),
        call=_validate,
        weight=4.0,
    )
    yield Border(
        name="webhook: conversion", strategy=texts(*_conversion(*_OURS[:7])), weight=2.0,
        call=answer_conversion,
    )  # fmt: skip
    yield Border(
        name="rules of the classifier", strategy=strings(_RULES_TEXT, *_SOURCES),
        call=lambda text: parse_rules(text, _ENGINE), allowed=(RulesError,),
    )  # fmt: skip
    yield Border(
        name="CEL: source", strategy=strings(*_SOURCES), call=lambda text: _ENGINE.compile([text]),
        allowed=(CompileError,),
    )  # fmt: skip
    yield Border(
        name="CEL: evaluation", strategy=st.tuples(st.sampled_from(_SOURCES), texts(objects.RUN)),
        call=_evaluate, allowed=(CompileError, EvaluationError),
    )  # fmt: skip
    yield Border(
        name="quantity", strategy=strings("500m", "1.5Gi", "2e3", "+12.5E", "-1n", "1e-9"), call=_quantity,
        allowed=(QuantityError,),
    )  # fmt: skip
    yield Border(
        name="windows of a check", strategy=_ANNOTATIONS, call=lambda found: read_windows(found).stand(NOON),
        allowed=(WindowsError,),
    )  # fmt: skip
