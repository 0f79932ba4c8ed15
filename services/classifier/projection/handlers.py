"""Publishes the state of every workload. Nothing is decided here."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from typing import Final

import structlog

from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.projector import Projector
from shared.bus.kind_follower import KindFollower
from shared.bus.port import Bus, CaughtUp, Entry, FencedError, StreamFullError, UnavailableError
from shared.contracts.kube.kinds import INTEGRATION
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import HostState, PlatformOffer
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import observed_filter

__all__ = ["Projection"]

log = structlog.get_logger(__name__)

LEASE: Final = "classifier-projection"
"""One replica projects; every replica answers the webhook."""

STREAM_FULL_SECONDS: Final = 5.0

ECHO_SECONDS: Final = 10.0
"""Until it is said that a decision was written down. Most that is short has ended by then, and one
state in three is spared."""


class Projection:
    """The service's side of the wire: OBSERVED in, WORKLOADS out, one writer at a time."""

    def __init__(
        self,
        *,
        bus: Bus,
        now: Callable[[], datetime],
        policy: Policy = DEFAULT_POLICY,
    ) -> None:
        self._bus = bus
        self._now = now
        self._policy = policy

    async def run(self) -> None:
        """Project for as long as the lease is ours; whoever follows starts from the log."""
        while True:
            lease = await self._bus.lease(LEASE)
            log.info("projecting", lease=LEASE)
            try:
                async with asyncio.TaskGroup() as group:
                    projecting = group.create_task(
                        _Term(bus=self._bus, group=group, policy=self._policy).run()
                    )
                    await lease.lost()
                    projecting.cancel()
            except* FencedError:
                log.warning("somebody else writes WORKLOADS; starting again from the log")
            finally:
                await lease.release()


