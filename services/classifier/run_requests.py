"""What a PipelineRun asks for: valid when it is created, and the same while it waits (ADR 35). Pure.

tekton-kueue reads the annotations when it makes the Workload, and only logs what it cannot read: the run
stays Pending forever (konflux-ci/tekton-kueue internal/controller). Here the webhook refuses it.
"""

from collections.abc import Iterator
from typing import Final

import orjson

from services.classifier.refusal import RefusedError, WebhookRule, read_strings
from shared.contracts.kube import names
from shared.contracts.kube.bodies import annotations_of, labels_of
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import QuantityError, amount
from shared.integrations import Integration, queue_of

_Change = tuple[str, str | None, str | None]
"""Field, old and new value."""

_SHOWN_CHARS: Final = 60


def check_requests(before: Object, after: Object, integration: Integration) -> None:
    """Check the request annotations that an author set, and those that the rules made of them.

    `before` is the object as it came, `after` as it is stored. Raises `RefusedError`.
    """
    if not (integration.classify and integration.held(after)):
        return
    # What the author set must be valid too: less than nothing would be taken off what the rules add. A sum
    # past the end of 64 bits is less than nothing.
    for key, value in (
        *_requests_of(before).items(),
        *_recorded(before),
        *_requests_of(after).items(),
    ):
        _check(key, value)


def check_fixed(
    obj: Object,
    old: Object,
    integration: Integration,
    *,
    users: frozenset[str],
    exempt: frozenset[str],
) -> None:
    """Check a change of a run that waits: queue, priority class and requests stay as they are.

    The priority class stays while it runs, too: a run that was preempted waits again. A run without a queue
    may be given one. `users` are the names of the user and its groups; those in `exempt` may change all.
    Raises `RefusedError`.
    """
    if not (integration.classify and integration.matches(old)):
        return
    if not integration.held(old):
        if integration.finish(old) is None and not users & exempt:
            _check_changes(_priority_changes(obj, old), old, integration, "runs")
        return
    for key, value in _requests_of(obj).items():
        if annotations_of(old).get(key) != value:
            _check(key, value)
    if users & exempt:
        return
    _check_changes(_changes(obj, old), old, integration, "waits")


def _check_changes(
    changes: Iterator[_Change], old: Object, integration: Integration, doing: str
) -> None:
    for field, was, becomes in changes:
        raise RefusedError(
            WebhookRule.FIXED,
            of=_where(old, integration),
            field=field,
            was=_shown(was),
            becomes=_shown(becomes),
            doing=doing,
        )


def _priority_changes(obj: Object, old: Object) -> Iterator[_Change]:
    was, becomes = (labels_of(each).get(names.PRIORITY_CLASS_LABEL) for each in (old, obj))
    if was != becomes:
        yield f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]", was, becomes


def _changes(obj: Object, old: Object) -> Iterator[_Change]:
    """Yield each change of what a run asks for."""
    if (queue := queue_of(old)) and queue != queue_of(obj):
        yield f"metadata.labels[{names.QUEUE}]", queue, labels_of(obj).get(names.QUEUE)
    yield from _priority_changes(obj, old)
    old_requests, requests = _requests_of(old), _requests_of(obj)
    for key in sorted(old_requests.keys() | requests.keys()):
        if old_requests.get(key) != requests.get(key):
            yield f"metadata.annotations[{key}]", old_requests.get(key), requests.get(key)


def _requests_of(obj: Object) -> dict[str, str]:
    annotations = read_strings(obj.get("metadata") or {}, "annotations")
    return {
        key: value for key, value in annotations.items() if key.startswith(names.REQUESTS_PREFIX)
    }


def _check(key: str, value: str) -> None:
    """Raise `RefusedError` unless quota can count the value of this annotation."""
    field, resource = f"metadata.annotations[{key}]", key.removeprefix(names.REQUESTS_PREFIX)
    if not resource:
        problem = "must name a resource behind the dash"
        raise RefusedError(WebhookRule.REQUEST, field=field, problem=problem)
    try:
        amount(resource, value)
    except QuantityError as error:
        raise RefusedError(WebhookRule.REQUEST, field=field, problem=error) from error


def _recorded(obj: Object) -> Iterator[tuple[str, str]]:
    """Yield the requests that an author's record says were there before rules added to them.

    Our own record of an earlier call is of that form too; whoever forges one asks for no less than nothing.
    """
    text = annotations_of(obj).get(names.REQUESTS_APPLIED)
    for resource, pair in _read_record(text).items():
        if isinstance(pair, list) and pair and isinstance(pair[0], str):
            yield names.REQUESTS_PREFIX + resource, pair[0]


def _read_record(text: str | None) -> dict[str, object]:
    try:
        record = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def _where(obj: Object, integration: Integration) -> str:
    metadata = obj.get("metadata") or {}
    kind = integration.kind.kind
    return f"{kind} {metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else repr(value[:_SHOWN_CHARS])
