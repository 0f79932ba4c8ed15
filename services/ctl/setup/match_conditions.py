"""Match conditions of the webhooks: the changes about which an API server asks the classifier.

A write that no condition selects is stored without asking, also while the webhook is down: finalizers,
labels and annotations of other controllers, and every status. Texts are evaluated by the API server
(https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions).
"""

from typing import Final

from shared.contracts.coscheduling import PLACEHOLDER_PER_CLAIM, PLACEHOLDERS_ANNOTATION
from shared.contracts.kube.kinds import KUEUE_GROUP
from shared.contracts.kube.names import (
    GATED_BY,
    MAX_EXECUTION,
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL,
    QUEUE,
    REQUESTS_PREFIX,
    USER_PENDING,
)
from shared.contracts.webhook import FIELD_MANAGER, PATCHER_USER

_OURS: Final = f"{KUEUE_GROUP}/"
"""Prefix of the labels and annotations that Kueue's rules are about."""

_NEW: Final = "object"
_OLD: Final = "oldObject"


_SPEC: Final = {"suspend": "false", "status": "''", "template": "{}", "replicatedJobs": "[]"}
"""Fields of the spec, each with what an absent one means: of its own type, to be comparable."""


def _spec(of: str, field: str) -> str:
    return f"(has({of}.spec) && has({of}.spec.{field}) ? {of}.spec.{field} : {_SPEC[field]})"


def _value(of: str, field: str, key: str) -> str:
    """The value of a label or annotation; '-', which no label can have, if it is absent."""
    values = f"{of}.metadata.{field}"
    return f"(has({values}) && '{key}' in {values} ? {values}['{key}'] : '-')"


def _changes(field: str, key: str) -> str:
    return f"{_value(_NEW, field, key)} != {_value(_OLD, field, key)}"


_RULED: Final = (
    ("labels", QUEUE),
    ("labels", PRIORITY_CLASS_LABEL),
    ("labels", MAX_EXECUTION),
    ("labels", PREBUILT_WORKLOAD),
    ("annotations", PREBUILT_WORKLOAD),
    ("annotations", GATED_BY),
)
"""What every kind that waits may not change at will."""


def _metadata(of: str, field: str, otherwise: str) -> str:
    return f"(has({of}.metadata.{field}) ? {of}.metadata.{field} : {otherwise})"


def _changed_keys(field: str, prefix: str) -> str:
    """Whether labels or annotations with this prefix differ. Cheap if the whole map is the same."""
    new, old = (_metadata(of, field, "{}") for of in (_NEW, _OLD))
    ours = f"k.startsWith('{prefix}')"
    return (
        f"({new} != {old} && ({new}.exists(k, {ours} && !(k in {old} && {old}[k] == {new}[k])) "
        f"|| {old}.exists(k, {ours} && !(k in {new}))))"
    )


def _any(*parts: str) -> str:
    return " || ".join(parts)


_MARK_ENDS: Final = (
    f"({_value(_OLD, 'annotations', USER_PENDING)} == 'false' && "
    f"{_value(_NEW, 'annotations', USER_PENDING)} != 'false')"
)
"""The mark of our hold is taken off, or becomes that of an own pause."""

COSCHEDULED_BY_CLAIM: Final = {
    "name": "coscheduled-by-claim",
    "expression": (
        f"'annotations' in object.metadata && '{PLACEHOLDERS_ANNOTATION}' in object.metadata.annotations "
        f"&& object.metadata.annotations['{PLACEHOLDERS_ANNOTATION}'] == '{PLACEHOLDER_PER_CLAIM}'"
    ),
}
"""Of all TaskRuns, only those with a placeholder for their claim are sent to the webhook."""

NOT_OUR_OWN: Final = {
    "name": "not-our-own",
    "expression": f"request.userInfo.username != '{PATCHER_USER}'",
}
"""The patcher's writes carry out decisions: the webhook need not review them."""

NOT_OUR_STATUS: Final = {
    "name": "not-our-own",
    "expression": (
        "!has(request.options) || !has(request.options.fieldManager) "
        f"|| request.options.fieldManager != '{FIELD_MANAGER}'"
    ),
}
"""As `NOT_OUR_OWN`, where all clients have one user name (`sluice dev`). Only for statuses, which no
command of ours writes."""

CHANGES_ADMISSION: Final = {
    "name": "changes-admission",
    "expression": _any(
        *(f"{_spec(_NEW, field)} != {_spec(_OLD, field)}" for field in _SPEC),
        *(_changes(field, key) for field, key in _RULED),
        f"{_metadata(_NEW, 'ownerReferences', '[]')} != {_metadata(_OLD, 'ownerReferences', '[]')}",
        _changed_keys("annotations", REQUESTS_PREFIX),
        _MARK_ENDS,
    ),
}
"""Of all changes of jobs, only those of what decides about admission: whether it waits, its queue, priority,
time and gates, what it requests, its controller, and the end of our mark."""

CHANGES_SPEC: Final = {
    "name": "changes-spec-or-queue",
    "expression": _any(
        "object.spec != oldObject.spec",
        *(_changes(field, key) for field, key in _RULED),
        f"{_metadata(_NEW, 'ownerReferences', '[]')} != {_metadata(_OLD, 'ownerReferences', '[]')}",
        _MARK_ENDS,
    ),
}
"""Of all changes of kinds that only an Integration describes: where it holds them is not known here."""

_GATES: Final = "(has({0}.spec.schedulingGates) ? {0}.spec.schedulingGates : [])"

CHANGES_GATE: Final = {
    "name": "changes-gate-or-marks",
    "expression": _any(
        f"{_GATES.format(_NEW)} != {_GATES.format(_OLD)}",
        f"{_metadata(_NEW, 'labels', '{}')} != {_metadata(_OLD, 'labels', '{}')}",
        f"{_metadata(_NEW, 'ownerReferences', '[]')} != {_metadata(_OLD, 'ownerReferences', '[]')}",
        _changed_keys("annotations", _OURS),
    ),
}
"""Of all changes of pods that wait or run by their label: what decides about that, what they say of their
group, and no scheduler's."""

CHANGES_TEMPLATE: Final = {
    "name": "changes-template-or-labels",
    "expression": _any(
        "request.operation != 'UPDATE'",
        "object.spec != oldObject.spec",
        f"{_metadata(_NEW, 'labels', '{}')} != {_metadata(_OLD, 'labels', '{}')}",
    ),
}
"""Of all changes of what makes pods, those after which the pods may be others."""

CHANGES_RULES: Final = {
    "name": "changes-what-rules-read",
    "expression": _any(
        "request.operation != 'UPDATE'",
        "object.spec != oldObject.spec",
        _changed_keys("labels", _OURS),
        _changed_keys("annotations", _OURS),
    ),
}
"""Of all changes of Jobs, only those that validation has rules about."""
