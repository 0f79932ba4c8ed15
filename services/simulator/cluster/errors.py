"""Errors of an API server: one class, one constructor for each reason.

The messages are those of kubernetes/apimachinery ``pkg/api/errors``, because clients and people
match on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from services.simulator.cluster.kinds.registry import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One field that is wrong, as `metav1.StatusCause`."""

    reason: str
    field: str
    message: str

    def to_wire(self) -> dict[str, str]:
        """Return the cause as it stands in a Status."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


class ApiError(Exception):
    """A refusal by the API server. `status()` is the body of the response."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        kind: Kind | None = None,
        name: str = "",
        causes: Sequence[Cause] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.kind = kind
        self.name = name
        self.causes = tuple(causes)
        self.retry_after_seconds = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """Return the error as a ``metav1.Status``."""
        details: dict[str, Any] = {}
        if self.name:
            details["name"] = self.name
        if self.kind is not None:
            if self.kind.group:
                details["group"] = self.kind.group
            details["kind"] = self.kind.plural if self.reason != "Invalid" else self.kind.kind
        if self.causes:
            details["causes"] = [cause.to_wire() for cause in self.causes]
        if self.retry_after_seconds is not None:
            details["retryAfterSeconds"] = self.retry_after_seconds
        answer: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            answer["reason"] = self.reason
        if details:
            answer["details"] = details
        answer["code"] = self.code
        return answer


def bad_request(message: str) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """403: understood, but not allowed."""
    message = f'{kind.resource} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, kind=kind, name=name, causes=causes)


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no object of that name."""
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', kind=kind, name=name)


def method_not_allowed(message: str) -> ApiError:
    """405: the resource does not know that verb."""
    return ApiError(405, "MethodNotAllowed", message)


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{kind.resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, kind=kind, name=name)


def conflict(kind: Kind, name: str, why: str | None = None) -> ApiError:
    """409: the object has changed since the client read it."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, kind=kind, name=name)


def gone(asked: int, oldest: int) -> ApiError:
    """410: the events after that version are no longer stored."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def expired(message: str) -> ApiError:
    """410: the snapshot of a continue token is gone."""
    return ApiError(410, "Expired", message)


def too_large(message: str) -> ApiError:
    """413: the body is larger than the server accepts."""
    return ApiError(413, "RequestEntityTooLarge", message)


def unsupported_media_type(message: str) -> ApiError:
    """415: the media type of a patch or body is not supported."""
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: fields are invalid; the message names all of them."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    message = f'{kind.qualified_kind} "{name}" is invalid: {listed}'
    return ApiError(422, "Invalid", message, kind=kind, name=name, causes=causes)


def unprocessable_patch(why: str) -> ApiError:
    """422: a JSON patch that does not apply, for instance because its test failed."""
    message = "the server rejected our request due to an error in our request"
    cause = Cause(reason="UnexpectedServerResponse", field="", message=why)
    return ApiError(422, "Invalid", message, causes=[cause])


def internal_error(why: str) -> ApiError:
    """500: something behind the server failed, for instance a webhook."""
    cause = Cause(reason="", field="", message=why)
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", causes=[cause])
