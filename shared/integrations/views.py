"""Evaluates the expressions of a document for one object and checks the type of each result."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from shared.cel.values import MAP, NULL
from shared.contracts.kube.bodies import annotations_of, map_at
from shared.contracts.kube.kinds import Object
from shared.integrations.compiled import Compiled, PodSetPlan, RefusalRule, Slot, WrappedPlan
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import (
    Failure,
    Group,
    Items,
    Programs,
    excess,
    together,
    value_of,
)
from shared.integrations.pointers import entries, found
from shared.integrations.related.wrapped import (
    ITEMS_MAX,
    ReaderOf,
    WrappedPods,
    pods_inside,
    shown_item,
)
from shared.integrations.remembered import Remembered

_TYPES: Final[Mapping[str, frozenset[type]]] = {
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "double": frozenset({float}),
    "string": frozenset({str}),
    "timestamp": frozenset({datetime}),
    "null": frozenset({type(None)}),
}
POD_SETS_MAX: Final = 18
"""As many as a Workload may have. More are not read: an object may hold 100,000."""

_FIRST: Final = ("match", "held", "active", "ready", "success", "failure")
_SHOWN_CHARS: Final = 60
_DIGITS_MAX: Final = 18
"""Digits of a whole number in a text. More exceed 64 bits, or what Python reads."""


_REMEMBERED: Final = Remembered()
"""Of all kinds."""


class PodSetRequest(NamedTuple):
    """One pod set of an object."""

    plan: PodSetPlan
    key: str
    """Key of the item with `forEach`; else empty."""

    name: str
    pods: int
    min_count: int | None
    reclaimable: int
    running: int
    ending: int
    requests: Mapping[str, str]
    added: Mapping[str, str] = {}
    """What each pod asks for beyond its template."""

    inside: WrappedPods | None = None
    """What it is of a wrapped object; None: it is of the object itself."""

    @property
    def template_path(self) -> tuple[str, ...]:
        """Path in the object of its pod template; if there is none, a name that is no path."""
        plan = self.plan
        if plan.template is None:
            return (f"#{self.name}",)
        return self.path_of(plan.template, in_item=plan.in_item)

    def path_of(self, path: tuple[str, ...], *, in_item: bool) -> tuple[str, ...]:
        """Path in the object of a field of this pod set."""
        return (*(self.plan.each or ()), self.key, *path) if in_item else path


@dataclass(slots=True)
class View:
    """All results for one object."""

    results: dict[str, Any] = field(default_factory=dict)
    """Results of `match`, `held`, `active`, … A name is missing if its expression failed or is not
    given."""

    pod_sets: list[PodSetRequest] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Which expressions failed, and why."""

    faults: list[str] = field(default_factory=list)
    """What is wrong with the object: paths that lead nowhere."""

    too_large: bool = False
    """True if it is too large for an expression."""


