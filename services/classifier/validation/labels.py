"""Kueue's rules for labels, and for annotations of pods that ask for a topology, of whatever can wait.

That is a Job, an object of another kind, or what makes pods. The rules are those of
kubernetes-sigs/kueue@ff69552 pkg/controller/jobframework/validation.go and tas_validation.go, and
pkg/util/webhook/validation_admissiongatedby.go.
"""

from collections.abc import Iterator
from typing import Final

from services.classifier.validation.names import LABEL_MAX, label_key, subdomain
from services.classifier.validation.problems import IMMUTABLE, Problem, forbidden, invalid, missing
from services.classifier.validation.reading import at
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import (
    GATED_BY,
    MAX_EXECUTION,
    POD_SET_SLICE_SIZE,
    POD_SET_SLICE_TOPOLOGY,
    POD_SET_TOPOLOGIES,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL,
    QUEUE,
)
from shared.contracts.kube.numbers import INT32_MAX, INTEGER

TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})
"""What Go reads as true and as false."""


def labels(obj: Object) -> Iterator[Problem]:
    """Check the labels of an object by itself, and the annotations that name something."""
    for name in (QUEUE, PREBUILT_WORKLOAD):
        value = label(obj, name)
        if value is not None:
            yield from subdomain(field_of(name), value)
    if named := annotation(obj, PREBUILT_WORKLOAD):
        yield from subdomain(annotation_field(PREBUILT_WORKLOAD), named)
    yield from _gates(obj)
    limit = label(obj, MAX_EXECUTION)
    if limit is not None:
        yield from _positive(field_of(MAX_EXECUTION), limit)


def changed_labels(obj: Object, old: Object, *, runs: bool, ran_before: bool) -> Iterator[Problem]:
    """Check a change: what runs holds quota of its queue, so its labels stay.

    A problem that the object had before is no reason to refuse, nor is anything of one that is being deleted.
    """
    if at(obj, "metadata", "deletionTimestamp"):
        return
    before = set(map(str, labels(old)))
    yield from (problem for problem in labels(obj) if str(problem) not in before)
    yield from fixed_labels(obj, old, runs=runs, ran_before=ran_before)


def fixed_labels(obj: Object, old: Object, *, runs: bool, ran_before: bool) -> Iterator[Problem]:
    """Yield the labels that a change may not change."""
    for name, fixed in (
        (QUEUE, runs),
        (MAX_EXECUTION, runs or ran_before),
    ):
        now = label(obj, name) or ""
        if fixed and now != (label(old, name) or ""):
            yield invalid(field_of(name), now, IMMUTABLE)
    if runs and (named := _prebuilt(obj)) != _prebuilt(old):
        yield invalid(field_of(PREBUILT_WORKLOAD), named, IMMUTABLE)
    yield from _priority(obj, old, runs=runs)
    yield from _gates_changed(_gates_of(obj), _gates_of(old))


def _prebuilt(obj: Object) -> str:
    """The Workload that an object names."""
    return annotation(obj, PREBUILT_WORKLOAD) or label(obj, PREBUILT_WORKLOAD) or ""


def _gates_of(obj: Object) -> list[str]:
    given = (annotation(obj, GATED_BY) or "").strip()
    return [gate.strip() for gate in given.split(",")] if given else []


def _gates(obj: Object) -> Iterator[Problem]:
    given, field = annotation(obj, GATED_BY), annotation_field(GATED_BY)
    gates = _gates_of(obj)
    for place, gate in enumerate(gates):
        host, _, path = gate.partition("/")
        if not gate:
            yield invalid(field, given, "cannot contain empty gate names")
        elif gate in gates[:place]:
            yield invalid(field, given, f"duplicate gate name: {gate}")
        elif len(gate) > LABEL_MAX:
            yield invalid(
                field, given, f"a gate's name must be no more than {LABEL_MAX} characters"
            )
        elif not path or any(subdomain(field, host)):
            yield invalid(
                field, given, f"{gate}: must be a domain-prefixed path (such as acme.io/foo)"
            )


