"""Compiles the model of a document: each expression is checked and keeps its field and result type."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts.kueue.integrations import (
    Integration as Document,
)
from shared.contracts.kueue.integrations import (
    IntegrationSpec,
    PatchOperation,
    PodSetSpec,
)
from shared.integrations.document import Lines, field_path, runs_nothing
from shared.integrations.errors import IntegrationError, Problem
from shared.integrations.expressions import Checked, RefusedExpressionError, check
from shared.integrations.pointers import BOUNDED, SCALARS, why_beyond

BOOL: Final = ("bool",)
_BOOL_OR_NULL: Final = ("bool", "null")
_INT: Final = ("int",)
_INT_OR_NONE: Final = ("int", "string", "null")
_TEXT: Final = ("string",)
_TEXT_OR_NONE: Final = ("string", "null")
_WHEN: Final = ("string", "timestamp", "null")
ANYTHING: Final[tuple[str, ...]] = ()
OBJECT: Final = "object"
"""As a path: the object itself."""

_AMOUNT: Final = ("int", "string", "double")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One expression of a document."""

    field: str
    """`spec.podSets[0].count`."""

    line: int | None
    expression: Checked
    returns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a patch."""

    op: str
    path: str
    value: Any
    value_from: Slot | None
    when: Slot | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedPlan:
    """Where an item has an object with pods, and what it says of these pods."""

    object: tuple[str, ...]
    declared: tuple[str, ...] | None
    path: str
    """The field with the path of a declared template."""

    replicas: str
    placements: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetPlan:
    """How to read one entry of `spec.podSets`."""

    index: int
    each: tuple[str, ...] | None
    """Path of the list or map of `forEach`; None without it."""

    name: str
    name_from: Slot | None
    template: tuple[str, ...] | None
    in_item: bool
    """True if the path of the template starts at the item."""

    count: Slot | None
    count_field: tuple[str, ...] | None
    count_in_item: bool
    min_count: Slot | None
    reclaimable: Slot | None
    running: Slot | None
    ending: Slot | None
    requests: tuple[tuple[str, Slot], ...]
    annotations: str
    order: tuple[str, ...] = ()
    """Keys of `forEach` whose pod sets come first."""

    when: Slot | None = None
    template_from: Slot | None = None
    placement: tuple[str, ...] | None = None
    placement_in_item: bool = False
    added: tuple[tuple[str, Slot], ...] = ()
    """What each pod asks for beyond its template."""

    equal_count: tuple[str, ...] | None = None
    """The field that gets the number of pods together with `count_field`."""

    wrapped: WrappedPlan | None = None
    equal_count_in_item: bool = False
    equal_count_when: Slot | None = None

    def slots(self) -> Iterator[Slot]:
        """All expressions of the entry that are evaluated for each version of an object."""
        single = (self.when, self.name_from, self.count, self.min_count)
        for slot in (*single, self.reclaimable, self.running, self.ending):
            if slot is not None:
                yield slot
        for _, slot in (*self.requests, *self.added):
            yield slot


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRule:
    """Which objects are refused, and why."""

    when: Slot
    field: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupsPlan:
    """How the pods of an object are groups."""

    total: Slot
    has_pods: Slot
    early: Slot | None
    leader: tuple[str, ...] | None
    each: str

    def slots(self) -> Iterator[Slot]:
        """Yield all its expressions."""
        yield self.total
        yield self.has_pods
        if self.early is not None:
            yield self.early


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A document that passed every check."""

    document: Document
    single: dict[str, Slot]
    """Expressions of `match`, `held`, `active`, `ready`, `success`, `failure`, `message`, `at` and
    `priorityClass`, if given."""

    pod_sets: tuple[PodSetPlan, ...]
    patches: dict[str, tuple[Operation, ...]]
    """Operations of `hold`, `release`, `stop`, `end` and `carry`, if given."""

    refusals: tuple[RefusalRule, ...] = ()
    propagate: tuple[str, ...] | None = None
    """Path of the pod template that gets the labels of the queue."""

    pod_groups: PodGroupsPlan | None = None


def written(document: Compiled) -> Iterator[tuple[str, str]]:
    """Field and JSON pointer of what the patches of a document write."""
    spec = document.document.spec
    if spec.gate is None and spec.propagate is None and spec.hold is None:
        suspended = spec.suspend_field or "spec.suspend"
        yield "spec.suspendField", "/" + suspended.replace(".", "/")
    for name, operations in document.patches.items():
        field = {"stop": "stop.patch", "end": "stop.end", "cancel": "stop.cancel"}.get(name, name)
        for index, operation in enumerate(operations):
            if operation.op != "test":
                yield f"spec.{field}[{index}]", operation.path


