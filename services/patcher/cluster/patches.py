"""JSON patches (RFC 6902) that apply only to the object that was read. Pure.

A patch whose `test` operation fails raises `ConflictError`: the caller reads the object again.
"""

from collections.abc import Mapping
from typing import Any

from shared.contracts.kube.bodies import Body, status_of

JsonPatch = list[dict[str, Any]]


def if_unchanged(obj: Body, *operations: dict[str, Any]) -> JsonPatch:
    """Return the operations behind tests that `obj` still has its uid and resource version."""
    metadata = obj["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        *operations,
    ]


def status_patch(obj: Body, status: Mapping[str, Any]) -> JsonPatch | None:
    """Return a patch that replaces the status; None if `obj` has this status already."""
    if status == status_of(obj):
        return None
    return if_unchanged(obj, {"op": "add", "path": "/status", "value": status})


def add_finalizer(obj: Body, finalizer: str) -> JsonPatch | None:
    """Return a patch that adds `finalizer`; None if it is there, or if the object is being deleted."""
    finalizers: list[str] = obj["metadata"].get("finalizers") or []
    if finalizer in finalizers or "deletionTimestamp" in obj["metadata"]:
        return None
    wanted = [*finalizers, finalizer]
    return if_unchanged(obj, {"op": "add", "path": "/metadata/finalizers", "value": wanted})


def remove_finalizer(obj: Body, finalizer: str) -> JsonPatch | None:
    """Return a patch that removes `finalizer` while the list is as it was read; None if it is not there."""
    finalizers: list[str] = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        return None
    remaining = [each for each in finalizers if each != finalizer]
    return [
        {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
        {"op": "replace", "path": "/metadata/finalizers", "value": remaining},
    ]
