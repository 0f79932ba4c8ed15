"""Bad messages at every intake of every service: each is counted, said once, and the next one is read.

The intakes are those that a service opens when it runs, not a list that somebody keeps.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from typing_extensions import override

from services.console import app as console
from services.console.settings import ConsoleSettings
from services.quota.trust import refusals
from services.reference.write import pages
from services.simulator.scenarios.system import SERVICES, Runnable, System, set_up
from services.tracer.app import Tracer
from shared.bus import follow
from shared.bus.headers import TYPE
from shared.bus.port import Bus, CaughtUp, Entry, Handler, LaterError
from shared.contracts.controllers import MACHINES, MULTIKUEUE, WINDOW
from shared.contracts.kube import kinds
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed, Synced
from shared.telemetry.once import Once
from shared.telemetry.spans import Span
from shared.testing.builders import observed_object
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_streams import matches
from shared.testing.world.world import ProcessContext, World
from tests.contract.test_wire_format import EXAMPLES, NOON
from tests.fuzz import objects
from tests.unit.console.people import People

SECONDS: Final = 5.0
"""Virtual time in which a message is read and what follows from it is done."""

TYPES: Final = {
    one.subject.split(".")[1]: one for one in EXAMPLES.values() if not isinstance(one, Synced)
}
"""A message of each sort, by the token that its subject has."""

NOT_TRIED: Final = {
    "provisioner": {"KEYS"}, "tracer": {"TRACES"}, "watcher": {"OBSERVED"}, "classifier": {"WORKLOADS"},
}  # fmt: skip
"""Streams of which a service reads single messages, or its own ones when it begins: no other one waits
behind a bad one. `tests/unit/classifier/projection/test_unreadable_states.py` and its like try those."""

UNSOUND: Final = {"patcher-hub-dispatch"}
"""A hub's own patcher carries out no order, so that none is sound."""

COUNTERS: Final = (
    "sluicegate_bus_unreadable_total", "sluicegate_work_total", "sluicegate_quota_isolated_total",
    "sluicegate_refused_messages_total",
)  # fmt: skip


UNTYPED: Final = "without a type"


class Intake(NamedTuple):
    """What a service reads."""

    stream: str
    filters: tuple[str, ...]
    durable: str = ""


@dataclass(slots=True)
class Recorded:
    """What a bus was asked to read, and what was read of it."""

    opened: list[Intake] = field(default_factory=list)
    open: dict[Intake, int] = field(default_factory=dict)
    """Of these, what is read at present, and how often."""

    read: list[tuple[Intake, str]] = field(default_factory=list)
    """Intake and subject of each entry after which the reader came back for the next one."""


