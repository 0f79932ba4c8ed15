"""What the API server said, change by change. Nobody else is believed: neither our streams nor our logs.

A change has the revision at which the API server stored it. On one etcd revisions order the changes of all
kinds, whatever came first to this process.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TextIO, TypeVar

from tests.controllers.servers.client import Client, Json, RequestError

AGAIN_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 600.0
"""A deadline only tells a hang from a slow machine."""

T = TypeVar("T")


class Change(NamedTuple):
    """One version of an object."""

    revision: int
    kind: str
    obj: Json
    gone: bool
    """True: the object was deleted, and this is what it was last."""


class Key(NamedTuple):
    """Kind, namespace and name: all objects that had this name."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class History:
    """All changes that were seen."""

    changes: list[Change] = field(default_factory=list)
    gaps: int = 0
    """How often a kind was listed anew: an API server that starts again knows no older changes."""

    _by_key: dict[Key, list[Change]] = field(default_factory=lambda: defaultdict(list))
    _now: dict[Key, Json] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, kind: str, obj: Json, *, gone: bool = False) -> None:
        """Enter a change, unless it is known."""
        metadata = obj["metadata"]
        metadata.pop("managedFields", None)
        key = Key(kind, metadata.get("namespace", ""), metadata["name"])
        change = Change(int(metadata["resourceVersion"]), kind, obj, gone)
        known = self._by_key[key]
        if known and known[-1].revision >= change.revision:
            return
        known.append(change)
        self.changes.append(change)
        if gone:
            self._now.pop(key, None)
        else:
            self._now[key] = obj
        self._news.set()

    def relist(self, kind: str, items: list[Json], revision: str) -> None:
        """Enter what a list has; what it lacks is gone, nobody knows since when."""
        found = set()
        for obj in items:
            self.enter(kind, obj)
            found.add(Key(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]))
        for key in [one for one in self._now if one.kind == kind and one not in found]:
            last = self._now[key]
            metadata = {**last["metadata"], "resourceVersion": revision}
            self.enter(kind, {**last, "metadata": metadata}, gone=True)

    def of(self, kind: str, namespace: str, name: str) -> list[Change]:
        """The changes of all objects of this name, in order."""
        return self._by_key.get(Key(kind, namespace, name), [])

    def now(self, kind: str, namespace: str, name: str) -> Json | None:
        """The object, as it was seen last; None if there is none."""
        return self._now.get(Key(kind, namespace, name))

    def all_now(self, kind: str, namespace: str | None = None) -> Iterator[Json]:
        """The objects that there are."""
        for key, obj in list(self._now.items()):
            if key.kind == kind and namespace in (None, key.namespace):
                yield obj

    def keys(self, kind: str, namespace: str | None = None) -> list[Key]:
        """All names of a kind that were ever seen."""
        return [
            one for one in self._by_key if one.kind == kind and namespace in (None, one.namespace)
        ]

    def write(self, out: TextIO) -> None:
        """Write one line for each change, in the order in which they came."""
        out.writelines(json.dumps(change._asdict()) + "\n" for change in self.changes)

    async def until(self, found: Callable[[], T], otherwise: Callable[[], object]) -> T:
        """The first result of `found()` that is true. Raises TimeoutError with what `otherwise` says."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (result := found()):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise TimeoutError(f"not within {PATIENCE_SECONDS:g} s: {otherwise()}") from error
        return result


async def follow(client: Client, history: History, kind: str) -> None:
    """Enter every change of a kind until cancelled; waits while nobody serves the kind."""
    version = ""
    while True:
        with suppress(RequestError):
            if not version:
                listing = await client.list(kind)
                version = listing["metadata"]["resourceVersion"]
                history.relist(kind, listing["items"], version)
            try:
                async for what, obj in client.watch(kind, version):
                    version = obj["metadata"]["resourceVersion"]
                    if what != "BOOKMARK":
                        history.enter(kind, obj, gone=what == "DELETED")
            except RequestError as error:
                if error.status:  # The server answers, and knows no such version any more.
                    version = ""
                    history.gaps += 1
                raise
        await asyncio.sleep(AGAIN_SECONDS)