@dataclass(slots=True)
class _Checking:
    """Collects all problems of one document."""

    lines: Lines
    problems: list[Problem] = field(default_factory=list)

    def slot(
        self, path: Path, text: str | None, returns: tuple[str, ...], *, each: bool = False
    ) -> Slot | None:
        if text is None:
            return None
        line, literal = self.lines.of_text(path)
        name = field_path(path)
        try:
            expression = check(text, returns=returns, each=each)
        except RefusedExpressionError as error:
            if line is not None and literal:
                line += error.line - 1
            self.problems.append(Problem(field=name, line=line, reason=str(error)))
            return None
        return Slot(field=name, line=line, expression=expression, returns=returns)

    def refuse(self, path: Path, reason: str) -> None:
        self.problems.append(
            Problem(field=field_path(path), line=self.lines.of(path), reason=reason)
        )


def compiled(document: Document, lines: Lines) -> Compiled:
    """Check every expression of a document. Raises `IntegrationError` with all problems."""
    spec, checking = document.spec, _Checking(lines)
    kind = spec.kind
    if runs_nothing(kind.group, kind.plural):
        checking.refuse(("spec", "kind"), f"{kind.kind} is nothing that runs and could wait")
    finish = spec.finish
    slots: dict[str, Slot | None] = {
        "match": checking.slot(("spec", "match"), spec.match, BOOL),
        "held": checking.slot(("spec", "held"), spec.held, BOOL),
        "active": checking.slot(("spec", "active"), spec.active, BOOL),
        "ready": checking.slot(("spec", "ready"), spec.ready, _BOOL_OR_NULL),
        "priorityClass": checking.slot(
            ("spec", "priorityClass"), spec.priority_class, _TEXT_OR_NONE
        ),
    }
    if finish is not None:
        for name, text, returns in (
            ("success", finish.success, BOOL),
            ("failure", finish.failure, BOOL),
            ("message", finish.message, _TEXT_OR_NONE),
            ("at", finish.at, _WHEN),
        ):
            slots[name] = checking.slot(("spec", "finish", name), text, returns)
    result = Compiled(
        document=document,
        single={name: slot for name, slot in slots.items() if slot is not None},
        pod_sets=tuple(
            _pod_set(checking, index, entry) for index, entry in enumerate(spec.pod_sets)
        ),
        patches=_patches(checking, spec),
        refusals=tuple(_refusals(checking, spec)),
        propagate=_place(checking, ("spec", "propagate"), spec.propagate, each=None)[0],
        pod_groups=_pod_groups(checking, spec),
    )
    if spec.pod_names is not None:
        if not spec.pods_outlive_status:
            checking.refuse(("spec", "podNames"), "only with podsOutliveStatus: true")
        if not spec.pod_names.startswith("status."):
            checking.refuse(
                ("spec", "podNames"), f"must begin with status., got {spec.pod_names!r}"
            )
    if spec.annotate is not None and spec.propagate is None:
        checking.refuse(
            ("spec", "annotate"), "only with propagate: nothing else has a template here"
        )
    names = [plan.name for plan in result.pod_sets if plan.each is None]
    if len(names) != len(set(names)) and not any(plan.when for plan in result.pod_sets):
        checking.refuse(("spec", "podSets"), "two pod sets have the same name; set `name`")
    if checking.problems:
        raise IntegrationError(document.metadata["name"], tuple(checking.problems))
    return result


