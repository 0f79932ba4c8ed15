"""Kueue's rules for the labels and annotations of `batch/v1` Jobs."""

from collections.abc import Iterator
from typing import Final

from services.classifier.validation.labels import (
    FALSE,
    TRUE,
    annotation,
    annotation_field,
    fixed_labels,
    labels,
    topology,
)
from services.classifier.validation.problems import IMMUTABLE, Problem, forbidden, invalid
from services.classifier.validation.reading import at, mapping, number
from services.classifier.validation.workloads import is_elastic
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import ELASTIC_JOB, EQUAL_COMPLETIONS, MIN_PARALLELISM
from shared.contracts.kube.numbers import INTEGER

_PODS: Final = ("spec", "template", "metadata")


def job(obj: Object) -> Iterator[Problem]:
    """Check a Job by itself."""
    yield from labels(obj)
    yield from _equal_completions(obj)
    yield from topology(".".join(_PODS), mapping(obj, *_PODS, "annotations"), _pods(obj))


def job_created(obj: Object) -> Iterator[Problem]:
    """Check what the admission of a Job may change later: it may start with fewer pods."""
    yield from _partial_admission(obj)


def job_update(obj: Object, old: Object) -> Iterator[Problem]:
    """Check a change: a running job holds quota of its queue, so most fields are immutable."""
    runs, ran_before = not _suspended(obj), not _suspended(old)
    yield from fixed_labels(obj, old, runs=runs, ran_before=ran_before)
    if is_elastic(obj) != is_elastic(old):
        yield invalid(annotation_field(ELASTIC_JOB), is_elastic(obj), IMMUTABLE)
    if annotation(old, MIN_PARALLELISM) is not None and ran_before and _pods(obj) != _pods(old):
        yield forbidden(
            "spec.parallelism",
            "cannot change when partial admission is enabled and the job is not suspended",
        )
    if annotation(obj, MIN_PARALLELISM) != annotation(old, MIN_PARALLELISM):
        yield from _partial_admission(obj)
    before, now = annotation(old, EQUAL_COMPLETIONS), annotation(obj, EQUAL_COMPLETIONS)
    if runs and ran_before and (before in TRUE) != (now in TRUE):
        yield forbidden(
            annotation_field(EQUAL_COMPLETIONS), f"{IMMUTABLE} while the job is not suspended"
        )


def _partial_admission(obj: Object) -> Iterator[Problem]:
    minimum = annotation(obj, MIN_PARALLELISM)
    if minimum is None:
        return
    field = annotation_field(MIN_PARALLELISM)
    if not INTEGER.fullmatch(minimum):
        yield invalid(field, minimum, "must be an integer")
    elif not 0 < int(minimum) < _pods(obj):
        yield invalid(field, int(minimum), f"should be between 0 and {_pods(obj) - 1}")
    if is_elastic(obj):
        yield invalid(field, minimum, "partial admission and elastic job cannot be used together")


def _equal_completions(obj: Object) -> Iterator[Problem]:
    given = annotation(obj, EQUAL_COMPLETIONS)
    if given is None:
        return
    field = annotation_field(EQUAL_COMPLETIONS)
    if given not in TRUE | FALSE:
        yield invalid(field, given, "must be true or false")
    if given not in TRUE:
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


def _suspended(obj: Object) -> bool:
    return at(obj, "spec", "suspend") is True


def _number(obj: Object, field: str, otherwise: int) -> int:
    return number(mapping(obj, "spec"), field, otherwise)


def _pods(obj: Object) -> int:
    """Return how many pods run at a time: at most the number of completions."""
    parallelism = _number(obj, "parallelism", 1)
    return min(parallelism, _number(obj, "completions", parallelism))
