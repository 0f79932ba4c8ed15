"""Kueue's rules for the labels and annotations of `batch/v1` Jobs."""

from collections.abc import Iterator
from typing import Final

from services.classifier.validation.labels import INTEGER, fixed_labels, labels, positive
from services.classifier.validation.names import label_key
from services.classifier.validation.problems import (
    IMMUTABLE,
    Problem,
    forbidden,
    invalid,
    missing,
)
from services.classifier.validation.reading import at, mapping, number
from services.classifier.validation.workloads import is_elastic
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import (
    ELASTIC_JOB,
    EQUAL_COMPLETIONS,
    MIN_PARALLELISM,
    POD_SET_SLICE_SIZE,
    POD_SET_SLICE_TOPOLOGY,
    POD_SET_TOPOLOGIES,
)

_PODS: Final = "spec.template.metadata.annotations"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def job(obj: Object) -> Iterator[Problem]:
    """Check a Job by itself."""
    yield from labels(obj)
    yield from _equal_completions(obj)
    yield from _topology(obj)


def job_created(obj: Object) -> Iterator[Problem]:
    """Check what the admission of a Job may change later: it may start with fewer pods."""
    yield from _partial_admission(obj)


def job_update(obj: Object, old: Object) -> Iterator[Problem]:
    """Check a change: a running job holds quota of its queue, so most fields are immutable."""
    runs, ran_before = not _suspended(obj), not _suspended(old)
    yield from fixed_labels(obj, old, runs=runs, ran_before=ran_before)
    if is_elastic(obj) != is_elastic(old):
        yield invalid(_annotation_field(ELASTIC_JOB), is_elastic(obj), IMMUTABLE)
    if _annotation(old, MIN_PARALLELISM) is not None and ran_before and _pods(obj) != _pods(old):
        yield forbidden(
            "spec.parallelism",
            "cannot change when partial admission is enabled and the job is not suspended",
        )
    if _annotation(obj, MIN_PARALLELISM) != _annotation(old, MIN_PARALLELISM):
        yield from _partial_admission(obj)
    before, now = _annotation(old, EQUAL_COMPLETIONS), _annotation(obj, EQUAL_COMPLETIONS)
    if runs and ran_before and (before in _TRUE) != (now in _TRUE):
        yield forbidden(
            _annotation_field(EQUAL_COMPLETIONS), f"{IMMUTABLE} while the job is not suspended"
        )


def _partial_admission(obj: Object) -> Iterator[Problem]:
    minimum = _annotation(obj, MIN_PARALLELISM)
    if minimum is None:
        return
    field = _annotation_field(MIN_PARALLELISM)
    if not INTEGER.fullmatch(minimum):
        yield invalid(field, minimum, "must be an integer")
    elif not 0 < int(minimum) < _pods(obj):
        yield invalid(field, int(minimum), f"should be between 0 and {_pods(obj) - 1}")
    if is_elastic(obj):
        yield invalid(field, minimum, "partial admission and elastic job cannot be used together")


def _equal_completions(obj: Object) -> Iterator[Problem]:
    given = _annotation(obj, EQUAL_COMPLETIONS)
    if given is None:
        return
    field = _annotation_field(EQUAL_COMPLETIONS)
    if given not in _TRUE | _FALSE:
        yield invalid(field, given, "must be true or false")
    if given not in _TRUE:
        return
    if at(obj, "spec", "completionMode") in {None, "NonIndexed"}:
        yield invalid(field, given, "should not be enabled for NonIndexed jobs")
    completions, parallelism = (_number(obj, part, 1) for part in ("completions", "parallelism"))
    if completions != parallelism:
        yield invalid(
            "spec.completions",
            completions,
            f"should be equal to parallelism when {EQUAL_COMPLETIONS} annotation is true",
        )


def _topology(obj: Object) -> Iterator[Problem]:
    given = mapping(obj, "spec", "template", "metadata", "annotations")
    wanted = [name for name in POD_SET_TOPOLOGIES if name in given]
    if len(wanted) > 1:
        yield invalid(
            _PODS, wanted, f"must not contain more than one topology annotation: {wanted}"
        )
    for name in wanted[:1]:
        field = f"{_PODS}[{name}]"
        if name.endswith("unconstrained-topology"):
            if given[name] not in _TRUE | _FALSE:
                yield invalid(field, given[name], "must be true or false")
        else:
            yield from label_key(field, str(given[name]))
    yield from _topology_slices(obj, given)


def _topology_slices(obj: Object, given: Object) -> Iterator[Problem]:
    size, topology = given.get(POD_SET_SLICE_SIZE), given.get(POD_SET_SLICE_TOPOLOGY)
    field = f"{_PODS}[{POD_SET_SLICE_SIZE}]"
    if topology is not None:
        yield from label_key(f"{_PODS}[{POD_SET_SLICE_TOPOLOGY}]", str(topology))
        if size is None:
            yield missing(field, f"must be set when {POD_SET_SLICE_TOPOLOGY} is specified")
    elif size is not None:
        yield forbidden(field, f"may not be set when {POD_SET_SLICE_TOPOLOGY} is not specified")
    if size is not None:
        yield from positive(field, str(size))
        if INTEGER.fullmatch(str(size)) and int(size) > _pods(obj):
            yield invalid(field, int(size), f"must not be greater than pod set count {_pods(obj)}")


def _suspended(obj: Object) -> bool:
    return at(obj, "spec", "suspend") is True


def _number(obj: Object, field: str, otherwise: int) -> int:
    return number(mapping(obj, "spec"), field, otherwise)


def _pods(obj: Object) -> int:
    """Return how many pods run at a time: at most the number of completions."""
    parallelism = _number(obj, "parallelism", 1)
    return min(parallelism, _number(obj, "completions", parallelism))


def _annotation(obj: Object, name: str) -> str | None:
    value = at(obj, "metadata", "annotations", name)
    return None if value is None else str(value)


def _annotation_field(name: str) -> str:
    return f"metadata.annotations[{name}]"
