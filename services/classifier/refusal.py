"""Refuses a new object, and reads untrusted fields strictly: a wrong type is a refusal."""

from collections.abc import Mapping
from typing import Any, Final

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
TOO_LARGE: Final = 413
TOO_MANY: Final = 429
INTERNAL_ERROR: Final = 500


class RefusedError(Exception):
    """The webhook refuses to create or change the object."""

    def __init__(self, code: int, message: str, *, cause: str = "") -> None:
        super().__init__(message)
        self.code = code
        """400: the object is invalid. 403: it would start without admission. 413: it costs too much.
        429: too much waits. 500: an expression failed on it."""

        self.cause = cause
        """What was too much, or what is not allowed, for metrics; may be empty."""


def read_object(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the object in `field`; a missing `metadata` counts as empty. Raises `RefusedError`."""
    value = holder.get(field)
    if value is None and field == "metadata":
        return {}
    if not isinstance(value, dict):
        raise RefusedError(BAD_REQUEST, f"{field}: must be an object, got {_described(value)}")
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
        raise RefusedError(BAD_REQUEST, f"{path}: must be an object, got {_described(value)}")
    for key, text in value.items():
        if not isinstance(text, str):
            raise RefusedError(
                BAD_REQUEST, f"{path}[{key}]: must be a string, got {_described(text)}"
            )
    return dict(value)


def read_finalizers(metadata: Mapping[str, Any]) -> dict[str, None]:
    """Return `metadata.finalizers` in their order; empty if missing. Raises `RefusedError`."""
    value = metadata.get("finalizers")
    if value is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        text = f"metadata.finalizers: must be a list of strings, got {_described(value)}"
        raise RefusedError(BAD_REQUEST, text)
    return dict.fromkeys(value)


def _described(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
