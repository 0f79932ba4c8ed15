"""Refuses a new object, and reads untrusted fields strictly: a wrong type is a refusal."""

from collections.abc import Mapping
from typing import Any, Final, Self

from shared.contracts.reasons import RefusalRule

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
TOO_LARGE: Final = 413
TIMEOUT: Final = 408
UNSUPPORTED: Final = 415
TOO_MANY: Final = 429
INTERNAL_ERROR: Final = 500
UNAVAILABLE: Final = 503

_CORRECT: Final = "Correct the field that the text names."
_SMALLER: Final = (
    "Make the object smaller, or split it; an operator may raise the setting that the text names."
)
_LATER: Final = "Try again later, or create fewer objects at a time."
_WAIT: Final = "`sluice explain` says what it waits for. Sluicegate starts it when there is quota."


class WebhookRule(RefusalRule):
    """An object that is created or changed."""

    MALFORMED = (BAD_REQUEST, "malformed", "{field}: must be {wanted}, got {given}", _CORRECT)
    NO_OBJECT = (
        BAD_REQUEST,
        "malformed",
        "request.object: must be an object",
        "Send the review as an API server does.",
    )
    OTHER_KIND = (
        BAD_REQUEST,
        "malformed",
        "expected a {wanted} object but got {given!r}",
        "Correct the webhook's path.",
    )
    TOO_DEEP = (BAD_REQUEST, "levels", "object: nested too deeply", _SMALLER)
    VERSION = (
        BAD_REQUEST,
        "version",
        (
            "apiVersion: a {kind} must come as {wanted}, got {given!r} (the webhook's matchPolicy must be "
            "Equivalent)"
        ),
        "Set `matchPolicy: Equivalent` in the webhook's configuration, or use that version.",
    )
    CONVERSION = (BAD_REQUEST, "conversion", "{problem}", "Use another version of the kind.")
    CONVERSION_CUT_OFF = (
        TOO_LARGE,
        "conversion",
        "the list needs too much CPU or memory: ask for it in pages (`kubectl get --chunk-size`)",
        "Ask for the list in pages, or in the version in which it is stored.",
    )
    INVALID_RUN = (
        BAD_REQUEST,
        "invalid",
        "{problem}",
        "Correct the run: Tekton would refuse it, too.",
    )
    COSCHEDULING = (BAD_REQUEST, "coscheduling", "{problem}", "Correct the annotation.")
    REQUEST = (
        BAD_REQUEST,
        "invalid-request",
        "{field}: {problem}",
        "Set a quantity that can be counted.",
    )
    RULES_OF_KIND = (
        FORBIDDEN,
        "rules-of-kind",
        '{kind}.{group} "{name}" is invalid: {problems}',
        "Correct the fields that the text names: [fields of Kueue](kueue-fields.md).",
    )
    NOT_COUNTABLE = (
        FORBIDDEN,
        "not-countable",
        "{of}: {problem}",
        "Do as the text says, or take the queue label off: [below](#objects-of-a-kind).",
    )
    NOT_ADMITTED = (
        FORBIDDEN,
        "not-admitted",
        (
            "{of}: {field}: may not be changed to start it: {waits} and is not admitted. Sluicegate "
            "starts it when "
            "there is quota; `sluice explain` says what it waits for"
        ),
        _WAIT,
    )
    COUNTED_BY_LABEL = (
        FORBIDDEN,
        "not-admitted",
        (
            '{of}: metadata.labels[{label}]: must stay "true" until it has ended: its quota is '
            "counted by that "
            "label. Delete it instead"
        ),
        "Delete the object, or leave the label.",
    )
    GROUPED_BY_LABEL = (
        FORBIDDEN,
        "not-admitted",
        "{of}: metadata.labels[{label}]: must stay {given!r}: its group is counted by that label",
        "Delete the object and make another one, or leave the label.",
    )
    GROUP_STAYS = (
        FORBIDDEN,
        "not-admitted",
        "{of}: metadata.annotations[{annotation}]: must stay {given!r}: its group is counted by it",
        "Delete the object and make another one, or leave the annotation.",
    )
    COUNTED_BY_ITSELF = (
        FORBIDDEN,
        "not-admitted",
        (
            "{of}: metadata.ownerReferences: {controller} may not become its controller: "
            "its quota is its own, and that controller's is for other pods"
        ),
        "Delete the object and let its controller make another one, or leave the reference out.",
    )
    FIXED = (
        FORBIDDEN,
        "fixed-while-waiting",
        (
            "{of}: {field}: may not be changed from {was} to {becomes} while it {doing}: delete the "
            "run and create "
            "it anew, or ask somebody whom SLUICE_REQUEST_EDITORS names"
        ),
        "Delete the run and create it anew.",
    )
    BYTES = (TOO_LARGE, "bytes", "body: larger than {most} bytes", _SMALLER)
    TOKENS = (
        TOO_LARGE,
        "values",
        (
            "the review has {count} commas and brackets, at most {most} are allowed: make the "
            "object smaller, or "
            "raise SLUICE_WEBHOOK_VALUES (now {now})"
        ),
        _SMALLER,
    )
    VALUES = (
        TOO_LARGE,
        "values",
        (
            "the object has {count} values, at most {most} are allowed: split it into several, or "
            "ask an operator "
            "to raise {setting}"
        ),
        _SMALLER,
    )
    LEVELS = (
        TOO_LARGE,
        "levels",
        "{path}: nested {count} levels deep, at most {most} are allowed",
        _SMALLER,
    )
    ITEMS = (
        TOO_LARGE,
        "items",
        (
            "{path}: {count} items, at most {most} are allowed in an object that is classified: "
            "split it into "
            "several, or ask an operator to raise SLUICE_WEBHOOK_ITEMS"
        ),
        _SMALLER,
    )
    MUTATIONS = (
        TOO_LARGE,
        "mutations",
        (
            "cel.expressions: {count} labels, annotations and requests for one object, at most "
            "{most} are allowed: "
            "split it into several"
        ),
        _SMALLER,
    )
    CPU = (
        TOO_LARGE,
        "cpu",
        (
            "the object needs more than {most:g} s of CPU: make it smaller, or ask an operator to simplify "
            "cel.expressions or to raise SLUICE_WEBHOOK_CPU_SECONDS"
        ),
        _SMALLER,
    )
    MEMORY = (
        TOO_LARGE,
        "memory",
        (
            "the object needs more than {most} bytes of memory: make it smaller, or ask an operator "
            "to simplify "
            "cel.expressions or to raise SLUICE_WEBHOOK_MEMORY_BYTES"
        ),
        _SMALLER,
    )
    BUSY = (
        TOO_MANY,
        "busy",
        (
            "namespace {namespace!r}: {count} reviews with {size} bytes wait already, at most {most} with "
            "{bytes_most} bytes may: create fewer objects at a time, or try again later"
        ),
        _LATER,
    )
    NO_PROCESS = (
        TOO_MANY,
        "busy",
        "the process that answers such a review failed: {problem}: try again later",
        "Try again later. The classifier's log says why; it may have too little memory or too few processes.",
    )
    LATE = (TOO_MANY, "busy", "not evaluated within {seconds:g} s: try again later", _LATER)
    IN_FLIGHT = (
        UNAVAILABLE,
        "bytes in flight",
        (
            "reviews with {size} bytes are not answered yet, at most {most} are allowed "
            "(SLUICE_WEBHOOK_BYTES_IN_FLIGHT): try again later"
        ),
        _LATER,
    )
    GAVE_WAY = (
        UNAVAILABLE,
        "bytes in flight",
        (
            "the body gave way to others, because all reviews together may have {most} bytes "
            "(SLUICE_WEBHOOK_BYTES_IN_FLIGHT): send it faster"
        ),
        _LATER,
    )
    BODY_DEADLINE = (
        TIMEOUT,
        "body deadline",
        "the body did not arrive within {seconds:g} s (SLUICE_WEBHOOK_BODY_SECONDS)",
        _LATER,
    )
    ENCODING = (
        UNSUPPORTED,
        "encoding",
        "content-encoding: {given!r}: send the review uncompressed",
        "Send it uncompressed, as an API server does.",
    )
    EXPRESSION = (
        INTERNAL_ERROR,
        "expression",
        "CEL evaluation failed: {problem}",
        "An operator corrects `cel.expressions`; `sluice mutate` tries them on an object.",
    )
    UNREADABLE = (
        INTERNAL_ERROR,
        "unreadable",
        "{of}: cannot be read: {problem}",
        (
            "Correct the object. If it is as the definition of its kind wants it, report the error of the "
            "classifier's log: it is a mistake of ours."
        ),
    )
    HOLD = (
        INTERNAL_ERROR,
        "hold",
        "{problem}",
        "An operator corrects the Integration of that kind.",
    )

    def __init__(self, code: int, label: str, text: str, remedy: str) -> None:
        """`code`: HTTP status of the refusal."""
        super().__init__(label, text, remedy)
        self.code = code

    @property
    def series(self) -> str:
        """The time series in which a refusal is counted."""
        # Not in a child process, which has what it evaluates with, and no more.
        from services.classifier.metrics import REVIEWS_REFUSED  # noqa: PLC0415
        from shared.telemetry.refusals import series_name  # noqa: PLC0415

        return series_name(REVIEWS_REFUSED, cause=self.label)