class RecordingBus(MemoryBus):
    """Tells what its service reads."""

    def __init__(self, *args: Any, recorded: Recorded, **more: Any) -> None:
        super().__init__(*args, **more)
        self._recorded = recorded

    @override
    def watch(self, stream: str, *filters: str) -> AsyncGenerator[Entry | CaughtUp, None]:
        return self._noting(Intake(stream, filters), super().watch(stream, *filters))

    @override
    def replay(
        self, stream: str, *filters: str, start: int = 1
    ) -> AsyncGenerator[Entry | CaughtUp, None]:
        found = super().replay(stream, *filters, start=start)
        return self._noting(Intake(stream, filters), found)

    async def _noting(
        self, intake: Intake, items: AsyncGenerator[Entry | CaughtUp, None]
    ) -> AsyncGenerator[Entry | CaughtUp, None]:
        recorded = self._recorded
        recorded.opened.append(intake)
        recorded.open[intake] = recorded.open.get(intake, 0) + 1
        try:
            async with aclosing(items):
                async for item in items:
                    yield item
                    if isinstance(item, Entry):
                        recorded.read.append((intake, item.subject))
        finally:
            recorded.open[intake] -= 1

    @override
    def work(
        self,
        stream: str,
        durable: str,
        handler: Handler,
        *,
        filters: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        intake = Intake(stream, filters, durable)
        self._recorded.opened.append(intake)
        self._recorded.open[intake] = 1

        async def noting(entry: Entry) -> None:
            try:
                await handler(entry)
            except LaterError:  # What it needs is not there yet: it is put off.
                self._recorded.read.append((intake, entry.subject))
                raise
            self._recorded.read.append((intake, entry.subject))

        super().work(stream, durable, noting, filters=filters, **options)


class _Collector:
    async def export(self, spans: Sequence[Span]) -> bool:
        """Takes all."""
        return bool(spans) or True

    def close(self) -> None:
        """Nothing is open."""


def _tracer(_system: System, context: ProcessContext, bus: Bus) -> Runnable:
    return Tracer(bus=bus, collector=_Collector(), now=context.now, settle_seconds=1.0)


def _console(_system: System, context: ProcessContext, bus: Bus) -> Runnable:
    settings = set_up(ConsoleSettings, context, console_idle_seconds=0)
    return console.assemble(settings=settings, bus=bus, now=context.now, access=People())


BUILDS: Final[Mapping[str, Any]] = {**SERVICES, "tracer": _tracer, "console": _console}

CONTROLLERS: Final = (MULTIKUEUE, MACHINES, WINDOW, "example.com/budget")


def sound() -> Iterator[Message]:
    """What is there before: it makes each service read all that it ever reads."""
    for kind, samples in objects.ALL.items():
        if kind != kinds.ADMISSION_CHECK:
            yield observed_object(kind, samples[0])
    for controller in CONTROLLERS:
        name, spec = controller.rpartition("/")[2], objects.CHECK["spec"]
        check = objects.obj(
            kinds.ADMISSION_CHECK, name, annotations=objects.CHECK["metadata"]["annotations"],
            spec={**spec, "controllerName": controller},
        )  # fmt: skip
        yield observed_object(kinds.ADMISSION_CHECK, check)
    for kind in (kinds.JOB, kinds.WORKLOAD, kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE):
        yield observed_object(kind, objects.ALL[kind][0], cluster="west")
    for cluster in ("hub", "west"):
        yield Synced(cluster=cluster, epoch="1", kinds=[], at=NOON)


def subject_in(intake: Intake, known: Sequence[str], name: str) -> str:
    """A subject that the intake reads, about something of that name."""
    pattern = intake.filters[0] if intake.filters else known[0]
    tokens = pattern.replace(">", f"team-a.{name}").split(".")
    return ".".join(name if token == "*" else token for token in tokens)


def bodies(sort: str) -> dict[str, bytes]:
    """Bodies that no correct writer sends under a subject of that sort, of different errors."""
    return {
        "cut off": b'{"cluster": "hub",',
        "of another shape": b'{"cluster": [], "namespace": 5}',
        "about another object": TYPES[sort].encode(),
        UNTYPED: b'{"cluster": "hub",',
    }


def counted() -> float:
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name in COUNTERS and sample.labels.get("result", "never") == "never"
    )


def type_of(subject: str) -> str:
    return Synced.type if subject.endswith(".synced") else TYPES[subject.split(".")[1]].type


