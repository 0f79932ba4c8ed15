"""Signs of life to the hub, and the end of copies whose lease could not be renewed.

A beat that the bus has taken renews the leases from the moment at which it was sent, by our monotonic
clock. Copies that carry no lease are left alone: they go on until their hub says otherwise.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, Literal

import structlog

from shared.bus.port import Bus, BusError
from shared.contracts.kube.kinds import INTEGRATION, NAMESPACE, Kind, Object
from shared.contracts.messages.spokes import LEASE, ORIGIN, Beat
from shared.integrations import Integrations
from shared.kube.port import (
    Kube,
    KubeError,
    NotFoundError,
    RefusedError,
    ThrottledError,
)

__all__ = ["Lease"]

log = structlog.get_logger(__name__)

START_BEATS: Final = 2.0
"""A process that begins does not know when the leases were renewed last: after so many beats without
the bus it takes them for run out."""

LOOK_SECONDS: Final = 2.0

MISSES: Final = 2
"""An API server that did not answer so often in a row is away: once is no outage."""

_UNAUTHORIZED: Final = 401


class Lease:
    """One patcher's standing with the bus."""

    def __init__(
        self,
        *,
        kube: Kube,
        bus: Bus,
        cluster: str,
        quota: Literal["hub", "kueue"],
        now: Callable[[], datetime],
        beat_seconds: float,
    ) -> None:
        self._kube = kube
        self._bus = bus
        self._cluster = cluster
        self._quota = quota
        self._now = now
        self._beat_seconds = beat_seconds
        self._renewed: float | None = None
        self._began: float | None = None
        self._misses = 0
        self._identity: str | None = None

    def seconds_left(self, lease_seconds: float) -> float:
        """Until copies with such a lease have to be stopped; not positive: they have to be now."""
        now = asyncio.get_running_loop().time()
        if self._renewed is not None:
            return self._renewed + lease_seconds - now
        began = now if self._began is None else self._began
        return began + START_BEATS * self._beat_seconds - now

    async def beat(self) -> None:
        """Say that we live, until cancelled. Needs the bus."""
        number = 0
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look())
            # Who we are is better said with the first beat, but not at the price of a late one.
            await asyncio.wait({looking}, timeout=LOOK_SECONDS)
            group.create_task(self._keep_looking())
            while True:
                number += 1
                group.create_task(self._say(number))
                await asyncio.sleep(self._beat_seconds)

    async def _say(self, number: int) -> None:
        sent = asyncio.get_running_loop().time()
        beat = Beat(
            spoke=self._cluster,
            instance=self._bus.instance,
            number=number,
            quota=self._quota,
            api=self._misses < MISSES,
            identity=self._identity,
            at=self._now(),
        )
        try:
            await self._bus.publish(beat)
        except BusError as error:
            log.warning("the bus did not take a sign of life", error=str(error))
            return
        self._renewed = sent if self._renewed is None else max(self._renewed, sent)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self._beat_seconds)
            await self._look()

    async def _look(self) -> None:
        """Whether the API server answers us, and which cluster it is."""
        try:
            found = await self._kube.get(NAMESPACE, None, "kube-system")
        except (NotFoundError, ThrottledError):
            self._misses = 0
        except KubeError as error:
            if isinstance(error, RefusedError) and error.status != _UNAUTHORIZED:
                self._misses = 0  # It answers, and does not tell us that.
                return
            self._misses += 1
            log.warning("the API server does not answer", times=self._misses, error=str(error))
        else:
            self._misses = 0
            self._identity = str(found["metadata"]["uid"])

    async def guard(self, stop: Callable[[Kind, Object], Awaitable[None]]) -> None:
        """Stop copies whose leases ran out, until cancelled. Needs no bus: this is for when it is away."""
        self._began = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # Nothing can have run out while beats come through.
            if self.seconds_left(START_BEATS * self._beat_seconds) <= 0:
                await self._stop_all(stop)

    async def _stop_all(self, stop: Callable[[Kind, Object], Awaitable[None]]) -> None:
        for integration in await self._known():
            try:
                listing = await self._kube.list(integration.kind, labels=ORIGIN)
            except NotFoundError:
                continue  # A kind that this cluster does not serve.
            except KubeError as error:
                log.warning("copies cannot be stopped now", error=str(error))
                continue
            for copy in listing.items:
                if self._has_run_out(copy) and integration.finish(copy) is None:
                    await self._stop_one(stop, integration.kind, copy)

    async def _stop_one(
        self, stop: Callable[[Kind, Object], Awaitable[None]], kind: Kind, copy: Object
    ) -> None:
        """One that cannot be stopped keeps no other from it."""
        try:
            await stop(kind, copy)
        except KubeError as error:
            name = f"{copy['metadata']['namespace']}/{copy['metadata']['name']}"
            log.warning("a copy cannot be stopped now", name=name, error=str(error))

    async def _known(self) -> Integrations:
        """All kinds of which there may be copies. The bus, which told of Integrations, is away."""
        known = Integrations()
        try:
            for obj in (await self._kube.list(INTEGRATION)).items:
                known.learn(obj)
        except NotFoundError:
            return known  # A cluster that does not serve them has none.
        except KubeError as error:
            log.warning("kinds of this cluster are not known now", error=str(error))
        return known

    def _has_run_out(self, copy: Object) -> bool:
        lease = (copy["metadata"].get("annotations") or {}).get(LEASE)
        return lease is not None and self.seconds_left(float(lease)) <= 0
