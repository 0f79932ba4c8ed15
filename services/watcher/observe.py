"""Turns what the API server shows into the messages of the watcher. Pure."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import conditions_of
from shared.contracts.kube.kinds import DEPARTURE, SECRET, Kind
from shared.contracts.kube.names import LAST_APPLIED, TRACEPARENT_ANNOTATION, TRUNCATED
from shared.contracts.messages.observed import Observed

T = TypeVar("T")

SCALAR_CHARS_MAX: Final = 1024
"""Longest string of spec and status that a truncated object keeps."""

MAP_BYTES_MAX: Final = 16 << 10
"""What a truncated object keeps of each: labels, annotations, finalizers, spec and status. Their user may
write as many as fit into an object."""

CONDITIONS_MAX: Final = 32
"""Conditions that a truncated object keeps: more than a kind has."""

LEVELS_MAX: Final = 150
"""Levels of an object that is published whole. At 200 no reader can decode it, at 255 it cannot be
encoded; the webhook takes 100, but not every kind comes through the webhook."""

NAME_CHARS_MAX: Final = 253
"""Longest text that is kept of a reference to a controller: that of a name in Kubernetes. The API server
takes references with longer ones, which name nobody."""

_SECRET_DATA: Final = ("data", "stringData")

_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")

_REFERENCE: Final = ("apiVersion", "kind", "name", "uid")

_TIMES: Final = ("startTime", "completionTime")
"""Of a status: between them something of the object runs."""


def observed(cluster: str, kind: Kind, obj: Body) -> Observed:
    """The message for an object that exists."""
    return _message(cluster, kind, obj, deleted=False)


def tombstone(cluster: str, kind: Kind, obj: Body) -> Observed:
    """The message for an object that was deleted; `obj` is its last state."""
    return _message(cluster, kind, obj, deleted=True)


def remains(gone: Observed) -> Observed:
    """A tombstone with what its readers use of the object that is gone, and no more.

    These are, beside its identity, its controller and when it began and ended: a watcher that starts anew
    looks for the pods of a TaskRun by them, the patcher for the Workload of a request. Of what departs it is
    the identity of its job. Tombstones stay in the view for a day: one is as small as the next, whatever the
    object held.
    """
    obj = gone.object
    if obj is None:
        return gone
    kept = _remains_of(obj)
    spec = obj.get("spec")
    is_departure = (gone.group, gone.plural) == (DEPARTURE.group, DEPARTURE.plural)
    if is_departure and isinstance(spec, dict):
        job = _remains_of(spec.get("object") or {})
        kept["spec"] = {**{key: spec.get(key) for key in ("group", "plural")}, "object": job}
    return gone.with_object(kept)


def truncated(message: Observed, *, size: int, ref: str | None) -> Observed:
    """A message that fits on the log, for an object of `size` bytes, which is too large: see `shortened`."""
    return shortened(message, f"an object of {size} bytes", ref)


def shortened(message: Observed, what: str, ref: str | None) -> Observed:
    """A message that every reader can read, for an object of which `what` says why they cannot.

    It keeps metadata (of its owners the controller), the conditions, and the scalars of spec and status
    (suspended, cancelled, started, finished): enough to see that a job has finished, and to give its quota
    back. `ref` is where the whole message is: a reader of the bus gets that one, so the shortened one matters
    only to readers of the log, or if the object store lost the whole.
    """
    obj = message.object or {}
    metadata = obj.get("metadata") or {}
    note = f"left out spec and status of {what}"
    kept: dict[str, Any] = {
        "apiVersion": f"{message.group}/{message.version}" if message.group else message.version,
        "kind": message.kind,
        "metadata": {
            **metadata,
            **_controller(metadata),
            **_few_of(metadata),
            "annotations": {**_scalars(metadata.get("annotations")), TRUNCATED: note},
        },
        "spec": _scalars(obj.get("spec")),
    }
    status = obj.get("status")
    if isinstance(status, dict):
        kept["status"] = _scalars(status)
        if conditions := conditions_of(obj)[:CONDITIONS_MAX]:
            kept["status"]["conditions"] = [_scalars(each) for each in conditions]
    return message.truncated_to(kept, ref)


def _scalars(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    scalars = {
        key: item
        for key, item in value.items()
        if isinstance(item, bool | int | float)
        or (isinstance(item, str) and len(item) <= SCALAR_CHARS_MAX)
    }
    return dict(_fitting(scalars.items()))


def _few_of(metadata: dict[str, Any]) -> dict[str, Any]:
    """Labels and finalizers, as far as they are to be kept."""
    few: dict[str, Any] = {}
    if labels := metadata.get("labels"):
        few["labels"] = _scalars(labels)
    if finalizers := metadata.get("finalizers"):
        few["finalizers"] = list(_fitting(finalizers))
    return few


def _fitting(items: Iterable[T]) -> Iterator[T]:
    """Those of them, from the first on, that fit together."""
    left = MAP_BYTES_MAX
    for item in items:
        if (size := len(json.dumps(item))) <= left:
            left -= size
            yield item


def _remains_of(obj: dict[str, Any]) -> dict[str, Any]:
    metadata, status = obj.get("metadata") or {}, obj.get("status")
    identity = {key: metadata[key] for key in _IDENTITY if key in metadata}
    kept: dict[str, Any] = {"metadata": {**identity, **_controller(metadata)}}
    if isinstance(status, dict):
        times = {key: status[key] for key in _TIMES if isinstance(status.get(key), str)}
        kept["status"] = {key: at for key, at in times.items() if len(at) <= NAME_CHARS_MAX}
    return kept


def _controller(metadata: dict[str, Any]) -> dict[str, Any]:
    """The only owner that is kept, its controller, with texts that are in bounds.

    What is longer is cut, not left out: pods are looked for by the uid, and the rest of it may be long. What
    cannot be printed names nobody; JSON has six bytes for each character of it.
    """
    owners = metadata.get("ownerReferences") or []
    cut = [
        {**{key: _cut(str(one.get(key, ""))) for key in _REFERENCE}, "controller": True}
        for one in owners
        if one.get("controller")
    ]
    return {"ownerReferences": cut[:1]} if owners else {}


def _cut(text: str) -> str:
    return text[:NAME_CHARS_MAX] if text.isascii() and text.isprintable() else ""


def _trimmed(kind: Kind, obj: Body) -> dict[str, Any]:
    """`obj` without what only the API server and kubectl need, and without a Secret's data."""
    metadata: dict[str, Any] = {
        key: value for key, value in obj["metadata"].items() if key != "managedFields"
    }
    annotations = metadata.get("annotations")
    if annotations and LAST_APPLIED in annotations:
        rest = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
        # Empty is not absent: a patch adds to a map that is there.
        metadata["annotations"] = rest
    kept: dict[str, Any] = {**obj, "metadata": metadata}
    if kind == SECRET:
        for field in _SECRET_DATA:
            kept.pop(field, None)
    return kept


def _message(cluster: str, kind: Kind, obj: Body, *, deleted: bool) -> Observed:
    metadata = obj["metadata"]
    message = Observed(
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
        object=_trimmed(kind, obj),
        traceparent=(metadata.get("annotations") or {}).get(TRACEPARENT_ANNOTATION),
    )
    if _is_deeper_than(obj, LEVELS_MAX):
        return shortened(message, f"an object with more than {LEVELS_MAX} levels", None)
    return message


def _is_deeper_than(value: Any, levels: int) -> bool:
    """Whether lists and mappings are nested in each other more often than that."""
    level = [value]
    for _ in range(levels):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
