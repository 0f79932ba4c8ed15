"""A cluster as one process of a world sees it: over a network, with an API server that fails."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, NoReturn, TypeVar, cast

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.kube.port import (
    ConflictError,
    ExpiredError,
    Kube,
    KubeError,
    Listing,
    Patch,
    ThrottledError,
    UnavailableError,
    WatchEvent,
)
from shared.testing.world.wire import WorldWire
from shared.testing.world.world import World

T = TypeVar("T")

CUT_OFF_SECONDS: Final = (1.0, 10.0)
"""Time-out of a client for a server that it cannot reach."""

RETRY_AFTER_SECONDS: Final = 1.0


class WorldKube(Kube):
    """Wraps a `shared.kube.port.Kube` with latency and faults. Create it in the process that uses it."""

    def __init__(self, inner: Kube, world: World, *, cluster: str) -> None:
        self._inner = inner
        self._world = world
        self._cluster = cluster
        self._wire = WorldWire(world, cluster)

    async def served(self) -> frozenset[tuple[str, str, str]]:
        """As the cluster says, if it can be reached."""
        return await self._call("served", self._inner.served())

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        """As the cluster says, if it can be reached."""
        listing = self._inner.list(kind, namespace=namespace, labels=labels)
        return await self._call(f"list {kind.plural}", listing)

    def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Yield events until the watch breaks."""
        return self._watch(kind, resource_version, namespace, labels)

    async def _watch(
        self, kind: Kind, resource_version: str, namespace: str | None, labels: str | None
    ) -> AsyncGenerator[WatchEvent, None]:
        await self._reach(f"watch {kind.plural}")
        faults = self._world.faults
        if self._world.chance(faults.expired):
            raise ExpiredError("too old resource version", status=410, reason="Expired")
        events = self._inner.watch(
            kind, resource_version=resource_version, namespace=namespace, labels=labels
        )
        async with aclosing(cast("AsyncGenerator[WatchEvent, None]", events)):
            async for event in events:
                held = self._wire.held_seconds("answer")
                await asyncio.sleep(held + self._wire.latency())
                await self._reach(f"event of {kind.plural}")
                yield event
                if self._world.chance(faults.watch_break):
                    self._world.note(f"{self._cluster}: watch of {kind.plural} breaks")
                    return

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        """As the cluster says, if it can be reached."""
        return await self._call(
            f"get {_path(kind, namespace, name)}", self._inner.get(kind, namespace, name)
        )

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Body:
        """Create the object; the response may be lost."""
        metadata = obj.get("metadata", {})
        what = _path(kind, metadata.get("namespace"), metadata.get("name", "*"))
        return await self._call(f"create {what}", self._inner.create(kind, obj), writes=True)

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Body:
        """Patch the object; the response may be lost."""
        below = f"/{subresource}" if subresource else ""
        return await self._call(
            f"patch {_path(kind, namespace, name)}{below}",
            self._inner.patch(kind, namespace, name, patch, subresource=subresource),
            writes=True,
            conflicts=True,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        dependants_first: bool = False,
    ) -> None:
        """Delete the object; the response may be lost."""
        await self._call(
            f"delete {_path(kind, namespace, name)}",
            self._inner.delete(kind, namespace, name, uid=uid, dependants_first=dependants_first),
            writes=True,
        )

    async def close(self) -> None:
        """Do nothing: other processes use the cluster, too."""

    async def _call(
        self,
        what: str,
        call: Coroutine[Any, Any, T],
        *,
        writes: bool = False,
        conflicts: bool = False,
    ) -> T:
        try:
            await self._reach(what)
            self._refuse(conflicts=conflicts)
            held = self._wire.held_seconds("request")
            if held == 0:
                await asyncio.sleep(self._wire.latency())
        except BaseException:
            call.close()
            raise
        if held > 0:
            # The network delivers late what the client has given up.
            if writes:
                self._world.outside(self._arrive_late(what, call, held))
            else:
                call.close()
            await self._time_out(what)
        # The server executes a request that arrived, even if the client dies.
        result = await self._world.answering(self._told(what, call) if writes else call)
        if self._wire.held_seconds("answer") > 0:
            await self._time_out(what)
        if writes and self._world.chance(self._world.faults.lost_answer):
            self._world.note(f"{self._cluster}: answer lost: {what}")
            await self._time_out(what)
        await asyncio.sleep(self._wire.latency())
        await self._wire.point(f"after {what}")
        return result

    async def _time_out(self, what: str) -> NoReturn:
        await asyncio.sleep(self._world.between(CUT_OFF_SECONDS))
        raise UnavailableError(f"{what}: no answer from {self._cluster}")

    async def _arrive_late(self, what: str, call: Coroutine[Any, Any, Any], seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            if not self._world.closing:
                self._world.note(f"{self._cluster}: arrives late: {what}")
                with suppress(KubeError):
                    await self._told(what, call)
        finally:
            call.close()

    async def _told(self, what: str, call: Coroutine[Any, Any, T]) -> T:
        try:
            result = await call
        except Exception as error:
            self._world.note(f"{self._cluster}: {what}: {error!r}")
            raise
        self._world.note(f"{self._cluster}: {what}")
        return result

    async def _reach(self, what: str) -> None:
        await self._wire.point(what)
        if not self._wire.reaches():
            await asyncio.sleep(self._world.between(CUT_OFF_SECONDS))
            raise UnavailableError(f"{what}: no route to {self._cluster}")

    def _refuse(self, *, conflicts: bool) -> None:
        world, faults = self._world, self._world.faults
        if world.chance(faults.throttled):
            raise ThrottledError("too many requests", retry_after_seconds=RETRY_AFTER_SECONDS)
        if world.chance(faults.unavailable):
            status = world.random.choice((500, 503, 504))
            raise UnavailableError("a bad day", status=status, reason="InternalError")
        if conflicts and world.chance(faults.conflict):
            raise ConflictError("the object has been modified", status=409, reason="Conflict")


def _path(kind: Kind, namespace: str | None, name: str) -> str:
    return f"{kind.plural}/{namespace}/{name}" if namespace else f"{kind.plural}/{name}"