def _pod_set(checking: _Checking, index: int, entry: PodSetSpec) -> PodSetPlan:
    here: Path = ("spec", "podSets", index)
    each = None if entry.for_each is None else tuple(entry.for_each.split("."))
    number = each is not None
    if each is None and entry.name_from is not None:
        checking.refuse((*here, "nameFrom"), "only with forEach; write name")
    if each is not None and entry.name is not None:
        checking.refuse((*here, "name"), "with forEach all would have it; write nameFrom")
    _check_sources(checking, here, entry)
    template, in_item = _place(checking, (*here, "template"), entry.template, each=each)
    count_field, count_in_item = _place(
        checking, (*here, "countField"), entry.count_field, each=each
    )
    placement, placement_in_item = _place(
        checking, (*here, "placement"), entry.placement, each=each
    )
    equal = entry.equal_count
    equal_count, equal_count_in_item = _place(
        checking, (*here, "equalCount", "field"), None if equal is None else equal.field, each=each
    )

    def amounts(field: str, given: dict[str, str] | None) -> tuple[tuple[str, Slot], ...]:
        slots = (
            (name, checking.slot((*here, field, name), text, _AMOUNT, each=number))
            for name, text in (given or {}).items()
        )
        return tuple((name, slot) for name, slot in slots if slot is not None)

    return PodSetPlan(
        index=index,
        each=each,
        name=entry.name or "main",
        name_from=checking.slot((*here, "nameFrom"), entry.name_from, _TEXT, each=number),
        template=template,
        in_item=in_item,
        count=checking.slot((*here, "count"), entry.count, _INT, each=number),
        count_field=count_field,
        count_in_item=count_in_item,
        min_count=checking.slot((*here, "minCount"), entry.min_count, _INT_OR_NONE, each=number),
        reclaimable=checking.slot(
            (*here, "reclaimable"), entry.reclaimable, _INT_OR_NONE, each=number
        ),
        running=checking.slot((*here, "running"), entry.running, _INT_OR_NONE, each=number),
        ending=checking.slot((*here, "ending"), entry.ending, _INT_OR_NONE, each=number),
        requests=amounts("requests", entry.requests),
        annotations=entry.requests_from_annotations or "",
        order=tuple(entry.order or ()),
        when=checking.slot((*here, "when"), entry.when, BOOL, each=number),
        template_from=checking.slot((*here, "templateFrom"), entry.template_from, ANYTHING),
        placement=placement,
        placement_in_item=placement_in_item,
        added=amounts("addedRequests", entry.added_requests),
        wrapped=_wrapped(checking, (*here, "wrapped"), entry, each),
        equal_count=equal_count,
        equal_count_in_item=equal_count_in_item,
        equal_count_when=checking.slot(
            (*here, "equalCount", "when"), None if equal is None else equal.when, BOOL
        ),
    )


def _wrapped(
    checking: _Checking, here: Path, entry: PodSetSpec, each: tuple[str, ...] | None
) -> WrappedPlan | None:
    given = entry.wrapped
    if given is None:
        return None
    if entry.name_from is None:
        checking.refuse(here, "write nameFrom: how the names of its pod sets begin")
    for name in entry.model_fields_set - {"for_each", "when", "name_from", "wrapped"}:
        checking.refuse((*here[:-1], name), "the wrapped object says it: leave it out")

    def within(field: Path, text: str | None) -> tuple[str, ...] | None:
        path, in_item = _place(checking, (*here, *field), text, each=each)
        if path is not None and not in_item:
            checking.refuse((*here, *field), "must begin with item.")
        return path

    declared = given.declared
    return WrappedPlan(
        object=within(("object",), given.object) or (),
        declared=None if declared is None else within(("declared", "list"), declared.list),
        path="" if declared is None else declared.path,
        replicas="" if declared is None else declared.replicas,
        placements=within(("placements",), given.placements),
    )


def _check_sources(checking: _Checking, here: Path, entry: PodSetSpec) -> None:
    """Refuse what says twice, or not at all, what the pods of an entry ask for."""
    requests = entry.requests or entry.requests_from_annotations
    templates = entry.template or entry.template_from
    if entry.template is not None and requests:
        checking.refuse((*here, "template"), "it says what is asked for: leave out requests")
    elif entry.template_from is not None and requests:
        checking.refuse((*here, "templateFrom"), "it says what is asked for: leave out requests")
    if not templates and not requests and entry.wrapped is None:
        checking.refuse(here, "says neither template nor requests: nothing would be asked for")
    if entry.template_from is not None and entry.for_each is not None:
        checking.refuse((*here, "templateFrom"), "not with forEach; write template")
    if entry.template_from is not None and entry.template is None and entry.placement is None:
        checking.refuse(here, "nothing says where nodes are chosen: write template or placement")
    if entry.added_requests and not templates:
        checking.refuse((*here, "addedRequests"), "adds to a template; write it into requests")
    if entry.equal_count is not None and entry.count_field is None:
        checking.refuse((*here, "equalCount"), "it follows countField: write that, too")
    if entry.order and entry.for_each is None:
        checking.refuse((*here, "order"), "only with forEach")


def _refusals(checking: _Checking, spec: IntegrationSpec) -> Iterator[RefusalRule]:
    for index, refusal in enumerate(spec.refuse or ()):
        when = checking.slot(("spec", "refuse", index, "when"), refusal.when, BOOL)
        if when is not None:
            yield RefusalRule(
                when=when, field=tuple(refusal.field.split(".")), message=refusal.message
            )


def _pod_groups(checking: _Checking, spec: IntegrationSpec) -> PodGroupsPlan | None:
    given, here = spec.pod_groups, ("spec", "podGroups")
    if given is None:
        return None
    if spec.propagate is None:
        checking.refuse(here, "its pods have to be labelled: write propagate, too")
    total = checking.slot((*here, "total"), given.total, _INT)
    has_pods = checking.slot((*here, "hasPods"), given.has_pods, BOOL)
    if total is None or has_pods is None:
        return None
    return PodGroupsPlan(
        total=total,
        has_pods=has_pods,
        early=checking.slot((*here, "early"), given.early, BOOL),
        leader=_place(checking, (*here, "leader"), given.leader, each=None)[0],
        each=given.each or "",
    )


