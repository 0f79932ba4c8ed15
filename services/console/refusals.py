"""Why there is no answer, in the words of Kubernetes' API."""

from typing import Any, Final

__all__ = ["Refusal", "forbidden", "not_found", "wrong"]

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


class Refusal(Exception):  # noqa: N818 - it is no fault
    """An answer with a status of its own."""

    def __init__(self, code: int, message: str, *, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_seconds = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """As `metav1.Status`, which kubectl and every client of Kubernetes can read."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": _REASONS.get(self.code, "Unknown"),
            "code": self.code,
        }


def forbidden(user: str, what: str) -> Refusal:
    """The user is known, and may not."""
    return Refusal(403, f'User "{user}" cannot {what}: a role that allows it must be bound to them')


def not_found(what: str) -> Refusal:
    """There is no such thing, as far as the user may know."""
    return Refusal(404, f"{what} not found")


def wrong(what: str, problem: str) -> Refusal:
    """The question cannot be understood."""
    return Refusal(400, f"{what}: {problem}")
