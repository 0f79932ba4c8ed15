"""Several services as one process: who ends it, who blocks whom, and when it is ready."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from shared.runtime import host
from shared.runtime.connections import bound
from shared.runtime.host import EXIT_FAILED, run_services
from shared.runtime.service import HostedApart, Parts, Program, Readiness, Service
from shared.settings.base import ServiceSettings
from shared.testing.waiting import PATIENCE_SECONDS

SETTINGS = ServiceSettings(nats_url="nats://127.0.0.1:9", instance="test")
"""Nobody listens there: what runs beside the bus needs none."""

Companion = Callable[[], Awaitable[None]]


class Idle:
    """A service that waits for NATS."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason

    async def run(self) -> None:
        await asyncio.Event().wait()

    def ready(self) -> str | None:
        return self.reason


def a_program(
    name: str,
    *companions: Companion,
    ready_without_bus: bool = False,
    open_ones: list[str] | None = None,
) -> Program:
    opened = [] if open_ones is None else open_ones

    async def close() -> None:
        opened.remove(name)

    def build(parts: Parts) -> Service:
        opened.append(name)
        parts.on_stop(close)
        for companion in companions:
            parts.beside(companion)
        return Idle()

    return Program(name=name, settings=SETTINGS, build=build, ready_without_bus=ready_without_bus)


async def listens_where_another_does() -> None:
    with closing(bound("127.0.0.1", 0)) as taken:
        taken.listen()
        bound("127.0.0.1", taken.getsockname()[1])


async def fails() -> None:
    raise ValueError("it cannot go on")


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "configure_logging", lambda **_: None)
    monkeypatch.setattr(host, "_collect_garbage_seldom", lambda: None)


@pytest.mark.parametrize("apart", [None, "console"])
def test_a_port_that_is_taken_is_reported_in_a_sentence(apart: str | None) -> None:
    with capture_logs() as logs:
        programs = [a_program("console", listens_where_another_does)]
        assert run_services("all", SETTINGS, programs, apart=apart) == EXIT_FAILED
    (told,) = [line for line in logs if line["log_level"] == "error"]
    assert told["event"] == "the service cannot run"
    assert told["service"] == "console"
    assert told["problem"].endswith(": address already in use")
    assert told["to_do"] == "stop what listens there, or set another port"
    assert "exc_info" not in told


@pytest.mark.parametrize("apart", [None, "broken", "well"])
def test_a_service_that_fails_ends_the_process_and_is_named(apart: str | None) -> None:
    opened: list[str] = []
    with capture_logs() as logs:
        programs = [
            a_program("well", open_ones=opened),
            a_program("broken", fails, open_ones=opened),
        ]
        assert run_services("all", SETTINGS, programs, apart=apart) == EXIT_FAILED
    (ended,) = [line for line in logs if line["event"] == "the service ended by itself"]
    assert ended["service"] == "broken"
    assert "it cannot go on" in repr(ended["exc_info"].exceptions)
    assert opened == [], "what was opened is closed"


def test_what_runs_beside_a_service_and_returns_ends_the_process() -> None:
    async def returns() -> None:
        pass

    assert run_services("all", SETTINGS, [a_program("broken", returns)]) == EXIT_FAILED


def test_a_service_apart_goes_on_while_another_blocks_its_loop() -> None:
    blocking, answered = threading.Event(), threading.Event()
    came: list[bool] = []

    async def blocks() -> None:
        blocking.set()
        came.append(answered.wait(PATIENCE_SECONDS))
        raise RuntimeError("done")

    async def answers() -> None:
        while not blocking.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        answered.set()
        await asyncio.Event().wait()

    programs = [a_program("engine", blocks), a_program("webhook", answers)]
    assert run_services("all", SETTINGS, programs, apart="webhook") == EXIT_FAILED
    assert came == [True]


async def test_a_service_apart_is_alive_when_its_loop_has_a_turn() -> None:
    blocking, go_on = threading.Event(), threading.Event()

    async def blocks() -> None:
        blocking.set()
        go_on.wait(PATIENCE_SECONDS)
        await asyncio.Event().wait()

    apart = HostedApart(a_program("webhook", blocks))
    running = asyncio.create_task(apart.run())
    await asyncio.to_thread(blocking.wait, PATIENCE_SECONDS)
    asked = asyncio.create_task(apart.alive())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not asked.done()
    go_on.set()
    await asked
    # NATS refuses the connection in that moment: what is stopped ends all the same.
    running.cancel()
    await asyncio.wait([running])
    await apart.alive()


class Fake:
    """A hosted service of which only the readiness is asked."""

    def __init__(self, name: str, *, called: bool = False) -> None:
        self.program = a_program(name, ready_without_bus=called)
        self.reason: str | None = f"{name} starts"

    def ready(self) -> str | None:
        return self.reason


def test_a_process_is_ready_when_all_are_and_then_while_those_are_that_others_call() -> None:
    quota, webhook = Fake("quota"), Fake("webhook", called=True)
    readiness = Readiness([quota, webhook])  # type: ignore[list-item]  # what is asked of them
    steps: list[tuple[str | None, str | None, str | None]] = [
        ("reading", None, "quota: reading"),
        (None, "no rules", "webhook: no rules"),
        (None, None, None),
        ("no connection to NATS", None, None),
        ("no connection to NATS", "no rules", "no rules"),
        (None, None, None),
    ]
    for quota.reason, webhook.reason, expected in steps:
        assert readiness.problem() == expected
    quota.reason = "reading"
    assert readiness.missing() == "quota: reading"


def test_a_process_of_one_uncalled_service_is_ready_while_it_works() -> None:
    quota = Fake("quota")
    readiness = Readiness([quota])  # type: ignore[list-item]  # what is asked of it
    for quota.reason in (None, "reading", None):
        assert readiness.problem() == quota.reason