def _gates_changed(gates: list[str], before: list[str]) -> Iterator[Problem]:
    """Gates are given at creation and taken away one by one: what waits in a queue is not taken out of it."""
    field = annotation_field(GATED_BY)
    if gates and not before:
        yield forbidden(field, "cannot add admission gate after creation")
    elif not set(before).issuperset(gates):
        yield forbidden(field, "can only remove gates, not add new ones")


def _priority(obj: Object, old: Object, *, runs: bool) -> Iterator[Problem]:
    field = field_of(PRIORITY_CLASS_LABEL)
    before, now = (label(each, PRIORITY_CLASS_LABEL) or "" for each in (old, obj))
    if now and not before and runs:
        yield invalid(
            field, now, "WorkloadPriorityClass cannot be added to a non-suspended workload"
        )
    if before and not now:
        yield invalid(field, now, "WorkloadPriorityClass cannot be removed from a workload")


def _positive(field: str, value: str) -> Iterator[Problem]:
    """Check a number of 32 bits above zero."""
    if not INTEGER.fullmatch(value):
        yield invalid(field, value, "must be an integer")
    elif int(value) <= 0:
        yield invalid(field, int(value), "should be greater than 0")
    elif int(value) > INT32_MAX:
        yield invalid(field, int(value), f"should be less than or equal to {INT32_MAX}")


def topology(metadata: str, given: Object, pods: int | None) -> Iterator[Problem]:
    """Check the annotations `given` of a pod template; `metadata` is the path of what has them.

    `pods`: how many pods the template makes; None if that does not limit the size of a slice.
    """
    field = f"{metadata}.annotations"
    wanted = [name for name in POD_SET_TOPOLOGIES if name in given]
    if len(wanted) > 1:
        yield invalid(
            field, wanted, f"must not contain more than one topology annotation: {wanted}"
        )
    for name in wanted:
        if not name.endswith("unconstrained-topology"):
            yield from label_key(f"{field}[{name}]", str(given[name]))
        elif str(given[name]) not in TRUE | FALSE:
            yield invalid(f"{field}[{name}]", given[name], "must be a boolean value")
    yield from _slices(field, given, pods)


def _slices(annotations: str, given: Object, pods: int | None) -> Iterator[Problem]:
    size, of = given.get(POD_SET_SLICE_SIZE), given.get(POD_SET_SLICE_TOPOLOGY)
    field = f"{annotations}[{POD_SET_SLICE_SIZE}]"
    if of is not None:
        yield from label_key(f"{annotations}[{POD_SET_SLICE_TOPOLOGY}]", str(of))
        if size is None:
            yield missing(field, f"must be set when '{POD_SET_SLICE_TOPOLOGY}' is specified")
    elif size is not None:
        yield forbidden(field, f"may not be set when '{POD_SET_SLICE_TOPOLOGY}' is not specified")
    if size is None:
        return
    if not INTEGER.fullmatch(str(size)) or abs(int(size)) > INT32_MAX:
        yield invalid(field, size, "must be a numeric value")
    elif int(size) < 1:
        yield invalid(field, size, "must be greater than or equal to 1")
    elif pods is not None and int(size) > pods:
        yield invalid(field, size, f"must not be greater than pod set count {pods}")


def label(obj: Object, name: str) -> str | None:
    """Return the value of a label; None if it is absent."""
    value = at(obj, "metadata", "labels", name)
    return None if value is None else str(value)


def annotation(obj: Object, name: str) -> str | None:
    """Return the value of an annotation; None if it is absent."""
    value = at(obj, "metadata", "annotations", name)
    return None if value is None else str(value)


def annotation_field(name: str) -> str:
    """Return the path of an annotation."""
    return f"metadata.annotations[{name}]"


def field_of(name: str) -> str:
    """Return the path of a label."""
    return f"metadata.labels[{name}]"