class Bench:
    """One service alone with its bus."""

    def __init__(self, world: World, service: str) -> None:
        self.system = System(world)
        self.server = self.system.server
        self.recorded = Recorded()
        self.service = service
        self.problems: list[str] = []
        self.tried: list[Intake] = []
        [self.page] = [page for page in pages() if page.name == service]
        self.own = {message.stream for message in self.page.publishes}

        async def start(context: ProcessContext) -> None:
            bus = RecordingBus(
                self.server,
                instance=context.instance,
                random=context.random,
                recorded=self.recorded,
            )
            running = BUILDS[service](self.system, context, bus)
            await bus.start()
            await running.run()

        self.start = start

    async def publish(self, subject: str, data: bytes, type_: str) -> None:
        """Store it as it is, and let it be read."""
        headers = {TYPE: type_} if type_ else {}
        assert self.server.publish(subject, data, headers) is not None, subject
        await asyncio.sleep(SECONDS)

    async def play(self) -> None:
        others = MemoryBus(self.server, instance="others")
        await others.start()
        for message in sound():
            await others.publish(message)
        self.system.world.process(self.service, self.start, mortal=False)
        await asyncio.sleep(60)
        self.tried = [intake for intake, readers in self.recorded.open.items() if readers]
        for number, intake in enumerate(self.tried):
            opened = len(self.recorded.opened)
            await self.give_bad(intake, f"{self.service}{number}")
            if len(self.recorded.opened) != opened and intake.stream not in self.own:
                self.problems.append(f"{intake}: a bad message has it read anew")
            await self.give_good(intake)

    async def give_bad(self, intake: Intake, name: str) -> None:
        """Each bad body twice, under a subject of its own."""
        known = self.server.streams[intake.stream].subjects
        sort = subject_in(intake, known, name).split(".")[1]
        for index, (what, data) in enumerate(bodies(sort).items()):
            subject = subject_in(intake, known, f"{name}-{index}")
            before = counted()
            with capture_logs() as logs:
                for _ in range(2):
                    await self.publish(subject, data, "" if what == UNTYPED else type_of(subject))
            where = f"{intake.stream} {intake.durable} {subject}, {what}"
            if counted() - before < 2:
                self.problems.append(f"{where}: counted {counted() - before:g} of 2 times")
            # What waits for something else says so at a lower level, each time that it is tried.
            loud = [line for line in logs if line["log_level"] in {"warning", "error"}]
            # Two readers of one service may say two things about it.
            said = Counter(
                (line["event"], line.get("error"))
                for line in loud
                if line.get("subject") == subject
            )
            # Each message of a durable has a dead letter of its own.
            if not said or max(said.values()) > (
                2 if ("an entry becomes a dead letter", None) in said else 1
            ):
                self.problems.append(f"{where}: said {dict(said)}")

    async def give_good(self, intake: Intake) -> None:
        """The next one that is sound."""
        check = EXAMPLES["check"].model_copy(update={"service": "dispatcher"})
        messages = [*sound(), *EXAMPLES.values(), check]
        known = self.server.streams[intake.stream].subjects
        fits = [one for one in messages if matches(one.subject, intake.filters or known)]
        if not fits and intake.durable in UNSOUND:
            return
        if not fits:
            self.problems.append(f"{intake}: no sound message for it")
            return
        message, before, opened = fits[0], counted(), len(self.recorded.opened)
        self.recorded.read.clear()
        await self.publish(message.subject, message.encode(), type_of(message.subject))
        if (intake, message.subject) not in self.recorded.read:
            self.problems.append(f"{intake}: {message.subject} is not read")
        # Whoever else writes a service's own log has it begin anew: it reads the bad ones again.
        if counted() != before and len(self.recorded.opened) == opened:
            self.problems.append(f"{intake}: {message.subject} is refused")


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own has said nothing yet: two services read some of the same subjects."""
    for module in (follow, refusals):
        monkeypatch.setattr(module, "_logged", Once(follow.LOGGED_MAX))


@pytest.mark.parametrize("service", BUILDS)
def test_bad_message_is_counted_and_said_once_and_the_next_one_is_read(service: str) -> None:
    with World(1) as world:
        bench = Bench(world, service)
        world.run(bench.play)
        assert world.failures == []
        assert bench.problems == []
        page = bench.page
        documented = {stream for stream, _ in page.watches} | {each.stream for each in page.works}
        tried = {intake.stream for intake in bench.tried}
        assert documented - tried == NOT_TRIED.get(service, set()), "say what makes it read them"


def test_every_service_is_tried() -> None:
    assert {page.name for page in pages()} - {"pairs"} == {*BUILDS}
    assert Observed.type in {one.type for one in TYPES.values()}
