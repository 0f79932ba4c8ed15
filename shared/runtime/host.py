"""How a service becomes a process: settings in, signals, health, graceful stop."""

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from shared.bus.admin.permissions import consumers_of, reads_of, writes_of
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Bus
from shared.runtime.health import HealthServer
from shared.runtime.loop import run
from shared.settings.base import ServiceSettings
from shared.telemetry.logging import configure_logging
from shared.telemetry.metrics import BUS_CONNECTED, READY
from shared.telemetry.tracing import NO_TRACING, OtlpTracing, Tracing

log = structlog.get_logger(__name__)

EXIT_FAILED: Final = 1
GC_ALLOCATIONS: Final = 50_000
GC_GENERATIONS: Final = 20


class Service(Protocol):
    """What `assemble` returns."""

    async def run(self) -> None:
        """Work until cancelled. Returning or raising ends the process, and whoever watches restarts it."""

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


def utc_now() -> datetime:
    """The clock of a process."""
    return datetime.now(UTC)


def run_service(
    name: str, settings: ServiceSettings, build: Build, *, ready_without_bus: bool = False
) -> int:
    """Run the service until SIGINT or SIGTERM; return the exit status. Called by its `main`.

    `ready_without_bus`: an outage of NATS must not take it out of its Kubernetes Service.
    """
    configure_logging(service=name, level=settings.log_level, format_=settings.log_format)
    _collect_garbage_seldom()
    try:
        return run(_host(name, settings, build, ready_without_bus=ready_without_bus))
    except KeyboardInterrupt:
        return 0


def _collect_garbage_seldom() -> None:
    """Leave what was imported out of it, and look at the rest less often than after 700 allocations.

    A service keeps hundreds of thousands of small objects that never form cycles; walking over them
    again and again took a tenth of its CPU, in pauses.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, GC_GENERATIONS, GC_GENERATIONS)


async def _host(
    name: str, settings: ServiceSettings, build: Build, *, ready_without_bus: bool
) -> int:
    instance = f"{name}-{settings.instance}"
    tracing = _tracing(name, instance, settings)
    bus = NatsBus(
        url=settings.nats_url,
        instance=instance,
        service=name,
        access=settings.nats_access,
        reads=reads_of(name),
        writes=writes_of(name, settings.cluster),
        consumers=consumers_of(name),
        now=utc_now,
    )
    closers: list[Callable[[], Awaitable[None]]] = []
    companions: list[Callable[[], Awaitable[None]]] = []
    service = build(
        Parts(bus=bus, tracing=tracing, on_stop=closers.append, beside=companions.append)
    )

    def ready() -> str | None:
        if bus.connected or ready_without_bus:
            return service.ready()
        return f"no connection to NATS at {settings.nats_url}"

    READY.set_function(lambda: ready() is None)
    BUS_CONNECTED.set_function(lambda: bus.connected)
    health = HealthServer(host=settings.health_host, port=settings.health_port, ready=ready)
    port = await health.start()
    log.info("started", health=f"http://{settings.health_host}:{port}/readyz")
    try:
        return await _until_stopped(service, bus, settings, companions)
    finally:
        for close in closers:
            await close()
        await health.stop()
        tracing.close()
        log.info("stopped")


async def _until_stopped(
    service: Service,
    bus: Bus,
    settings: ServiceSettings,
    companions: list[Callable[[], Awaitable[None]]],
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    async def serve() -> None:
        await bus.start()
        await service.run()

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            for companion in companions:
                group.create_task(_forever(companion))
            group.create_task(_forever(serve))

    working = asyncio.create_task(work(), name="service")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    failed = working.done()
    working.cancel()
    stopping.cancel()
    results = await asyncio.gather(working, return_exceptions=True)
    if failed:
        error = results[0] if isinstance(results[0], BaseException) else None
        log.error("the service ended by itself", error=repr(error), exc_info=error)
    try:
        async with asyncio.timeout(settings.graceful_stop_seconds):
            await bus.stop()
    except TimeoutError:
        log.warning("some work did not finish in time; it will be done again")
    return EXIT_FAILED if failed else 0


async def _forever(run: Callable[[], Awaitable[None]]) -> None:
    await run()
    raise RuntimeError(f"{run!r} returned; it should run until it is cancelled")


def _tracing(name: str, instance: str, settings: ServiceSettings) -> Tracing:
    if not settings.otlp_endpoint:  # Empty is how compose files say "none".
        return NO_TRACING
    return OtlpTracing.for_endpoint(settings.otlp_endpoint, service=name, instance=instance)