class _Term:
    """One holder's time: state is rebuilt from the streams, so nothing outlives it."""

    def __init__(self, *, bus: Bus, group: asyncio.TaskGroup, policy: Policy) -> None:
        self._policy = policy
        self._bus = bus
        self._group = group
        self._projectors: dict[str, Projector] = {}
        self._synced: set[str] = set()
        self._caught_up = False
        self._machines_read = asyncio.Event()
        self._sequences: dict[str, int] = {}
        """Last sequence of each subject: a writer that does not know it is refused."""

        self._in_flight: set[str] = set()
        self._next: dict[str, WorkloadState] = {}
        """What to publish of a subject when its publish in flight is acknowledged. The latest wins."""

        self._echoes: dict[str, asyncio.TimerHandle] = {}
        """Subject to what says in a while that its decision was written down, unless more comes."""

    async def run(self) -> None:
        await self._recall()
        machines = self._group.create_task(self._follow_machines())
        try:
            await self._machines_read.wait()
            watched = (kind for kind in Projector.watched() if kind != INTEGRATION)
            await KindFollower(
                bus=self._bus,
                cluster=None,
                filters=[*map(observed_filter, watched), SYNCED_FILTER],
                kinds=lambda: [k for p in self._projectors.values() for k in p.brought()],
                take_integration=self._take_observed,
                take=self._on_item,
            ).run()
        finally:
            # It ends with the term: whoever lost the lease would wait for it for ever.
            machines.cancel()
            for echo in self._echoes.values():
                echo.cancel()

    def _on_item(self, item: Entry | CaughtUp) -> None:
        if isinstance(item, CaughtUp):
            self._caught_up = True
            for cluster in sorted(self._synced):
                self._settle(cluster)
        elif (changed := self._take(item)) is not None and self._caught_up:
            # After a list all of it at once: logs may have been lost, and what was written down
            # stands for them.
            self._publish_changes(changed, all_at_once=item.subject.endswith(SYNCED))

    def _take_observed(self, observed: Observed) -> None:
        self._projector(observed.cluster).take(observed)
        if self._caught_up and observed.cluster in self._synced:
            self._publish_changes(observed.cluster)

    async def _follow_machines(self) -> None:
        """Read before any job is looked at: what was refused must not be let in by a restart."""
        async with aclosing(self._bus.watch("HOSTS", *MACHINES_FILTERS)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    self._machines_read.set()
                    continue
                kind: type[PlatformOffer | HostState] = (
                    PlatformOffer
                    if item.headers.get("ce-type") == PlatformOffer.type
                    else HostState
                )
                try:
                    said = item.read(kind)
                except UndecodableError as error:
                    log.warning(
                        "skipping what cannot be read", subject=item.subject, error=str(error)
                    )
                    continue
                self._projector(said.cluster).take_machines(said)
                if self._caught_up and said.cluster in self._synced:
                    self._publish_changes(said.cluster)

    async def _recall(self) -> None:
        async with aclosing(self._bus.watch("WORKLOADS")) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    return
                self._sequences[item.subject] = item.sequence
                try:
                    state = item.read(WorkloadState)
                except UndecodableError as error:
                    log.warning(
                        "forgetting an unreadable state", subject=item.subject, error=str(error)
                    )
                    continue
                self._projector(state.cluster).recall(state)

    def _take(self, entry: Entry) -> str | None:
        """Take in one observation; the cluster whose changes may now be published."""
        try:
            if entry.subject.endswith(SYNCED):
                cluster = entry.read(Synced).cluster
                first = cluster not in self._synced
                self._synced.add(cluster)
                if first:
                    self._projector(cluster).settle()
                return cluster
            observed = entry.read(Observed)
        except UndecodableError as error:
            log.warning("skipping what cannot be read", subject=entry.subject, error=str(error))
            return None
        self._projector(observed.cluster).take(observed)
        return observed.cluster if observed.cluster in self._synced else None

    def _settle(self, cluster: str) -> None:
        self._projector(cluster).settle()
        self._publish_changes(cluster, all_at_once=True)

    def _projector(self, cluster: str) -> Projector:
        if cluster not in self._projectors:
            self._projectors[cluster] = Projector(cluster, self._policy)
        return self._projectors[cluster]

    def _publish_changes(self, cluster: str, *, all_at_once: bool = False) -> None:
        for state, is_echo in self._projector(cluster).changes():
            if (echo := self._echoes.pop(state.subject, None)) is not None:
                echo.cancel()
            if is_echo and not all_at_once:
                later = asyncio.get_running_loop().call_later(ECHO_SECONDS, self._echo, state)
                self._echoes[state.subject] = later
            else:
                self._offer(state)

    def _echo(self, state: WorkloadState) -> None:
        del self._echoes[state.subject]
        self._offer(state)

    def _offer(self, state: WorkloadState) -> None:
        if state.subject in self._in_flight:
            self._next[state.subject] = state
        else:
            self._publish(state)

    def _publish(self, state: WorkloadState) -> None:
        self._in_flight.add(state.subject)
        self._group.create_task(self._acknowledged(state))

    async def _acknowledged(self, state: WorkloadState) -> None:
        """One publish of a subject at a time: its successor needs the sequence of this one."""
        subject = state.subject
        while True:
            try:
                sequence = await self._bus.publish(
                    state, expect_subject=self._sequences.get(subject, 0)
                )
                break
            except (StreamFullError, UnavailableError) as error:
                log.warning("cannot publish; trying again", subject=subject, error=str(error))
                await asyncio.sleep(STREAM_FULL_SECONDS)
                state = self._next.pop(subject, state)
            except FencedError:
                try:
                    await self._adopt(state)
                except UnavailableError as error:
                    # The answer is needed: without it the same refusal comes again, and we ask again.
                    log.warning("cannot ask who wrote", subject=subject, error=str(error))
        self._sequences[subject] = sequence
        self._in_flight.discard(subject)
        if (following := self._next.pop(subject, None)) is not None:
            self._publish(following)

    async def _adopt(self, state: WorkloadState) -> None:
        """Find out whose write came first: our own of a moment ago, or somebody else's."""
        last = await self._bus.latest("WORKLOADS", state.subject)
        known = self._sequences.get(state.subject, 0)
        if last is None:
            if known == 0:
                raise FencedError(f"{state.subject} refuses its first message")
            self._sequences[state.subject] = (
                0  # It grew old and left the log; the view still has it.
            )
        elif last.headers.get("ce-source") == self._bus.instance and last.sequence > known:
            self._sequences[state.subject] = last.sequence
        else:
            raise FencedError(f"{state.subject} was written by somebody else")


SYNCED: Final = ".synced"
SYNCED_FILTER: Final = f"sluice.observed.*._._{SYNCED}"
MACHINES_FILTERS: Final = ("sluice.host.>", "sluice.offer.>")
