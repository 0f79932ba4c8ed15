"""The patches of a document, written out for one object; what it leaves out has defaults. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from shared.cel.values import MAP, NULL
from shared.contracts.kube.kinds import Object
from shared.integrations.compiled import Operation, Slot
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import Failure, value_of
from shared.integrations.pointers import found, pointer, tokens, with_missing_maps, without, written

_LIMITS: Final = frozenset({"activeDeadlineSeconds", "timeouts", "ttlSecondsAfterFinished"})
"""Fields of a spec that limit how long a job runs or is kept, for every kind."""

Operations = tuple[Operation, ...]


def operation(op: str, path: str, value: Any = None) -> Operation:
    """An operation that is the same for every object."""
    return Operation(op=op, path=path, value=value, value_from=None, when=None)


class Patches:
    """The patches of one document, by name: `hold`, `release`, `stop`, `end`, `cancel` and `carry`."""

    def __init__(
        self,
        of: str,
        given: Callable[[], Mapping[str, Operations]],
        defaults: Mapping[str, Operations],
    ) -> None:
        """`of`: name of the document, for messages. `given`: what it says, compiled when it is needed."""
        self._of = of
        self._given = given
        self._defaults = defaults

    def says(self, name: str) -> bool:
        """Whether the document has that patch."""
        return name in self._given()

    def written(self, name: str, obj: Object) -> list[Object]:
        """The operations for this object; none for a patch without a default. Raises `ObjectError`."""
        operations = self._given().get(name, self._defaults.get(name, ()))
        patch = [step for one in operations for step in self._operation(one, obj)]
        return with_missing_maps(obj, patch)

    def _operation(self, operation: Operation, obj: Object) -> Iterator[Object]:
        if operation.when is not None and self._value(operation.when, obj) is not True:
            return
        step: Object = {"op": operation.op, "path": operation.path}
        if operation.value_from is not None:
            step["value"] = self._value(operation.value_from, obj)
        elif operation.op != "remove":
            step["value"] = operation.value
        yield step

    def _value(self, slot: Slot, obj: Object) -> Any:
        result = value_of(slot.expression, obj)
        if isinstance(result, Failure):
            raise ObjectError(f"Integration {self._of}: {slot.field}: {result.reason}")
        if slot.returns and result == MAP:
            allowed = " or ".join(slot.returns)
            raise ObjectError(f"Integration {self._of}: {slot.field}: must return {allowed}")
        return None if slot.returns and result == NULL else result


def applied(spec: Object, operations: Sequence[Object]) -> Object:
    """The spec of an object after these operations."""
    whole: Object = {"spec": spec}
    for step in operations:
        path = tokens(step["path"])
        if step["op"] == "remove":
            whole = without(whole, path)
        elif step["op"] == "add" or found(whole, path) is not None:
            whole = written(whole, path, step["value"])
    changed: Object = whole["spec"]
    return changed


def only_ends(
    obj: Object,
    name: str,
    value: Any,
    patches: Patches,
    count_fields: Collection[tuple[str, ...] | None],
) -> bool:
    """Whether a field of the spec with this value only stops an object, or makes it end sooner."""
    if name in _LIMITS:
        return True
    if ("spec", name) in count_fields:
        before = found(obj, ("spec", name))
        return type(value) is int and type(before) is int and value <= before
    path = pointer(("spec", name))
    wanted = [
        one
        for which in ("hold", "stop", "end")
        for one in patches.written(which, obj)
        if one["path"] == path
    ]
    if any(one.get("value") == value for one in wanted):
        return True
    releases = patches.written("release", obj)
    removes = any(one["op"] == "remove" and one["path"] == path for one in releases)
    return bool(wanted) and removes and bool(value)
