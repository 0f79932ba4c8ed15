"""Heartbeats to the hub, and the end of copies whose lease has expired.

1. A heartbeat that the bus accepts renews the leases from the moment at which it was sent, by the
   monotonic clock of this process.
2. Without the bus, `guard` stops copies whose lease has expired. It reads only the API server.
3. Copies without a lease run on until their hub withdraws them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, Literal

import structlog

from services.patcher.cluster.errors import UNAUTHORIZED
from shared.bus.port import Bus, BusError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import INTEGRATION, NAMESPACE, Kind
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.spokes import Heartbeat, lease_seconds_of
from shared.integrations import Integrations
from shared.kube.port import Kube, KubeError, NotFoundError, RefusedError, ThrottledError

log = structlog.get_logger(__name__)

Stop = Callable[[Kind, Body], Awaitable[None]]

START_BEATS: Final = 2.0
"""A new process does not know when the leases were renewed last. It takes them for expired after so
many heartbeat intervals without the bus."""

PROBE_SECONDS: Final = 2.0
"""Longest wait of the first heartbeat for the API server, and interval of the check of leases."""

FAILED_PROBES_MAX: Final = 2
"""Probes without an answer, in a row, after which the API server counts as unreachable."""


class HeartbeatSender:
    """Sends heartbeats for one patcher, and knows how long leases are still valid."""

    def __init__(
        self,
        *,
        kube: Kube,
        bus: Bus,
        cluster: str,
        quota: Literal["hub", "kueue"],
        now: Callable[[], datetime],
        beat_seconds: float,
        makes_copies: bool = True,
    ) -> None:
        """`makes_copies`: False at the hub itself, which has no copies to stop."""
        self._kube = kube
        self._bus = bus
        self._cluster = cluster
        self._quota = quota
        self._now = now
        self._beat_seconds = beat_seconds
        self._makes_copies = makes_copies
        self._renewed_at: float | None = None
        self._started_at: float | None = None
        self._failed_probes = 0
        self._cluster_uid: str | None = None
        """Uid of the namespace `kube-system`."""

    def seconds_left(self, lease_seconds: float) -> float:
        """Seconds until copies with a lease of this length must be stopped; 0 or less: now."""
        now = asyncio.get_running_loop().time()
        if self._renewed_at is not None:
            return self._renewed_at + lease_seconds - now
        started_at = now if self._started_at is None else self._started_at
        return started_at + START_BEATS * self._beat_seconds - now

    async def run(self) -> None:
        """Send heartbeats until cancelled. Needs the bus."""
        number = 0
        async with asyncio.TaskGroup() as group:
            probe = group.create_task(self._probe())
            # The first heartbeat should name the cluster, but must not be late because of that.
            await asyncio.wait({probe}, timeout=PROBE_SECONDS)
            group.create_task(self._keep_probing())
            while True:
                number += 1
                group.create_task(self._send(number))
                await asyncio.sleep(self._beat_seconds)

    async def _send(self, number: int) -> None:
        sent_at = asyncio.get_running_loop().time()
        beat = Heartbeat(
            spoke=self._cluster,
            instance=self._bus.instance,
            number=number,
            quota=self._quota,
            api=self._failed_probes < FAILED_PROBES_MAX,
            identity=self._cluster_uid,
            at=self._now(),
        )
        try:
            await self._bus.publish(beat)
        except BusError as error:
            log.warning("the bus did not take a heartbeat", error=str(error))
            return
        self._renewed_at = sent_at if self._renewed_at is None else max(self._renewed_at, sent_at)

    async def _keep_probing(self) -> None:
        while True:
            await asyncio.sleep(self._beat_seconds)
            await self._probe()

    async def _probe(self) -> None:
        """Check that the API server answers, and read which cluster it is from `kube-system`."""
        try:
            namespace: Body = await self._kube.get(NAMESPACE, None, "kube-system")
        except (NotFoundError, ThrottledError):
            self._failed_probes = 0
        except KubeError as error:
            if isinstance(error, RefusedError) and error.status != UNAUTHORIZED:
                self._failed_probes = 0  # It answers, but does not allow this read.
                return
            self._failed_probes += 1
            log.warning(
                "the API server does not answer", times=self._failed_probes, error=str(error)
            )
        else:
            self._failed_probes = 0
            self._cluster_uid = namespace["metadata"]["uid"]

    async def guard(self, stop: Stop) -> None:
        """Stop copies whose lease has expired, until cancelled. Works without the bus."""
        self._started_at = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            # No lease is shorter: while heartbeats succeed none can have expired.
            if self._makes_copies and self.seconds_left(START_BEATS * self._beat_seconds) <= 0:
                await self._stop_expired(stop)

    async def _stop_expired(self, stop: Stop) -> None:
        for integration in await self._integrations():
            try:
                listing = await self._kube.list(integration.kind, labels=ORIGIN)
            except NotFoundError:
                continue  # A kind that this cluster does not serve.
            except KubeError as error:
                log.warning("copies cannot be stopped now", error=str(error))
                continue
            for copy in listing.items:
                if self._has_expired(copy) and integration.finish(copy) is None:
                    await self._stop_one(stop, integration.kind, copy)

    async def _stop_one(self, stop: Stop, kind: Kind, copy: Body) -> None:
        """Stop one copy. An error must not keep the others from being stopped."""
        try:
            await stop(kind, copy)
        except KubeError as error:
            name = f"{copy['metadata']['namespace']}/{copy['metadata']['name']}"
            log.warning("a copy cannot be stopped now", name=name, error=str(error))

    async def _integrations(self) -> Integrations:
        """The kinds of which copies may exist, from the API server, because the bus is unreachable."""
        integrations = Integrations()
        try:
            for obj in (await self._kube.list(INTEGRATION)).items:
                integrations.apply(obj)
        except NotFoundError:
            return integrations  # This cluster has no Integration objects.
        except KubeError as error:
            log.warning("kinds of this cluster are not known now", error=str(error))
        return integrations

    def _has_expired(self, copy: Body) -> bool:
        lease = lease_seconds_of(copy)
        return lease is not None and self.seconds_left(lease) <= 0
