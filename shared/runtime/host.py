"""How services become a process: settings in, signals, health, graceful stop.

Usually a process is one service. On a small cluster one process runs all of them, each with a connection
to NATS of its own: nothing passes between them but what passes between processes (ADR 112).
"""

import asyncio
import gc
import signal
from collections.abc import Sequence
from typing import Final

import structlog

from shared.bus.port import NewerFormatError
from shared.runtime.command import environment_error
from shared.runtime.health import HealthServer
from shared.runtime.loop import run
from shared.runtime.service import Hosted, HostedApart, Program, Readiness
from shared.settings.base import ServiceSettings
from shared.telemetry.logging import configure_logging
from shared.telemetry.metrics import BUS_CONNECTED, READY

log = structlog.get_logger(__name__)

EXIT_FAILED: Final = 1
GC_ALLOCATIONS: Final = 50_000
GC_GENERATIONS: Final = 20


def run_service(program: Program) -> int:
    """Run one service until SIGINT or SIGTERM; return the exit status. Called by its `main`."""
    return run_services(program.name, program.settings, [program])


def run_services(
    name: str, settings: ServiceSettings, programs: Sequence[Program], *, apart: str | None = None
) -> int:
    """Run services in one process until SIGINT or SIGTERM; return the exit status.

    `settings` are those of the process: health and logs. The service called `apart` gets a thread and an
    event loop of its own. A service that ends by itself ends the process, and the log names it.
    """
    configure_logging(service=name, level=settings.log_level, format_=settings.log_format)
    _collect_garbage_seldom()
    try:
        return run(_host(settings, programs, apart))
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


async def _host(settings: ServiceSettings, programs: Sequence[Program], apart: str | None) -> int:
    hosted = [HostedApart(each) if each.name == apart else Hosted(each) for each in programs]
    readiness = Readiness(hosted)
    READY.set_function(lambda: readiness.missing() is None)
    BUS_CONNECTED.set_function(lambda: all(each.connected for each in hosted))

    async def alive() -> None:
        for each in hosted:
            await each.alive()

    health = HealthServer(
        host=settings.health_host, port=settings.health_port, ready=readiness.problem, alive=alive
    )
    port = await health.start()
    log.info("the service has started", health=f"http://{settings.health_host}:{port}/readyz")
    try:
        return await _until_stopped(hosted)
    finally:
        await health.stop()
        log.info("the service has stopped")


async def _until_stopped(hosted: Sequence[Hosted | HostedApart]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    working = {asyncio.create_task(_run(each)): each.program.name for each in hosted}
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({*working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in working if task.done()]
    for task in failed:
        _report(working[task], None if task.cancelled() else task.exception())
    stopping.cancel()
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    return EXIT_FAILED if failed else 0


def _report(service: str, error: BaseException | None) -> None:
    """Log why a service ended: a sentence for what its surroundings lack, a traceback for our faults."""
    if (newer := _first_newer(error)) is not None:
        log.error(
            "the service cannot run", service=service, problem=newer.problem, to_do=newer.to_do
        )
        return
    cause = error
    while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
        [cause] = cause.exceptions
    known = environment_error(cause) if isinstance(cause, OSError) else None
    if known is None:
        log.error("the service ended by itself", service=service, error=repr(error), exc_info=error)
        return
    log.error("the service cannot run", service=service, problem=str(known), to_do=known.hint)
    log.debug("where that was found", service=service, exc_info=error)


def _first_newer(error: BaseException | None) -> NewerFormatError | None:
    """Why this release may not serve, if that is among the causes: several tasks may have found it."""
    while isinstance(error, BaseExceptionGroup):
        error = (error.subgroup(NewerFormatError) or error).exceptions[0]
    return error if isinstance(error, NewerFormatError) else None


async def _run(hosted: Hosted | HostedApart) -> None:
    structlog.contextvars.bind_contextvars(service=hosted.program.name)
    await hosted.run()
