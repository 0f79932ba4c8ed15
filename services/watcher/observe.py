"""From what the API server shows to what is said on the bus. Pure."""

from typing import Any, Final

from shared.contracts.kube.kinds import SECRET, Kind, Object
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION
from shared.contracts.messages.observed import Observed

__all__ = ["TRUNCATED", "observed", "shortened", "tombstone", "trimmed"]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

TRUNCATED: Final = "sluicegate.dev/truncated"
"""Annotation on the short form of an observed object that was too large for a message; it says how
large it was. The object in the cluster does not have it."""

SCALAR_CHARS_MAX: Final = 1024
_SECRET_DATA: Final = ("data", "stringData")


def observed(cluster: str, kind: Kind, obj: Object) -> Observed:
    """Say what `obj` is like now."""
    return _said(cluster, kind, obj, deleted=False)


def tombstone(cluster: str, kind: Kind, obj: Object) -> Observed:
    """Say that `obj`, as it was last, is gone."""
    return _said(cluster, kind, obj, deleted=True)


def trimmed(kind: Kind, obj: Object) -> Object:
    """`obj` without what only the API server and kubectl need, and without a Secret's data."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    annotations = metadata.get("annotations")
    if annotations and LAST_APPLIED in annotations:
        rest = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
        metadata["annotations"] = rest
        if not rest:
            del metadata["annotations"]
    kept = {**obj, "metadata": metadata}
    if kind == SECRET:
        for field in _SECRET_DATA:
            kept.pop(field, None)
    return kept


def shortened(message: Observed, *, size: int, ref: str | None) -> Observed:
    """What of a too large object is said in the message itself: who it is, and how it stands.

    `ref` is where the whole is. Whoever reads the message through the bus is given that; the short
    form is for those who look at the log, and for when the object store lost it.

    Metadata stays, and of spec and status what is a short value by itself (suspended, cancelled,
    started, finished), and the conditions: enough to see an end and give quota back. `size` is the
    encoded message's, in bytes.
    """
    obj = message.object or {}
    metadata = obj.get("metadata") or {}
    said = f"left out spec and status of an object of {size} bytes"
    kept: dict[str, Any] = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "metadata": {
            **metadata,
            "annotations": {**_short(metadata.get("annotations")), TRUNCATED: said},
        },
        "spec": _short(obj.get("spec")),
    }
    status = obj.get("status")
    if isinstance(status, dict):
        kept["status"] = _short(status)
        if "conditions" in status:
            kept["status"]["conditions"] = [
                _short(condition) for condition in status["conditions"] or []
            ]
    return message.model_copy(update={"object": kept, "object_ref": ref})


def _short(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {
        key: item
        for key, item in value.items()
        if isinstance(item, bool | int | float)
        or (isinstance(item, str) and len(item) <= SCALAR_CHARS_MAX)
    }


def _said(cluster: str, kind: Kind, obj: Object, *, deleted: bool) -> Observed:
    metadata = obj["metadata"]
    return Observed(
        cluster=cluster,
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespace=metadata.get("namespace") or None,
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        deleted=deleted,
        object=trimmed(kind, obj),
        traceparent=(metadata.get("annotations") or {}).get(TRACEPARENT_ANNOTATION),
    )
