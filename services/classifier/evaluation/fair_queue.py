"""Who is next: of the addresses that wait the one that had least time, and of its namespaces the same. Pure.

An API server reports true namespaces; another client that reaches the port may claim any. So such a client
shares by its address, and with no namespace of an API server.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

REMEMBERED_MAX: Final = 1_000
"""Addresses and namespaces whose time is remembered."""

T = TypeVar("T")


class Source(NamedTuple):
    """Where a job comes from."""

    address: str
    namespace: str


class FairQueue(Generic[T]):
    """What waits, first in first out for each source."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, deque[T]]] = {}
        self._had: dict[str | Source, float] = {}
        """Address or source to the seconds that its jobs had, while somebody waited."""

    def __bool__(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def of(self, source: Source) -> Iterator[T]:
        """Yield what waits of a source."""
        yield from self._waiting.get(source.address, {}).get(source.namespace, ())

    def push(self, source: Source, item: T) -> None:
        """Let the item wait. A new key begins at the least time that a waiting one has had."""
        if not self._waiting or len(self._had) > REMEMBERED_MAX:
            self._had.clear()
        address, namespace = source
        if address not in self._waiting:
            self._count_from_now(address, self._waiting)
        namespaces = self._waiting.setdefault(address, {})
        if namespace not in namespaces:
            self._count_from_now(source, (Source(address, one) for one in namespaces))
        namespaces.setdefault(namespace, deque()).append(item)

    def pop(self) -> tuple[Source, T]:
        """Take the next item. Somebody waits."""
        address = min(self._waiting, key=self._had_by)
        source = min((Source(address, one) for one in self._waiting[address]), key=self._had_by)
        item = self._waiting[address][source.namespace].popleft()
        self._tidy(source)
        return source, item

    def remove(self, source: Source, item: T) -> None:
        """Take this item out, if it still waits."""
        queue = self._waiting.get(source.address, {}).get(source.namespace)
        if queue is not None and item in queue:
            queue.remove(item)
            self._tidy(source)

    def charge(self, source: Source, seconds: float) -> None:
        """Note that a job of the source had so much time."""
        for key in (source.address, source):
            self._had[key] = self._had.get(key, 0.0) + seconds

    def _had_by(self, key: str | Source) -> float:
        return self._had.get(key, 0.0)

    def _count_from_now(self, key: str | Source, waiting: Iterable[str | Source]) -> None:
        """Raise what the key has had to the least of those that wait."""
        least = min(map(self._had_by, waiting), default=0.0)
        self._had[key] = max(self._had_by(key), least)

    def _tidy(self, source: Source) -> None:
        namespaces = self._waiting[source.address]
        if not namespaces[source.namespace]:
            del namespaces[source.namespace]
        if not namespaces:
            del self._waiting[source.address]
