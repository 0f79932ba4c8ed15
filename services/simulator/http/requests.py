"""Request paths and query parameters, parsed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote

from services.simulator.cluster.errors import ApiError, bad_request
from services.simulator.cluster.kinds.registry import Kind, KindRegistry

Shape = Literal["whole", "table", "partial"]
"""Form of the objects in a response: complete, as table rows, or metadata only."""

SUBRESOURCES: Final = ("status", "finalize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a URL addresses: a collection, or with `name` one object."""

    kind: Kind
    version: str
    namespace: str | None
    """``None`` for cluster-wide objects and for a list over all namespaces."""

    name: str = ""
    subresource: str = ""


class Query:
    """The query parameters, typed."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return the parameter; empty if it is missing."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """Return True if it is set to a true value."""
        return self.text(name) in {"1", "true", "True", "t"}

    def number(self, name: str) -> int | None:
        """Return it as a number. Raises 400 if it is not one."""
        text = self.text(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit():
            raise bad_request(f'{name}: Invalid value: "{text}": must be a non-negative integer')
        return int(text)


def parse_query(raw: bytes) -> Query:
    """Parse a query string; the first of repeated parameters counts."""
    values: dict[str, str] = {}
    for name, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        values.setdefault(name, value)
    return Query(values)


def accepted_shape(accept: str) -> Shape:
    """Parse an ``Accept`` header; the first supported part counts."""
    for part in accept.split(","):
        if "application/json" not in part:
            continue
        if "as=Table" in part:
            return "table"
        if "as=PartialObjectMetadata" in part:
            return "partial"
        return "whole"
    return "whole"


def path_not_found() -> ApiError:
    """404: the path does not exist."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def parse_target(kinds: KindRegistry, raw_path: str) -> Target:
    """Parse ``/api/v1/…`` and ``/apis/<group>/<version>/…``. Raises 404 for what is not served."""
    parts = [unquote(part) for part in raw_path.strip("/").split("/")]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise path_not_found()
    namespace: str | None = None
    # `namespaces/<name>/status` is a subresource; anything else there is a namespaced resource.
    inside = len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in SUBRESOURCES
    if inside:
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None or len(rest) > 3:
        raise path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if kind.namespaced != (namespace is not None) and (name or not kind.namespaced):
        raise path_not_found()
    if subresource == "status" and not kind.has_status:
        raise path_not_found()
    if subresource == "finalize" and kind.resource != "namespaces":
        raise path_not_found()
    if subresource not in {"", *SUBRESOURCES}:
        raise path_not_found()
    return Target(
        kind=kind, version=version, namespace=namespace, name=name, subresource=subresource
    )
