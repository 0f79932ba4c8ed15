"""Builders of objects and rules that mutation tests share."""

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

from services.classifier.cel import CelEngine
from services.classifier.rules import Rules, parse_rules
from shared.contracts.kube import names

ENGINE = CelEngine()


PENDING = "PipelineRunPending"


R = names.REQUESTS_PREFIX


def rules(*expressions: str, **fields: Any) -> Rules:
    configuration = {"queueName": "q", "cel": {"expressions": list(expressions)}} | fields
    return parse_rules(yaml.safe_dump(configuration, width=10**9), ENGINE)


def run(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "p", "namespace": "ns"} | metadata,
        "spec": {"pipelineRef": {"name": "build"}},
    }


def job(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns"} | metadata,
        "spec": {"template": {"spec": {"containers": []}}},
    }


def annotations(made: dict[str, Any]) -> dict[str, str]:
    """Those of the configuration; ours begin with `sluicegate.dev/`."""
    found = made["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if not key.startswith("sluicegate.dev/")}


def patched(given: Any, patch: tuple[dict[str, Any], ...]) -> Any:
    """Apply a JSON patch of `add`, `replace` and `remove`, as an API server would."""
    result = copy.deepcopy(given)
    for operation in patch:
        *path, last = [
            token.replace("~1", "/").replace("~0", "~")
            for token in operation["path"].removeprefix("/").split("/")
        ]
        target = result
        for token in path:
            target = target[token]
        assert operation["op"] == "add" or last in target
        if operation["op"] == "remove":
            del target[last]
        else:
            target[last] = operation["value"]
    return result


# --- twice is once --------------------------------------------------------------------------------

texts = st.sampled_from(["a", "b", "cpu", "linux-arm64"])


parts = st.one_of(
    st.builds('resource("{}", {})'.format, texts, st.integers(0, 2**63 - 1)),
    st.builds('label("{}", "{}")'.format, texts, texts),
    st.builds('annotation("{}", "{}")'.format, texts, texts),
    st.builds((f'annotation("{R}' + '{}", "{}")').format, texts, st.integers(0, 9)),
    st.builds('priority("{}")'.format, texts),
)


expressions = st.lists(st.lists(parts, min_size=1).map(lambda p: f"[{', '.join(p)}]"), max_size=3)


ALLOWED = ("/metadata/labels", "/metadata/annotations", "/spec/status", "/spec/managedBy")
"""All that a classification may touch, whatever the expressions are."""
