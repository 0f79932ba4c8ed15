"""Which errors of the API server the patcher retries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shared.bus.port import LaterError
from shared.kube.port import ConflictError, RefusedError, ThrottledError, UnavailableError

UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403


@contextmanager
def retry_later() -> Iterator[None]:
    """Raise `LaterError` for errors that pass by themselves, so that the bus delivers the message again.

    These are throttling, conflicts and an API server that does not answer. The delay of a
    `ThrottledError` is kept. Other errors pass through unchanged.
    """
    try:
        yield
    except ThrottledError as error:
        raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
    except (ConflictError, UnavailableError) as error:
        raise LaterError(str(error)) from error


def is_transient_refusal(error: RefusedError) -> bool:
    """True if an operator can fix the refusal (RBAC, ResourceQuota), so that a retry may succeed.

    False for what an admission webhook denies: the same object is denied again.
    """
    if error.status == UNAUTHORIZED:
        return True
    text = str(error)
    lacks_permission = 'User "' in text and " cannot " in text
    return error.status == _FORBIDDEN and (lacks_permission or "exceeded quota" in text)
