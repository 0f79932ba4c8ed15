"""Builders of admission reviews that webhook tests share."""

from typing import Any

import orjson

from services.classifier.cel import CelEngine
from services.classifier.rules import parse_rules

RULES = parse_rules(
    "queueName: q\ncel: {expressions: [\"resource('a', 1)\", \"priority('p')\"]}", CelEngine()
)


def run(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"generateName": "p-"},
        "spec": {"pipelineRef": {"name": "b"}} | spec,
    }


def review(given: Any, **request: Any) -> bytes:
    return orjson.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u-1", "operation": "CREATE", "namespace": "ns", "object": given}
            | request,
        }
    )
