"""Translates HTTP statuses of an API server to errors of `shared.kube.port`."""

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    KubeError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

_RETRY_AFTER_SECONDS: Final = 1.0
"""If a 429 has no Retry-After: the default of the API server."""

_SERVER_ERROR: Final = 500
_PASSING: Final = frozenset({408, 425})
"""Statuses 4xx after which a retry may succeed: the request came too slowly or too early."""

_INAPPLICABLE: Final = "the server rejected our request due to an error in our request"
"""All that a real API server (1.36) says about a JSON patch that it could not apply: not whether a
`test` failed or another operation. With a `test` among them, that is the likely one."""

_UID_MISMATCH: Final = "metadata.uid"

_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""In a 500 of a real API server (1.36): etcd takes 1.5 MiB, its client 2 MiB. That does not pass."""


def decoded(body: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object in `body`. Raises `UnavailableError` for others, such as a proxy's page."""
    try:
        value = orjson.loads(body)
    except ValueError as error:
        raise UnavailableError(f"{what}: no JSON but {body[:80]!r}") from error
    if not isinstance(value, dict):
        raise UnavailableError(f"{what}: no object but {body[:80]!r}")
    return value


def encoded(value: Any) -> bytes:
    """Return JSON of a body. Raises `RefusedError` for a value that JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except TypeError:
        # Integers beyond 64 bits, which the field's type may well take as a number.
        try:
            return json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            raise RefusedError(f"not JSON: {error}") from error


def error_from(
    status: int, body: bytes, headers: Mapping[str, str], *, what: str, tests: bool = False
) -> KubeError:
    """The error that an answer with `status` means.

    `what` names the request; `tests`: it was a JSON patch with a `test` operation.
    """
    try:
        value = orjson.loads(body)
    except ValueError:
        value = None
    answer = value if isinstance(value, dict) else {"message": body[:200].decode(errors="replace")}
    return error_from_status(
        {**answer, "code": status}, what=what, retry_after=headers.get("Retry-After"), tests=tests
    )


def error_from_status(
    answer: Mapping[str, Any], *, what: str, retry_after: str | None = None, tests: bool = False
) -> KubeError:
    """The error that a `metav1.Status` means, as a body or as the object of an ERROR event."""
    status = answer.get("code")
    status = status if isinstance(status, int) else 0
    reason = str(answer.get("reason") or "")
    details = answer.get("details") if isinstance(answer.get("details"), dict) else {}
    assert details is not None
    given = details.get("causes")
    causes = (
        [cause for cause in given if isinstance(cause, dict)] if isinstance(given, list) else []
    )
    words = [str(answer.get("message") or "").strip()]
    words += [str(cause.get("message")) for cause in causes if cause.get("message")]
    text = f"{what}: {status} {reason}: " + "; ".join(dict.fromkeys(words))
    kind: type[KubeError]
    if status == 429:
        seconds = _seconds(retry_after, details.get("retryAfterSeconds"))
        return ThrottledError(text, retry_after_seconds=seconds)
    if status == 404:
        kind = NotFoundError
    elif status == 409:
        kind = AlreadyExistsError if reason == "AlreadyExists" else ConflictError
    elif status == 410 or reason in {"Expired", "Gone"}:
        kind = ExpiredError
    elif status == 422 and (
        (tests and words[0].startswith(_INAPPLICABLE))
        or any(cause.get("field") == _UID_MISMATCH for cause in causes)
    ):
        kind = ConflictError
    elif (400 <= status < _SERVER_ERROR and status not in _PASSING) or (
        status == _SERVER_ERROR and any(sign in words[0] for sign in _TOO_LARGE)
    ):
        kind = RefusedError
    else:
        kind = UnavailableError
    return kind(text, status=status, reason=reason)


def _seconds(*candidates: object) -> float:
    for candidate in candidates:
        try:
            seconds = float(str(candidate))
        except ValueError:  # A date, which RFC 9110 allows and no API server sends, or nothing.
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return _RETRY_AFTER_SECONDS