class RefusedError(Exception):
    """The webhook refuses to create or change the object, by a rule."""

    def __init__(self, rule: WebhookRule, **values: object) -> None:
        super().__init__(rule.says(**values))
        self.rule = rule

    @property
    def code(self) -> int:
        """HTTP status.

        400: the object is invalid. 403: it would start without admission. 413: it costs too much. 429: too
        much waits. 500: an expression failed on it.
        """
        return self.rule.code

    @property
    def cause(self) -> str:
        """The rule, for metrics."""
        return self.rule.label

    @classmethod
    def quoted(cls, rule: WebhookRule, text: str) -> Self:
        """Return a refusal of another process, in its words."""
        error = cls.__new__(cls, text)
        error.rule = rule
        return error


def malformed(field: str, wanted: str, value: Any) -> RefusedError:
    """Return the refusal of a field of a wrong type."""
    given = "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
    return RefusedError(WebhookRule.MALFORMED, field=field, wanted=wanted, given=given)


def read_object(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the object in `field`; a missing `metadata` counts as empty. Raises `RefusedError`."""
    value = holder.get(field)
    if value is None and field == "metadata":
        return {}
    if not isinstance(value, dict):
        raise malformed(field, "an object", value)
    return value


def read_strings(metadata: Mapping[str, Any], field: str) -> dict[str, str]:
    """Return a copy of the map of strings in `metadata.<field>`; empty if missing.

    Raises `RefusedError`.
    """
    value = metadata.get(field)
    if value is None:
        return {}
    path = f"metadata.{field}"
    if not isinstance(value, dict):
        raise malformed(path, "an object", value)
    for key, text in value.items():
        if not isinstance(text, str):
            raise malformed(f"{path}[{key}]", "a string", text)
    return dict(value)


def check_metadata(obj: Mapping[str, Any]) -> None:
    """Raise `RefusedError` for metadata of a wrong type: an API server sends it here before it checks."""
    metadata = read_object(obj, "metadata")
    for field in ("labels", "annotations"):
        read_strings(metadata, field)
    for field in ("name", "generateName", "namespace", "uid"):
        if (value := metadata.get(field)) is not None and not isinstance(value, str):
            raise malformed(f"metadata.{field}", "a string", value)
    read_finalizers(metadata)
    owners = metadata.get("ownerReferences")
    if owners is None:
        return
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        raise malformed("metadata.ownerReferences", "a list of objects", owners)


def read_finalizers(metadata: Mapping[str, Any]) -> dict[str, None]:
    """Return `metadata.finalizers` in their order; empty if missing. Raises `RefusedError`."""
    value = metadata.get("finalizers")
    if value is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise malformed("metadata.finalizers", "a list of strings", value)
    return dict.fromkeys(value)
