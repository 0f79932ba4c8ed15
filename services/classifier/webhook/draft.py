"""A mutable copy of a new object: collects changes and turns them into a JSON patch. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import orjson

from services.classifier.cel import AddRequest, Mutation, SetAnnotation, SetLabel, SetManager
from services.classifier.refusal import (
    RefusedError,
    WebhookRule,
    read_finalizers,
    read_object,
    read_strings,
)
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import ORIGIN, REQUESTS_APPLIED
from shared.integrations import Integration, ObjectError
from shared.integrations.groups.marks import own_group
from shared.integrations.pointers import found, tokens, written
from shared.telemetry.traceparent import (
    carried,
    carrier_of,
    continued,
    made_together,
    parse_traceparent,
)

_OWN_ANNOTATIONS: Final = (names.USER_PENDING, names.TRACEPARENT_ANNOTATION, REQUESTS_APPLIED)
_PROPAGATED: Final = (names.QUEUE, names.PRIORITY_CLASS_LABEL)
_INT64: Final = 2**64

_AppliedRequests = dict[str, tuple[str | None, str]]
"""Annotation to (value before rules added to it, None if absent; value after)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """An object as the API server shall create it."""

    object: Object
    patch: tuple[Object, ...]
    """JSON patch from the original object; empty if nothing changes."""


