"""`sluice dead` on a real nats-server: an operator lists dead letters, tries them again, drops them."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner, Result

from services.ctl.connect import progress
from services.ctl.main import app
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.work.dead_letters import Retried, RetryHandler
from shared.bus.port import Entry, NeverError
from shared.contracts.messages.admissions import Admission
from shared.runtime.command import CommandError, Exit
from shared.testing.builders import workload
from shared.testing.waiting import eventually
from tests.clock import now


class Stage:
    """A service that gives up while it is `broken`, and an operator's command line."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.broken = "the cluster never takes it"
        self.handled: list[str] = []
        self.bus = NatsBus(url=url, instance="patcher-0", service="patcher", now=now)

    async def start(self) -> None:
        filters = ("sluice.workload.hub.>",)
        self.bus.work("WORKLOADS", "patcher-hub-workload", self.on_workload, filters=filters)
        handled = {"workload": Retried(stream="WORKLOADS", handler=self.on_workload)}
        RetryHandler(bus=self.bus, now=now, handled=handled).register(
            "patcher", "hub", "patcher-hub-retry"
        )
        await self.bus.start()

    async def on_workload(self, entry: Entry) -> None:
        if self.broken:
            raise NeverError(self.broken)
        self.handled.append(entry.subject)

    async def sluice(self, *arguments: str) -> Result:
        options = ("--nats-url", self.url)
        return await asyncio.to_thread(
            lambda: CliRunner().invoke(app, ["dead", *arguments, *options], catch_exceptions=True)
        )

    async def letters(self) -> list[dict[str, object]]:
        # The service of this process logs to the same place.
        text = "\n" + (await self.sluice("list", "-o", "json")).stdout
        found: list[dict[str, object]] = json.loads(f"[{text.rpartition(f'{chr(10)}[')[2]}")
        return found

    async def given_up(self, *names: str) -> None:
        """Workloads of which the service gives up, and the letters about them."""
        for name in names:
            await self.bus.publish(workload(name))

        async def listed() -> bool:
            return len(await self.letters()) == len(names)

        await eventually(listed, look_seconds=0.2)  # A command takes a tenth of a second of CPU.


@pytest.fixture
async def stage(server: EmbeddedServer) -> AsyncIterator[Stage]:
    stage = Stage(server.url)
    await stage.start()
    yield stage
    await stage.bus.stop()


async def test_letter_is_listed_shown_retried_and_closed(stage: Stage) -> None:
    assert "No dead letters" in (await stage.sluice("list")).stdout
    await stage.given_up("a")
    header, line = (await stage.sluice("list")).stdout.splitlines()
    assert header.split()[:3] == ["NUMBER", "SERVICE", "ABOUT"]
    assert line.split()[1:5] == ["patcher", "workload", "hub", "team/a"]
    assert line.endswith(stage.broken)

    again = await stage.sluice("retry", "team/a")
    assert again.exit_code == Exit.FAILED
    assert f"gave up again (try 2): {stage.broken}" in again.stdout
    [letter] = await stage.letters()
    assert (letter["tries"], letter["state"]) == (2, "open")

    stage.broken = ""
    done = await stage.sluice("retry", str(letter["number"]))
    assert (done.exit_code, done.stdout) == (0, "workload hub team/a: handled\n")
    assert stage.handled == ["sluice.workload.hub.team.a"]
    assert await stage.letters() == []


async def test_shown_letter_says_what_quota_holds_and_what_to_do(stage: Stage) -> None:
    await stage.given_up("a")
    decision = Admission(
        cluster="hub", namespace="team", name="a", uid="a", state="admitted", cluster_queue="cq",
        term=1, number=1, decided_at=now(),
    )  # fmt: skip
    await stage.bus.publish(decision)
    shown = (await stage.sluice("show", "team/a")).stdout
    assert f"reason:    {stage.broken}" in shown
    assert "quota:     admitted in cq: it holds quota" in shown
    assert "`sluice dead retry 1`" in shown


async def test_dropped_letters_are_gone_from_list_and_view(stage: Stage) -> None:
    await stage.given_up("a", "b")
    dropped = await stage.sluice("drop", "team/a")
    assert dropped.stdout == "workload hub team/a: dropped\n"
    assert [letter["original_subject"] for letter in await stage.letters()] == [
        "sluice.workload.hub.team.b"
    ]
    await stage.sluice("drop", "--all")
    assert await stage.letters() == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("show", "7"), "letter 7: is not among the open letters"),
        (("retry",), "--all: or LETTER must say which letters are meant"),
        (("drop", "7", "--all"), "--all: excludes LETTER"),
    ],
)
async def test_wrong_letter_is_named(
    stage: Stage, arguments: tuple[str, ...], problem: str
) -> None:
    found = await stage.sluice(*arguments)
    assert isinstance(found.exception, CommandError)
    assert str(found.exception).startswith(problem)


async def test_retry_without_the_service_fails_with_no_answer_yet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    await stage.given_up("a")
    await stage.bus.stop()
    found = await stage.sluice("retry", "--all", "--wait-seconds", "0.2")
    assert "sluice: waiting 0.2 s at most for answers to " in found.stderr
    assert found.exit_code == Exit.FAILED
    assert "no answer yet from patcher of hub" in found.stdout
