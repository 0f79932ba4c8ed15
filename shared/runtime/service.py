"""A service inside a process: what its `main` gives, and how the host runs it on one event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import structlog

from shared.bus.admin.permissions import consumers_of, reads_of, renews_of, writes_of
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus
from shared.runtime.loop import run
from shared.settings.base import ServiceSettings
from shared.telemetry.redaction import redacted
from shared.telemetry.tracing import NO_TRACING, OtlpTracing, Tracing

log = structlog.get_logger(__name__)

STARTING: Final = "starting"


class Service(Protocol):
    """What `assemble` returns."""

    async def run(self) -> None:
        """Work until cancelled. Returning or raising ends the process, and its supervisor restarts it."""

    def ready(self) -> str | None:
        """None when it does its work, else why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the host gives to a service."""

    bus: Bus
    tracing: Tracing
    on_stop: Callable[[Callable[[], Awaitable[None]]], None]
    """Register something to close when the process ends."""

    beside: Callable[[Callable[[], Awaitable[None]]], None]
    """Register something that runs from the start, whether NATS is there or not."""


Build = Callable[[Parts], Service]
"""Wires the service; may open nothing that `run` could open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A service that is not running yet."""

    name: str
    settings: ServiceSettings
    build: Build
    ready_without_bus: bool = False
    """Others call it over HTTP: an outage of NATS must not take it out of its Kubernetes Service."""


Overrides = Mapping[str, Any]
"""Settings by name that count more than the environment."""

NO_OVERRIDES: Final[Overrides] = {}


def utc_now() -> datetime:
    """The clock of a process."""
    return datetime.now(UTC)


class Hosted:
    """A service on the event loop on which it is made, with a connection to NATS of its own."""

    def __init__(self, program: Program) -> None:
        settings = program.settings
        instance = f"{program.name}-{settings.instance}"
        self.program = program
        self._tracing = _tracing(program.name, instance, settings)
        self._bus = NatsBus(
            url=settings.nats_url,
            instance=instance,
            service=program.name,
            access=settings.nats_access,
            reads=reads_of(program.name),
            writes=writes_of(program.name, settings.cluster),
            consumers=consumers_of(program.name),
            renews=renews_of(program.name),
            now=utc_now,
        )
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._companions: list[Callable[[], Awaitable[None]]] = []
        parts = Parts(
            bus=self._bus,
            tracing=self._tracing,
            on_stop=self._closers.append,
            beside=self._companions.append,
        )
        with structlog.contextvars.bound_contextvars(service=program.name):
            self._service = program.build(parts)

    @property
    def connected(self) -> bool:
        """Whether NATS answers."""
        return self._bus.connected

    def ready(self) -> str | None:
        """None when the service does its work, else why not."""
        if (outdated := self._bus.connection.outdated) is not None:
            return str(outdated)
        if self._bus.connected or self.program.ready_without_bus:
            return self._service.ready()
        return f"no connection to NATS at {redacted(self.program.settings.nats_url)}"

    async def alive(self) -> None:
        """Return once the event loop of the service has a turn."""

    async def run(self) -> None:
        """Work until cancelled, then finish gracefully. Raises what ended the service."""
        try:
            async with asyncio.TaskGroup() as group:
                for companion in self._companions:
                    group.create_task(_forever(companion))
                group.create_task(_forever(self._until_outdated))
                group.create_task(_forever(self._work))
        finally:
            await self._close()

    async def _until_outdated(self) -> None:
        """End the process once this release may not serve. Its supervisor restarts it, to check again."""
        raise await self._bus.outdated()

    async def _work(self) -> None:
        await self._bus.start()
        await self._service.run()

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(self.program.settings.graceful_stop_seconds):
                await self._bus.stop()
        except TimeoutError:
            log.warning("some work did not finish in time; it will be done again")
        for close in self._closers:
            await close()
        self._tracing.close()


class HostedApart:
    """A service in a thread with an event loop of its own, which the services of the process do not block."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._inner: Hosted | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended: Future[None] = Future()
        self._stopping = False

    @property
    def connected(self) -> bool:
        """Whether NATS answers."""
        return self._inner is not None and self._inner.connected

    def ready(self) -> str | None:
        """None when the service does its work, else why not."""
        return STARTING if self._inner is None else self._inner.ready()

    async def alive(self) -> None:
        """Return once the event loop of the service has a turn."""
        if self._loop is not None and not self._ended.done():
            turn: Future[None] = Future()
            self._loop.call_soon_threadsafe(turn.set_result, None)
            await asyncio.wrap_future(turn)

    async def run(self) -> None:
        """Work until cancelled, then finish gracefully. Raises what ended the service."""
        # A daemon: a handler that never returns must not keep the process.
        threading.Thread(target=self._thread, name=self.program.name, daemon=True).start()
        ended = asyncio.wrap_future(self._ended)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._stopping = True  # For a thread that has not come so far.
            if self._loop is not None and self._task is not None:
                self._loop.call_soon_threadsafe(self._task.cancel)
            await asyncio.wait([ended])
            if not ended.cancelled():
                ended.exception()  # Looked at: else asyncio logs it as one that nobody saw.
            raise

    def _thread(self) -> None:
        try:
            run(self._run_here())
        except BaseException as error:  # noqa: BLE001 - handed to the loop of the process
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _run_here(self) -> None:
        structlog.contextvars.bind_contextvars(service=self.program.name)
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if not self._stopping:
            self._inner = Hosted(self.program)
            await self._inner.run()


class Readiness:
    """When a process with several services is ready.

    First all of them must be. From then on only those count that others call: a NATS outage, or an engine
    that reads its log again, must not take the webhook beside it out of its Kubernetes Service.
    """

    def __init__(self, hosted: Sequence[Hosted | HostedApart]) -> None:
        self._hosted = hosted
        self._began = False

    def missing(self) -> str | None:
        """The first service that does not do its work, and why; None if all do."""
        for each in self._hosted:
            if (reason := each.ready()) is not None:
                return reason if len(self._hosted) == 1 else f"{each.program.name}: {reason}"
        self._began = True
        return None

    def problem(self) -> str | None:
        """Why the process gets no requests; None if it gets them."""
        called = [each for each in self._hosted if each.program.ready_without_bus]
        missing = self.missing()
        if missing is None or not (self._began and called):
            return missing
        return next((reason for each in called if (reason := each.ready()) is not None), None)


async def _forever(run: Callable[[], Awaitable[None]]) -> None:
    await run()
    raise RuntimeError(f"{run!r} returned; it should run until it is cancelled")


def _tracing(name: str, instance: str, settings: ServiceSettings) -> Tracing:
    if not settings.otlp_endpoint:  # Empty is how compose files say "none".
        return NO_TRACING
    return OtlpTracing.for_endpoint(settings.otlp_endpoint, service=name, instance=instance)