class Draft:
    """Copies of labels, annotations and spec; everything else is shared with the original."""

    def __init__(self, original: Object) -> None:
        self._original = original
        metadata = read_object(original, "metadata")
        self.labels = read_strings(metadata, "labels")
        self.annotations = read_strings(metadata, "annotations")
        self.spec = dict(read_object(original, "spec"))
        self.finalizers = read_finalizers(metadata)

    def record_user_pending(self, integration: Integration, *, held_apart: bool = False) -> None:
        """Record whether the author created the run paused. Only the first call can see it.

        `held_apart`: its controller was not admitted. Record that we hold it, if nobody else does, so
        that it waits for quota of its own.
        """
        if names.USER_PENDING in self.annotations:
            return
        paused = integration.held({"spec": self.spec})
        if integration.remember_pause:
            self.annotations[names.USER_PENDING] = "true" if paused else "false"
        elif held_apart and not paused:
            self.annotations[names.USER_PENDING] = "false"

    def hold(self, integration: Integration) -> None:
        """Apply the integration's `hold` patch, without its `test` operations, and mark what has a gate."""
        if integration.gate is not None:
            self.labels[integration.gate.label] = "true"
            self.finalizers[integration.gate.finalizer] = None
        self.annotations.update(integration.marks(self._original))
        metadata = {**read_object(self._original, "metadata"), "uid": ""}
        try:
            operations = integration.hold({**self._original, "metadata": metadata})
        except ObjectError as error:
            raise RefusedError(WebhookRule.HOLD, problem=error) from error
        for operation in operations:
            if operation["op"] != "test":
                path = tokens(operation["path"])
                self.spec = written({"spec": self.spec}, path, operation["value"])["spec"]

    def join_group(self, integration: Integration) -> None:
        """Let the name of the object's group go on as the object says. Raises `ObjectError`."""
        spec = integration.group
        by = "" if spec is None else self.annotations.pop(spec.by or "", "")
        if spec is not None and by:
            self.labels[spec.label] = own_group(self.labels, spec, by)

    def propagate(
        self, path: Sequence[str], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> None:
        """Give the pod template at `path` the labels that name queue and priority, and these."""
        given: dict[str, str] = {key: self.labels[key] for key in _PROPAGATED if key in self.labels}
        self._add(path, "labels", {**given, **labels})
        self._add(path, "annotations", annotations)

    def _add(self, path: Sequence[str], field: str, given: Mapping[str, str]) -> None:
        obj, there = {"spec": self.spec}, (*path, "metadata", field)
        present = found(obj, there)
        if given:
            merged = {**(present if isinstance(present, dict) else {}), **given}
            self.spec = written(obj, there, merged)["spec"]

    def set_managed_by(self, integration: Integration) -> None:
        """Set the field that says who runs the job, so that its controller leaves the status alone."""
        own, path = integration.own_controller, integration.managed_by
        obj = {"spec": self.spec}
        if own is not None and found(obj, path) in (None, own):
            self.spec = written(obj, path, MULTIKUEUE)["spec"]

    def set_traceparent(
        self, integration: Integration, new_traceparent: Callable[[], str | None]
    ) -> None:
        """Start a trace, or continue the author's, and let the job's controller join it.

        The object may have our annotation already:

        1. An earlier call for the same object set it: it stays.
        2. Somebody copied it together with another object: it belongs to that object's trace and is
           replaced.
        3. The object is a spoke's copy of a hub's job (it has the origin label): it stays, because the
           copy is part of the original's trace.
        """
        theirs, fresh = integration.trace_annotation, new_traceparent()
        given = carried(self.annotations.get(theirs))
        own = self.annotations.get(names.TRACEPARENT_ANNOTATION)
        copied = own is not None and fresh is not None and not made_together(own, fresh)
        if copied and ORIGIN not in self.labels:
            given, own = (None if given == own else given), None
        if own is None:
            if fresh is None:
                return
            own = self.annotations[names.TRACEPARENT_ANNOTATION] = continued(fresh, given)
        if theirs and given is None and parse_traceparent(own) is not None:
            self.annotations[theirs] = carrier_of(own)

    def without_own_annotations(self) -> Object:
        """Return the object as expressions see it: without the annotations that we added."""
        annotations = {k: v for k, v in self.annotations.items() if k not in _OWN_ANNOTATIONS}
        metadata = {**read_object(self._original, "metadata"), "labels": self.labels}
        return {
            **self._original,
            "metadata": {**metadata, "annotations": annotations},
            "spec": self.spec,
        }

    def undo_requests(self) -> _AppliedRequests:
        """Subtract what an earlier call added, so that a second call does not double it.

        Returns what was undone. An annotation that somebody changed since stays as it is.
        """
        undone: _AppliedRequests = {}
        applied = _read_applied(self.annotations.pop(REQUESTS_APPLIED, ""))
        for resource, (before, after) in applied.items():
            key = names.REQUESTS_PREFIX + resource
            if self.annotations.get(key) != after:
                continue
            undone[key] = (before, after)
            if before is None:
                del self.annotations[key]
            else:
                self.annotations[key] = before
        return undone

    def apply(self, mutations: list[Mutation], undone: _AppliedRequests) -> None:
        """Apply mutations in order; requests add to the present value. Raises `RefusedError`.

        A request in `undone` that no expression asks for now is restored: the expression may have
        seen, by another of its changes, that it was applied.
        """
        requested = {m.key for m in mutations if isinstance(m, AddRequest)}
        before = {key: self.annotations.get(key) for key in requested}
        for key in undone:
            if key not in requested:
                before[key], self.annotations[key] = undone[key]
        for mutation in mutations:
            match mutation:
                case SetLabel():
                    self.labels[mutation.key] = mutation.value
                case SetAnnotation():
                    self.annotations[mutation.key] = mutation.value
                case AddRequest():
                    self.annotations[mutation.key] = self._sum(mutation)
                case SetManager():
                    self.spec["managedBy"] = mutation.manager or MULTIKUEUE
                    if mutation.queue:
                        self.labels[names.QUEUE] = mutation.queue
                case _:
                    assert_never(mutation)
        if before:
            applied = {
                key.removeprefix(names.REQUESTS_PREFIX): [value, self.annotations[key]]
                for key, value in before.items()
            }
            text = orjson.dumps(applied, option=orjson.OPT_SORT_KEYS).decode()
            self.annotations[REQUESTS_APPLIED] = text

    def _sum(self, request: AddRequest) -> str:
        existing = self.annotations.get(request.key, "0")
        amount = _parse_int64(existing)
        if amount is None:
            problem = (
                f"failed to parse existing resource value {existing!r} as integer for key "
                f"{request.key!r}: whole numbers only, because {request.amount} is added to it"
            )
            raise RefusedError(WebhookRule.EXPRESSION, problem=problem)
        # tekton-kueue adds 64-bit integers in Go, which wrap around.
        wrapped = (amount + request.amount + _INT64 // 2) % _INT64 - _INT64 // 2
        return str(wrapped)

    def result(self) -> MutationResult:
        """Return the object and its patch, in which only labels, annotations, finalizers and spec can be."""
        original_metadata = read_object(self._original, "metadata")
        metadata = {**original_metadata}
        patch: list[Object] = []
        for field, new in (("labels", self.labels), ("annotations", self.annotations)):
            if new or original_metadata.get(field) is not None:
                metadata[field] = new
            patch += _diff(original_metadata.get(field), new, f"/metadata/{field}")
        finalizers = [*self.finalizers]
        if finalizers != (original_metadata.get("finalizers") or []):
            metadata["finalizers"] = finalizers
            patch.append({"op": "add", "path": "/metadata/finalizers", "value": finalizers})
        patch += _diff(read_object(self._original, "spec"), self.spec, "/spec")
        return MutationResult(
            object={**self._original, "metadata": metadata, "spec": self.spec}, patch=tuple(patch)
        )


def _diff(old: Mapping[str, Any] | None, new: Mapping[str, Any], path: str) -> list[Object]:
    """Return the JSON patch of one level from `old` to `new`, in the order of the keys."""
    if old is None:
        return [{"op": "add", "path": path, "value": dict(new)}] if new else []
    operations: list[Object] = [
        {"op": "remove", "path": f"{path}/{_escaped(key)}"} for key in old if key not in new
    ]
    for key, value in new.items():
        if key not in old:
            operations.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})
        elif old[key] is not value and old[key] != value:
            operations.append({"op": "replace", "path": f"{path}/{_escaped(key)}", "value": value})
    return operations


def _escaped(key: str) -> str:
    """Escape a key for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _parse_int64(text: str) -> int | None:
    """Parse an int64 as Go's `Atoi` does: ASCII digits and a sign; None for anything else."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 400:
        return None
    value = int(text)
    return value if -_INT64 // 2 <= value < _INT64 // 2 else None


def _read_applied(text: str) -> dict[str, list[Any]]:
    """Read `REQUESTS_APPLIED`. Anybody may write the annotation: ignore what has another form."""
    try:
        applied = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(applied, dict):
        return {}
    return {
        resource: pair
        for resource, pair in applied.items()
        if isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[1], str)
        and (pair[0] is None or isinstance(pair[0], str))
    }
