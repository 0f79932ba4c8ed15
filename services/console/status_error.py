"""Errors as Kubernetes words them (`metav1.Status`)."""

from typing import Any, Final

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class StatusError(Exception):
    """An answer with an HTTP status of its own."""

    def __init__(self, code: int, message: str, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """The error as `metav1.Status`, which kubectl and every Kubernetes client can read."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": _REASONS.get(self.code, "Unknown"),
            "code": self.code,
        }


def forbidden(user: str, what: str) -> StatusError:
    """Status 403: the user is authenticated, but not allowed to do `what`."""
    return StatusError(
        403, f'User "{user}" cannot {what}: a role that allows it must be bound to them'
    )


def not_found(what: str) -> StatusError:
    """Status 404: there is no such object, or the user may not know of it."""
    return StatusError(404, f"{what} not found")


def bad_request(what: str, problem: str) -> StatusError:
    """Status 400: a parameter is malformed."""
    return StatusError(400, f"{what}: {problem}")
