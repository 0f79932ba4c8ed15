"""What a watcher could never have seen is no observation."""

from typing import Any

import pytest

from shared.contracts.kube import kinds
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed
from shared.testing.builders import observed

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u"}
FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "another name": ({"name": "b"}, "name: 'b'"),
    "another uid": ({"uid": "other"}, "uid: 'other'"),
    "another namespace": ({"namespace": "kube-system"}, "namespace: 'kube-system'"),
    "labels that are a list": ({"labels": ["a"]}, "labels"),
    "a label that is a number": ({"labels": {"a": 1}}, "labels"),
    "annotations that are a text": ({"annotations": "a"}, "annotations"),
    "an owner without a kind": ({"ownerReferences": [{"uid": "u"}]}, "ownerReferences"),
    "owners that are a map": ({"ownerReferences": OWNER}, "ownerReferences"),
    "a finalizer that is a number": ({"finalizers": [1]}, "finalizers"),
}


def seen(metadata: dict[str, Any]) -> Observed:
    """An observation whose object has other metadata than its message says."""
    honest = observed(kinds.JOB, "a", namespace="team-a")
    assert honest.object is not None
    return honest.with_object({"metadata": {**honest.object["metadata"], **metadata}})


@pytest.mark.parametrize(("metadata", "why"), FORGERIES.values(), ids=FORGERIES.keys())
def test_impossible_metadata_cannot_be_read(metadata: dict[str, Any], why: str) -> None:
    with pytest.raises(UndecodableError, match=why):
        Observed.decode(seen(metadata).encode())


CONTENTS: dict[str, tuple[dict[str, Any], str]] = {
    "a spec that is a text": ({"spec": "a"}, "spec"),
    "a status that is a list": ({"status": ["a"]}, "status"),
    "conditions that are a map": ({"status": {"conditions": {"a": "b"}}}, r"status\.conditions"),
    "a condition that is a text": ({"status": {"conditions": ["Ready"]}}, r"status\.conditions"),
    "a condition whose status is no text": (
        {"status": {"conditions": [{"type": "Ready", "status": True}]}},
        r"status\.conditions",
    ),
}


@pytest.mark.parametrize(("contents", "why"), CONTENTS.values(), ids=CONTENTS.keys())
def test_impossible_contents_cannot_be_read(contents: dict[str, Any], why: str) -> None:
    honest = observed(kinds.JOB, "a", namespace="team-a")
    assert honest.object is not None
    with pytest.raises(UndecodableError, match=why):
        Observed.decode(honest.with_object({**honest.object, **contents}).encode())


def test_metadata_of_an_api_server_is_read() -> None:
    metadata = {
        "labels": {"a": "b"},
        "annotations": None,
        "ownerReferences": [OWNER],
        "finalizers": [],
    }
    assert Observed.decode(seen(metadata).encode()).body is not None


@pytest.mark.parametrize(
    "obj", [{}, {"metadata": {}}, {"metadata": {"name": "a"}}, {"metadata": None}]
)
def test_object_without_name_and_uid_has_no_body(obj: dict[str, Any]) -> None:
    assert observed(kinds.JOB, "a", namespace="team-a").with_object(obj).body is None
