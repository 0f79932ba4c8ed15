"""Lists and watches one kind without end: no gap, no hot loop, no hang."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
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

log = structlog.get_logger(__name__)

FIRST_WAIT_SECONDS: Final = 0.5
MOST_WAIT_SECONDS: Final = 30.0
RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""Upper bound for Retry-After of the server."""

STEADY_SECONDS: Final = 5.0
"""After a watch of at least this length the next one starts at once."""

FRUITLESS_WATCHES_MAX: Final = 5
SILENT_WATCHES_MAX: Final = 2
"""After this many watches in a row without any event or bookmark it lists again; silent watches lasted
to their end. The server may never have had the version, as after a restore of its store from a
backup: it then sends nothing until it reaches that version."""

UNSERVED_RECHECK_SECONDS: Final = 15.0
"""Interval at which it looks for a kind that the server does not serve."""

GONE_AFTER_SECONDS: Final = 60.0
"""A starting server, or one of several behind an address, may not serve a kind for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """All objects. An earlier object that is not among `items` was deleted."""

    items: list[Body]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """An object was created or changed."""

    object: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """An object was deleted, or no longer matches the selector."""

    object: Body
    """Its last state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """The server does not serve the kind; it is checked again regularly."""

    certain: bool
    """True after `GONE_AFTER_SECONDS`: then no objects of the kind exist either."""


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
        self._failures = WATCH_FAILURES.labels(resource=kind.plural)  # Exported from the start.
        self._trouble: KubeError | None = None

    @property
    def trouble(self) -> str | None:
        """Last error, None while listing and watching succeed. For readiness and people."""
        return None if self._trouble is None else str(self._trouble)

    async def run(self) -> AsyncGenerator[Reflection]:
        """Yield `Listed`, then changes, then perhaps `Listed` again. It never ends by itself.

        The states of an object come in order. After a failure it continues behind the last yielded
        event, or lists again if the server no longer has that version.
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
        """Retry until a list succeeds. Yield `Unserved` while the kind is not served."""
        loop = asyncio.get_running_loop()
        since: float | None = None
        reported: bool | None = None
        while True:
            try:
                listing = await self._kube.list(
                    self._kind, namespace=self._namespace, labels=self._labels
                )
            except NotFoundError as error:
                if not await self._is_unserved():
                    since = None
                    await self._wait_after(error)
                    continue
                since = loop.time() if since is None else since
                certain = loop.time() - since >= GONE_AFTER_SECONDS
                if reported is None:
                    self._log.warning("the cluster does not serve a kind", error=str(error))
                if certain is not reported:
                    reported = certain
                    yield Unserved(certain=certain)
                await asyncio.sleep(UNSERVED_RECHECK_SECONDS * self._random.uniform(0.75, 1.25))
            except KubeError as error:
                since = None
                await self._wait_after(error)
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
            self._log.warning("cannot ask which kinds the cluster serves", error=str(error))
            return False
        return (kind.group, kind.version, kind.plural) not in served

    async def _changes(self, version: str) -> AsyncGenerator[Changed | Deleted]:
        """Yield changes after `version`, over many watches; end when a new list is needed."""
        loop = asyncio.get_running_loop()
        fruitless = silent = 0
        while fruitless < FRUITLESS_WATCHES_MAX and silent < SILENT_WATCHES_MAX:
            began = loop.time()
            error: KubeError | None = None
            received = False
            try:
                async with self._watch(version) as events:
                    async for event in events:
                        received = True
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
            if received or steady:
                self._backoff.succeeded()
            fruitless = 0 if received or steady else fruitless + 1
            silent = 0 if received else silent + int(steady and error is None)
            if error is not None:
                # Also before listing: a server that forgets at once would be listed in a hot loop.
                await self._wait_after(error, watching=True)
                if isinstance(error, (ExpiredError, NotFoundError)):
                    return
            elif not steady:
                await asyncio.sleep(self._backoff.failed())
        self._log.warning(
            "watches of a kind bring nothing; listing it again", fruitless=fruitless, silent=silent
        )

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

    async def _wait_after(self, error: KubeError, *, watching: bool = False) -> None:
        self._trouble = error
        self._failures.inc()
        asked = error.retry_after_seconds if isinstance(error, ThrottledError) else 0.0
        wait = self._backoff.failed(at_least=min(asked, RETRY_AFTER_SECONDS_MAX))
        self._log.warning(
            "cannot watch a kind; trying again" if watching else "cannot list a kind; trying again",
            error=str(error),
            wait_seconds=round(wait, 3),
        )
        await asyncio.sleep(wait)
