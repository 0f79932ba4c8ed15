"""Lists of objects at one resource version, in pages if the client asks for them."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import orjson

from services.simulator.cluster.errors import bad_request, expired
from services.simulator.cluster.kinds.registry import Kind
from services.simulator.cluster.selectors import Selector
from services.simulator.cluster.storage.store import Store
from services.simulator.cluster.storage.stored import Stored

SNAPSHOTS_MAX: Final = 64
"""How many unfinished lists are kept. A new one replaces the oldest, whose client gets 410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list, and the token of the next page."""

    items: list[Stored]
    version: int
    """Resource version of the whole list, the same on every page."""

    next_token: str = ""
    remaining: int = 0


class Lists:
    """Serves all pages of a list from the state at its first page."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rest: OrderedDict[int, tuple[int, list[Stored]]] = OrderedDict()
        self._last = 0

    def page(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Selector | None,
        *,
        limit: int = 0,
        token: str = "",
    ) -> Page:
        """Return the first page, or with `token` the next one. A `limit` of 0 is no limit."""
        if token:
            version, items = self._resume(token)
        else:
            version, items = self._store.version, self._store.objects(kind, namespace)
            if selector is not None:
                items = [stored for stored in items if selector(stored.obj)]
        if not limit or len(items) <= limit:
            return Page(items=items, version=version)
        rest = items[limit:]
        self._last += 1
        self._rest[self._last] = (version, rest)
        if len(self._rest) > SNAPSHOTS_MAX:
            self._rest.popitem(last=False)
        return Page(
            items=items[:limit],
            version=version,
            next_token=urlsafe_b64encode(orjson.dumps({"v": version, "list": self._last})).decode(),
            remaining=len(rest),
        )

    def _resume(self, token: str) -> tuple[int, list[Stored]]:
        try:
            number = int(orjson.loads(urlsafe_b64decode(token))["list"])
        except (ValueError, KeyError, TypeError) as error:
            raise bad_request(f"continue key is not valid: {error}") from error
        # Keep the snapshot: a client may repeat a request with the same token.
        found = self._rest.get(number)
        if found is None:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return found

    def forget(self) -> None:
        """Drop all snapshots: every unfinished list then gets 410."""
        self._rest.clear()
