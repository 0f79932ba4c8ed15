"""List and watch one kind for ever: no gap, no hot loop, no hang."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog

from shared.contracts.kube.kinds import Kind, Object
from shared.kube.backoff import Backoff
from shared.kube.port import (
    ExpiredError,
    Kube,
    KubeError,
    NotFoundError,
    ThrottledError,
    WatchEvent,
)
from shared.telemetry.metrics import WATCH_FAILURES

__all__ = ["Changed", "Deleted", "Listed", "Reflection", "Reflector", "Unserved"]

log = structlog.get_logger(__name__)

FIRST_WAIT_SECONDS: Final = 0.5
MOST_WAIT_SECONDS: Final = 30.0
RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""A server that asks for more is asked again nevertheless."""

STEADY_SECONDS: Final = 5.0
"""A watch that lasted so long was a good one: the next begins at once."""

FRUITLESS_WATCHES_MAX: Final = 5
SILENT_WATCHES_MAX: Final = 2
"""After so many in a row that brought nothing, not even a bookmark, it lists again; silent ones lasted
to their end. The version may be one that this server never had, as after a restore of its store from
a backup: an API server then says nothing at all until it gets there."""

UNSERVED_RECHECK_SECONDS: Final = 15.0
"""How soon a kind is noticed whose definition is installed later."""

GONE_AFTER_SECONDS: Final = 60.0
"""A server that starts, or one of several behind an address, may not know a kind for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All there is. What was there before and is not among `items` is gone."""

    items: list[Object]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Created or changed."""

    object: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Gone, or it ceased to match."""

    object: Object
    """Its last state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """The server has no such kind; it is looked for again now and then."""

    certain: bool
    """It has been so for a while: then there are no objects of it either."""


Reflection = Listed | Changed | Deleted | Unserved


class Reflector:
    """One kind of one cluster, in one namespace or all."""

    def __init__(
        self,
        *,
        kube: Kube,
        kind: Kind,
        random: Random,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._random = random
        self._backoff = Backoff(
            random=random, first_seconds=FIRST_WAIT_SECONDS, most_seconds=MOST_WAIT_SECONDS
        )
        self._log = log.bind(kind=kind.plural, group=kind.group, namespace=namespace)
        self._failures = WATCH_FAILURES.labels(resource=kind.plural)  # There from the start.
        self._trouble: KubeError | None = None

    @property
    def trouble(self) -> str | None:
        """Why nothing comes at the moment, None while all is well. For readiness and people."""
        return None if self._trouble is None else str(self._trouble)

    async def run(self) -> AsyncGenerator[Reflection]:
        """Give `Listed`, then what changes, then perhaps `Listed` again. It never ends by itself.

        Each object's states come in order. After a failure it goes on behind the last event that
        was taken from it, or lists again where the server has forgotten that moment.
        """
        while True:
            version = ""
            async with aclosing(self._listings()) as listings:
                async for listing in listings:
                    if isinstance(listing, Listed):
                        version = listing.resource_version
                    yield listing
            async with aclosing(self._changes(version)) as changes:
                async for change in changes:
                    yield change

    async def _listings(self) -> AsyncGenerator[Listed | Unserved]:
        """Try until there is a list. Says when the kind is not served, and when that is certain."""
        loop = asyncio.get_running_loop()
        since: float | None = None
        said: bool | None = None
        while True:
            try:
                listing = await self._kube.list(
                    self._kind, namespace=self._namespace, labels=self._labels
                )
            except NotFoundError as error:
                if not await self._is_unserved():
                    since = None
                    await self._wait_after(error, "list_failed")
                    continue
                since = loop.time() if since is None else since
                certain = loop.time() - since >= GONE_AFTER_SECONDS
                if said is None:
                    self._log.warning("kind_unserved", error=str(error))
                if certain is not said:
                    said = certain
                    yield Unserved(certain=certain)
                await asyncio.sleep(UNSERVED_RECHECK_SECONDS * self._random.uniform(0.75, 1.25))
            except KubeError as error:
                since = None
                await self._wait_after(error, "list_failed")
            else:
                self._trouble = None
                yield Listed(items=listing.items, resource_version=listing.resource_version)
                return

    async def _is_unserved(self) -> bool:
        """A list answered 404: whether discovery says the same."""
        kind = self._kind
        try:
            served = await self._kube.served()
        except KubeError as error:
            self._log.warning("discovery_failed", error=str(error))
            return False
        return (kind.group, kind.version, kind.plural) not in served

    async def _changes(self, version: str) -> AsyncGenerator[Changed | Deleted]:
        """What happens after `version`, over as many watches as it takes; ends to list again."""
        loop = asyncio.get_running_loop()
        fruitless = silent = 0
        while fruitless < FRUITLESS_WATCHES_MAX and silent < SILENT_WATCHES_MAX:
            began = loop.time()
            error: KubeError | None = None
            heard = False
            try:
                async with self._watch(version) as events:
                    async for event in events:
                        heard = True
                        version = event.object["metadata"]["resourceVersion"]
                        self._trouble = None
                        match event.type:
                            case "BOOKMARK":
                                pass
                            case "DELETED":
                                yield Deleted(object=event.object)
                            case "ADDED" | "MODIFIED":
                                yield Changed(object=event.object)
            except KubeError as caught:
                error = caught
            steady = loop.time() - began >= STEADY_SECONDS
            if heard or steady:
                self._backoff.succeeded()
            fruitless = 0 if heard or steady else fruitless + 1
            silent = 0 if heard else silent + int(steady and error is None)
            if error is not None:
                # Also before listing: a server that forgets at once would be listed in a hot loop.
                await self._wait_after(error, "watch_failed")
                if isinstance(error, (ExpiredError, NotFoundError)):
                    return
            elif not steady:
                await asyncio.sleep(self._backoff.failed())
        self._log.warning("watch_fruitless", fruitless=fruitless, silent=silent)

    @asynccontextmanager
    async def _watch(self, version: str) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        events = self._kube.watch(
            self._kind, resource_version=version, namespace=self._namespace, labels=self._labels
        )
        try:
            yield events
        finally:
            # Left to the garbage collector, the connection would stay open for a while.
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def _wait_after(self, error: KubeError, event: str) -> None:
        self._trouble = error
        self._failures.inc()
        asked = error.retry_after_seconds if isinstance(error, ThrottledError) else 0.0
        wait = self._backoff.failed(at_least=min(asked, RETRY_AFTER_SECONDS_MAX))
        self._log.warning(event, error=str(error), wait_seconds=round(wait, 3))
        await asyncio.sleep(wait)