class Views:
    """Evaluates each version of an object once."""

    def __init__(self, compiled: Compiled, reader_of: ReaderOf) -> None:
        """`reader_of` finds the Integrations of objects that are inside of an object."""
        self._reader_of = reader_of
        self._single = compiled.single
        self._readers = [
            _Reader(name, compiled.single[name]) for name in _FIRST if name in compiled.single
        ]
        plain = [plan for plan in compiled.pod_sets if plan.each is None]
        grouped = [plan for plan in compiled.pod_sets if plan.each is not None]
        expressions = [reader.slot.expression for reader in self._readers]
        self._plans: list[tuple[PodSetPlan, int, str]] = []
        """The plan, the index of its first result or of its group, and the variable of the group."""

        for plan in plain:
            self._plans.append((plan, len(expressions), ""))
            expressions += [slot.expression for slot in plan.slots()]
        groups = [
            Group.of(plan.index, [slot.expression for slot in plan.slots()], _most_items(plan))
            for plan in grouped
        ]
        for place, (plan, group) in enumerate(zip(grouped, groups, strict=True)):
            self._plans.append((plan, len(expressions) + place, group.variable))
        self._plans.sort(key=lambda entry: entry[0].index)
        self._pod_readers = {plan.index: _PodSetReader(plan) for plan in compiled.pod_sets}
        self._programs = Programs(expressions, groups)

    def of(self, obj: Object) -> View:
        """The view of an object.

        An object that has a resource version is remembered with its view, because nobody changes an
        object in place.
        """
        version = map_at(obj, "metadata").get("resourceVersion")
        if version is None:
            return self.look(obj)
        view: View | None = _REMEMBERED.get(self, obj, version)
        if view is None:
            view = self.look(obj)
            _REMEMBERED.put(self, obj, version, view)
        return view

    def evaluate_on_demand(self, name: str, obj: Object) -> Any:
        """The result of an expression that is rarely needed; None if it is not given or fails."""
        slot = self._single.get(name)
        if slot is None:
            return None
        view = View()
        value = _Reader(name, slot).read(value_of(slot.expression, obj), view.problems)
        return None if view.problems else value

    def why_too_large(self, obj: Object) -> Iterator[str]:
        """Yield why the spec is too large for expressions. A status is written by a controller."""
        view = self.of(obj)
        if view.too_large:
            own = self.look({key: value for key, value in obj.items() if key != "status"})
            yield from own.problems if own.too_large else ()
        for slot in (asked.plan.template_from for asked in view.pod_sets):
            if slot is not None and (reason := excess(slot.expression, obj)):
                yield f"{slot.field}: {reason}"

    @staticmethod
    def _items(obj: Object, plan: PodSetPlan, problems: list[str]) -> Items:
        """The items that are not null, those of `order` first."""
        path = plan.each or ()
        most = _most_items(plan)
        there = ((key, item) for key, item in entries(found(obj, path)) if item is not None)
        items = list(islice(there, most + 1))
        if len(items) <= most:
            place = {key: at for at, key in enumerate(plan.order)}
            return sorted(items, key=lambda named: place.get(named[0], len(place)))
        why = "a Workload has" if plan.wrapped is None else "are looked at"
        problems.append(f"{'.'.join(path)}: more than {most} items are more than {why}")
        return ()

    def _inside(
        self, obj: Object, wrapped: WrappedPlan, items: Sequence[PodSetRequest], view: View
    ) -> Iterator[PodSetRequest]:
        """Yield the pod sets of the objects in these items. Paths that lead nowhere are faults."""
        number = 0
        for one in items:
            each = one.plan.each or ()
            item = found(obj, (*each, one.key))
            where = shown_item(each, one.key)
            try:
                pods = pods_inside(item, wrapped, where, self._reader_of)
            except ObjectError as error:
                view.faults.append(str(error))
                continue
            for inside in pods:
                name = f"{one.name}-{number}"
                yield one._replace(name=name, pods=inside.pods, inside=inside)
                number += 1
        if number > POD_SETS_MAX:
            view.faults.append(
                f"{number} pod sets are more than the {POD_SETS_MAX} that a Workload has"
            )

    def look(self, obj: Object) -> View:
        """The view of an object, which is not remembered."""
        view = View()
        items = {
            variable: self._items(obj, plan, view.problems)
            for plan, _, variable in self._plans
            if plan.each is not None
        }
        results = self._programs.evaluate(obj, items)
        view.too_large = _is_too_large(results)
        for reader, result in zip(self._readers, results, strict=False):
            before = len(view.problems)
            value = reader.read(result, view.problems)
            if len(view.problems) == before:
                view.results[reader.name] = value
        for plan, place, variable in self._plans:
            reader_of = self._pod_readers[plan.index]
            if plan.each is None:
                asked = [reader_of.read(obj, results, place, view.problems)]
            else:
                asked = [
                    reader_of.read_item(obj, row, key, item, view.problems)
                    for (key, item), row in zip(items[variable], results[place], strict=True)
                ]
            found_here = [one for one in asked if one is not None]
            if plan.wrapped is not None:
                with together():
                    found_here = list(self._inside(obj, plan.wrapped, found_here, view))
            view.pod_sets += found_here
        if len(view.pod_sets) > 1:
            view.problems += _twins(view.pod_sets)
        return view


def refused(rules: Sequence[RefusalRule], obj: Object) -> Iterator[str]:
    """Yield why rules of a document refuse an object: field, value and what to do."""
    for rule in rules:
        result, where = value_of(rule.when.expression, obj), ".".join(rule.field)
        if isinstance(result, Failure) and result.too_much:
            yield f"{where}: {result.reason}"
        elif result is True:
            yield f"{where}: {_value(found(obj, rule.field))}: {rule.message}"


def _value(value: Any) -> str:
    """A value of an object, for people; a map or a list is too long."""
    if value is None:
        return "absent"
    return "set" if isinstance(value, dict | list) else shown(value).replace("True", "true")


def _is_too_large(results: Sequence[Any]) -> bool:
    return any(
        one.too_much if isinstance(one, Failure) else isinstance(one, list) and _is_too_large(one)
        for one in results
    )


class _Reader:
    """Checks one result: returns its value, or reports the problem."""

    __slots__ = ("_types", "name", "slot")

    def __init__(self, name: str, slot: Slot) -> None:
        self.name = name
        self.slot = slot
        self._types = frozenset().union(*(_TYPES[returned] for returned in slot.returns))

    def read(self, result: Any, problems: list[str]) -> Any:
        if type(result) in self._types and result not in (NULL, MAP):
            return result
        if result == NULL and type(None) in self._types:
            return None
        if isinstance(result, Failure):
            problem = result.reason
        else:
            problem = f"must return {' or '.join(self.slot.returns)}, but returned {shown(result)}"
        text = f"{self.slot.field}: {problem}"
        if text not in problems:
            problems.append(text)
        return None