def _place(
    checking: _Checking, path: Path, text: str | None, *, each: tuple[str, ...] | None
) -> tuple[tuple[str, ...] | None, bool]:
    if text is None:
        return None, False
    if text == OBJECT:
        if path[-1] != "template" or each is not None:
            checking.refuse(path, "object is a template only, and not with forEach")
        return (), False
    first, *rest = text.split(".")
    if first == "item":
        if each is None or not rest:
            checking.refuse(path, "`item.…` needs forEach")
        return tuple(rest), True
    if first != "spec":
        checking.refuse(path, f"must begin with spec., or with item. of forEach, got {text!r}")
    if each is not None:
        checking.refuse(path, "with forEach it must begin with item.")
    return (first, *rest), False


def _patches(checking: _Checking, spec: IntegrationSpec) -> dict[str, tuple[Operation, ...]]:
    patches: dict[str, tuple[Operation, ...]] = {}

    def add(name: str, path: Path, operations: Sequence[PatchOperation] | None) -> None:
        if operations is not None:
            patches[name] = tuple(
                _operation(checking, (*path, index), operation)
                for index, operation in enumerate(operations)
            )

    add("hold", ("spec", "hold"), spec.hold)
    add("release", ("spec", "release"), spec.release)
    add("carry", ("spec", "carry"), spec.carry)
    for place, operation in enumerate(spec.carry or ()):
        if operation.op == "test" or not operation.path.startswith("/spec/"):
            checking.refuse(("spec", "carry", place), "adds, replaces or removes below /spec/ only")
    if spec.stop is not None:
        add("end", ("spec", "stop", "end"), spec.stop.end)
        add("cancel", ("spec", "stop", "cancel"), spec.stop.cancel)
        add("stop", ("spec", "stop", "patch"), spec.stop.patch)
        if (spec.stop.how == "Patch") != bool(spec.stop.patch):
            checking.refuse(("spec", "stop"), "`how: Patch` and `patch` belong together")
    _check_gate(checking, spec)
    if (spec.hold is None) != (spec.release is None):
        checking.refuse(
            ("spec",), "hold and release belong together: what one does the other undoes"
        )
    if spec.suspend_field is not None and (spec.hold is not None or spec.held is not None):
        checking.refuse(("spec", "suspendField"), "it says how it is held: leave out hold and held")
    if spec.hold is not None and spec.held is None:
        checking.refuse(("spec", "hold"), "what it makes of an object must be seen: write held")
    return patches


def _check_gate(checking: _Checking, spec: IntegrationSpec) -> None:
    """Refuse what contradicts a gate."""
    how = "Hold" if spec.stop is None else spec.stop.how
    (first, *others) = spec.pod_sets
    if spec.group is not None and spec.gate is None:
        checking.refuse(("spec", "group"), "only objects with a gate wait for others: write gate")
    if spec.group is not None and (others or first.template != "object"):
        checking.refuse(
            ("spec", "podSets"), "an object of a group is one pod: write only `template: object`"
        )
    if spec.gate is None:
        return
    for name, given in (
        ("held", spec.held),
        ("hold", spec.hold),
        ("release", spec.release),
        ("suspendField", spec.suspend_field),
    ):
        if given is not None:
            checking.refuse(("spec", name), "the gate says how it is held: leave it out")
    if spec.stop is not None and how not in {"Delete", "Never"}:
        checking.refuse(("spec", "stop", "how"), "a gate cannot be put back: write Delete or Never")


def _operation(checking: _Checking, path: Path, operation: PatchOperation) -> Operation:
    given = "value" in operation.model_fields_set
    if operation.op == "remove" and (given or operation.value_from):
        checking.refuse(path, "remove takes no value")
    elif operation.op != "remove" and given == (operation.value_from is not None):
        checking.refuse(path, f"{operation.op} takes either value or valueFrom")
    is_bounded = any(part in BOUNDED for part in path)
    why = why_beyond(operation.path, operation.value) if is_bounded else None
    if why is not None and operation.op != "test":
        checking.refuse(path, f"{operation.path}: {why}")
    return Operation(
        op=operation.op,
        path=operation.path,
        value=operation.value,
        value_from=checking.slot(
            (*path, "valueFrom"), operation.value_from, SCALARS if is_bounded else ANYTHING
        ),
        when=checking.slot((*path, "when"), operation.when, BOOL),
    )
