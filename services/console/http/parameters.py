"""What a request says: its token, and the numbers in its address."""

from typing import Final

from starlette.requests import Request

from services.console.documents import LIMIT_DEFAULT, LIMIT_MAX
from services.console.status_error import bad_request

BEARER: Final = "bearer "


def token_of(request: Request) -> str | None:
    """The bearer token of `Authorization`. It is read from nowhere else, so that no link can carry one."""
    header = request.headers.get("authorization", "")
    return header[len(BEARER) :].strip() if header.lower().startswith(BEARER) else None


def cluster_of(request: Request, default: str) -> str:
    """The parameter `cluster`, or `default`."""
    return request.query_params.get("cluster") or default


def limit_of(request: Request) -> int:
    """The parameter `limit`; 0 means the default, as in Kueue."""
    return number(request, "limit", 0, most=LIMIT_MAX) or LIMIT_DEFAULT


def number(request: Request, name: str, default: int, *, most: int | None = None) -> int:
    """The number of a parameter. Raises `StatusError` 400 if it is none, or more than `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise bad_request(name, f"{text[:20]!r} is no number from 0 on")
    value = int(text)
    if most is not None and value > most:
        raise bad_request(name, f"{value} is more than {most}")
    return value