class _PodSetReader:
    """Reads the results of one entry of `spec.podSets`, which come in the order of `slots()`."""

    __slots__ = ("_added", "_each", "_plan", "_requests", "_scalars")

    def __init__(self, plan: PodSetPlan) -> None:
        self._plan = plan
        self._each = ".".join(plan.each or ())
        single = [
            (name, slot)
            for name, slot in (
                ("when", plan.when),
                ("name", plan.name_from),
                ("count", plan.count),
                ("least", plan.min_count),
                ("done", plan.reclaimable),
                ("running", plan.running),
                ("ending", plan.ending),
            )
            if slot is not None
        ]
        self._scalars = [_Reader(name, slot) for name, slot in single]
        self._requests = [_Reader(resource, slot) for resource, slot in plan.requests]
        self._added = [_Reader(resource, slot) for resource, slot in plan.added]

    def read(
        self, obj: Object, results: list[Any], start: int, problems: list[str]
    ) -> PodSetRequest | None:
        """The pod set of an entry without `forEach`; None if the object has none.

        Its results begin at `start`.
        """
        return self._asked(obj, results, start, "", self._plan.name, problems)

    def read_item(
        self, obj: Object, row: list[Any], key: str, item: Any, problems: list[str]
    ) -> PodSetRequest | None:
        """The pod set of one item of an entry with `forEach`; None if it has none."""
        name = item.get("name") if isinstance(item, dict) and key.isdigit() else key.lower()
        asked = self._asked(obj, row, 0, key, "" if name is None else str(name), problems)
        if asked is not None and not asked.name:
            problems.append(f"{self._each}[{key}]: has no name; the Integration can say nameFrom")
        return asked

    def _asked(
        self, obj: Object, results: list[Any], at: int, key: str, name: str, problems: list[str]
    ) -> PodSetRequest | None:
        count: int | None = 1
        least = done = running = ending = None
        for reader in self._scalars:
            value = reader.read(results[at], problems)
            at += 1
            match reader.name:
                case "when":
                    if value is False:
                        return None
                case "count":
                    count = value
                case "least":
                    least = _whole(value, reader.slot, problems)
                case "done":
                    done = _whole(value, reader.slot, problems)
                case "running":
                    running = _whole(value, reader.slot, problems)
                case "ending":
                    ending = _whole(value, reader.slot, problems)
                case _:
                    name = value or ""
        requests, added = (
            {
                reader.name: _quantity(reader.read(results[place], problems))
                for place, reader in enumerate(readers, start)
            }
            for readers, start in ((self._requests, at), (self._added, at + len(self._requests)))
        )
        if self._plan.annotations:
            _from_annotations(obj, self._plan.annotations, requests, problems)
        return PodSetRequest(
            plan=self._plan,
            key=key,
            name=name,
            pods=count or 0,
            min_count=least,
            reclaimable=done or 0,
            running=running or 0,
            ending=ending or 0,
            requests=requests,
            added=added,
        )


def _most_items(plan: PodSetPlan) -> int:
    return POD_SETS_MAX if plan.wrapped is None else ITEMS_MAX


def _twins(pod_sets: Sequence[PodSetRequest]) -> Iterator[str]:
    """Yield what is wrong with names of pod sets: a Workload has each of them once."""
    counts = Counter(asked.name for asked in pod_sets if asked.name)
    for name in (name for name, count in counts.items() if count > 1):
        each = ".".join(next(one.plan.each or () for one in pod_sets if one.name == name))
        yield f"{each or 'spec.podSets'}: {counts[name]} pod sets have the name {name!r}"


def shown(result: Any) -> str:
    """A value for people, shortened."""
    if result == NULL:
        return "null"
    if result == MAP:
        return "a map or a list"
    text = repr(result)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def _quantity(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _from_annotations(
    obj: Object, prefix: str, requests: dict[str, str], problems: list[str]
) -> None:
    for key, value in annotations_of(obj).items():
        if not key.startswith(prefix):
            continue
        resource = key.removeprefix(prefix)
        if not resource:
            problems.append(f"annotation {key}: no resource name after the prefix")
        requests[resource] = value


def _whole(value: int | str | None, slot: Slot, problems: list[str]) -> int | None:
    if not isinstance(value, str):
        return value
    if value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
        return int(value)
    problems.append(
        f"{slot.field} ({slot.expression.text.strip()}): {shown(value)} is no whole number"
    )
    return None


def moment(value: Any) -> datetime | None:
    """A time, given as text or as CEL's timestamp, in UTC if it names no zone. None for anything else."""
    if isinstance(value, str) and value:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
