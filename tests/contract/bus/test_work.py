"""What durable work promises."""

import asyncio

import pytest

from shared.bus.port import Bus, Entry, LaterError, NeverError
from shared.contracts.messages.outcomes import DeadLetter
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.waiting import eventually
from tests.contract.bus.stage import (
    QUICK_ACK_WAIT,
    Readings,
    Stage,
    outcome,
    step_of,
    workload,
)


class Handling:
    """Records what a handler was given; behaves as the test says."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.running = 0
        self.most_running = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1

    @property
    def steps(self) -> list[tuple[str, int]]:
        return [step_of(entry) for entry in self.entries]


async def publish_all(bus: Bus, *messages: WorkloadState) -> None:
    for message in messages:
        bus.publish(message)
    await bus.flush()


async def test_handler_gets_stored_and_new_messages(bus_factory: Stage) -> None:
    writer, bus, handler = bus_factory.bus("writer"), bus_factory.bus(), Handling()
    await writer.start()
    await publish_all(writer, workload("a"), workload("b"))
    bus.work("WORKLOADS", "worker", handler)
    await bus.start()

    await eventually(lambda: len(handler.entries) == 2)
    await publish_all(writer, workload("c"))
    await eventually(lambda: len(handler.entries) == 3)

    assert [(e.sequence, e.deliveries) for e in handler.entries] == [(1, 1), (2, 1), (3, 1)]


async def test_filters_choose_what_a_durable_gets(bus_factory: Stage) -> None:
    bus, handler = bus_factory.bus(), Handling()
    bus.work("WORKLOADS", "worker", handler, filters=("sluice.workload.*.team-b.>",))
    await bus.start()

    await publish_all(bus, workload("a"), workload("b", namespace="team-b"), workload("c"))
    await eventually(lambda: len(handler.entries) == 1)
    await asyncio.sleep(0.1)

    assert handler.steps == [("b", 0)]


async def test_each_handler_gets_the_messages_of_its_own_durable(bus_factory: Stage) -> None:
    bus, handlers = bus_factory.bus(), [Handling() for _ in range(12)]
    for number, handler in enumerate(handlers):
        filters = (f"sluice.workload.*.team-{number}.>",)
        bus.work("WORKLOADS", f"worker-{number}", handler, filters=filters)
    await bus.start()

    each = [workload(f"w{number}", namespace=f"team-{number}") for number in range(12)]
    await publish_all(bus, *each)
    await eventually(lambda: sum(len(handler.entries) for handler in handlers) == 12)

    assert [handler.steps for handler in handlers] == [[(f"w{number}", 0)] for number in range(12)]


async def test_handled_entry_is_not_delivered_after_a_restart(bus_factory: Stage) -> None:
    first, handler = bus_factory.bus("first"), Handling()
    first.work("WORKLOADS", "worker", handler)
    await first.start()
    await publish_all(first, workload("a"))
    await eventually(lambda: len(handler.entries) == 1)
    await first.stop()

    second, again = bus_factory.bus("second"), Handling()
    second.work("WORKLOADS", "worker", again)
    await second.start()
    await publish_all(second, workload("b"))
    await eventually(lambda: bool(again.entries))
    await asyncio.sleep(0.1)

    assert again.steps == [("b", 0)]


async def test_flood_of_updates_to_one_object_coalesces(bus_factory: Stage, read: Readings) -> None:
    bus, handler = bus_factory.bus(), Handling()
    handler.open.clear()
    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("a"))
    await eventually(lambda: handler.running == 1)

    await publish_all(bus, *(workload("a", step=step) for step in range(1, 500)))
    await read(bus.watch("WORKLOADS")).until_caught_up()  # A view follows its log a moment later.
    handler.open.set()
    await eventually(lambda: handler.steps[-1] == ("a", 499))

    assert len(handler.entries) < 100


async def test_later_redelivers_after_the_delay(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    loop = asyncio.get_running_loop()
    calls: list[tuple[float, int]] = []

    async def handler(entry: Entry) -> None:
        calls.append((loop.time(), entry.deliveries))
        if len(calls) < 3:
            raise LaterError("not yet", delay_seconds=0.2)

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("a"))
    await eventually(lambda: len(calls) == 3)

    assert [deliveries for _, deliveries in calls] == [1, 2, 3]
    assert calls[1][0] - calls[0][0] >= 0.15
    assert calls[2][0] - calls[1][0] >= 0.15


async def test_later_without_a_delay_backs_off(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    loop = asyncio.get_running_loop()
    calls: list[tuple[float, int]] = []

    async def handler(entry: Entry) -> None:
        calls.append((loop.time(), entry.deliveries))
        if len(calls) < 3:
            raise LaterError("not yet")

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("a"))
    await eventually(lambda: len(calls) == 3)

    assert [deliveries for _, deliveries in calls] == [1, 2, 3]
    assert calls[1][0] - calls[0][0] >= 0.05
    # A pause is 75 % to 100 % of twice the one before; see `backoff_seconds`.
    assert calls[2][0] - calls[1][0] >= 0.15


async def test_other_error_loses_no_entry_and_affects_no_other(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    handled: list[str] = []
    failures = 0

    async def handler(entry: Entry) -> None:
        nonlocal failures
        name, _ = step_of(entry)
        if name == "poison" and (failures < 2 or len(handled) < 2):
            failures += 1
            raise ZeroDivisionError("a bug of ours")
        handled.append(name)

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("poison"), workload("fine"), workload("also-fine"))

    await eventually(lambda: len(handled) == 3)
    assert handled == ["fine", "also-fine", "poison"]


async def test_delayed_entry_is_superseded_by_a_newer_one(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    handled: list[int] = []

    async def handler(entry: Entry) -> None:
        _, step = step_of(entry)
        handled.append(step)
        if step == 0:
            raise LaterError("wait", delay_seconds=1.5)

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("a", step=0))
    await eventually(lambda: bool(handled))
    await publish_all(bus, workload("a", step=1))
    await eventually(lambda: handled[-1] == 1)
    await asyncio.sleep(2)

    assert handled[-1] == 1, "the older state did not come back"
    assert handled.count(1) == 1


async def test_never_moves_the_entry_to_the_dead_letters(
    bus_factory: Stage, read: Readings
) -> None:
    bus, calls = bus_factory.bus("patcher-0"), Handling()

    async def handler(entry: Entry) -> None:
        await calls(entry)
        raise NeverError("Tekton refuses it")

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("a", step=4))

    letter = DeadLetter.decode((await read(bus.watch("DEAD")).entries(1))[0].data)
    assert letter.reason == "Tekton refuses it"
    assert (letter.original_subject, letter.original_sequence) == (workload("a").subject, 1)
    assert WorkloadState.decode(letter.body.encode()).generation == 4
    await asyncio.sleep(0.3)
    assert len(calls.entries) == 1


async def test_undecodable_body_becomes_a_dead_letter(bus_factory: Stage, read: Readings) -> None:
    bus = bus_factory.bus("patcher-0")

    class Strange(WorkloadState):
        def encode(self) -> bytes:
            return b"\xff\xfe not json"

    async def handler(entry: Entry) -> None:
        WorkloadState.decode(entry.data, entry.headers)

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, Strange.model_validate(workload("a").model_dump()))

    letter = DeadLetter.decode((await read(bus.watch("DEAD")).entries(1))[0].data)
    assert letter.encoding == "base64"
    assert "dev.sluicegate.workload.v1" in letter.reason


async def test_handlers_of_different_objects_run_at_once(bus_factory: Stage) -> None:
    bus, handler = bus_factory.bus(), Handling()
    handler.open.clear()
    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, *(workload(f"job-{i}") for i in range(8)))

    await eventually(lambda: handler.running == 8)
    handler.open.set()


async def test_slow_handler_does_not_delay_later_entries(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    slow, handled = asyncio.Event(), Handling()

    async def handler(entry: Entry) -> None:
        if step_of(entry)[0] == "slow":
            await slow.wait()
        await handled(entry)

    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("slow"))
    await asyncio.sleep(0.05)
    await publish_all(bus, *(workload(f"job-{i}") for i in range(100)))

    await eventually(lambda: len(handled.entries) == 100)
    slow.set()
    await eventually(lambda: len(handled.entries) == 101)


async def test_entries_of_one_key_are_handled_one_at_a_time_over_all_registrations(
    bus_factory: Stage,
) -> None:
    bus, handler = bus_factory.bus(), Handling()
    by_object: dict[str, int] = {}
    most = 0

    async def counting(entry: Entry) -> None:
        nonlocal most
        name = entry.subject.split(".")[4]
        by_object[name] = by_object.get(name, 0) + 1
        most = max(most, by_object[name])
        await asyncio.sleep(0.01)
        by_object[name] -= 1
        await handler(entry)

    def name_of(entry: Entry) -> str:
        return entry.subject.split(".")[4]

    bus.work("WORKLOADS", "workloads", counting, key=name_of)
    bus.work("OUTCOMES", "outcomes", counting, key=name_of)
    await bus.start()
    for name in ("a", "b", "c"):
        bus.publish(workload(name))
        bus.publish(outcome(name))
    await bus.flush()
    await eventually(lambda: len(handler.entries) == 6)

    assert most == 1


@QUICK_ACK_WAIT
async def test_long_handler_keeps_its_entry(bus_factory: Stage) -> None:
    bus, handler = bus_factory.bus(), Handling()
    handler.open.clear()
    bus.work("WORKLOADS", "worker", handler)
    await bus.start()
    await publish_all(bus, workload("a"))
    await eventually(lambda: handler.running == 1)

    await asyncio.sleep(2.5)  # more than twice the time after which it counts as lost
    handler.open.set()
    await asyncio.sleep(0.2)

    assert len(handler.entries) == 1


@QUICK_ACK_WAIT
async def test_entry_unacknowledged_at_a_crash_goes_to_another_replica(
    bus_factory: Stage,
) -> None:
    first, stuck = bus_factory.bus("first"), Handling()
    stuck.open.clear()
    first.work("WORKLOADS", "worker", stuck)
    await first.start()
    await publish_all(first, workload("a", step=3))
    await eventually(lambda: stuck.running == 1)
    await bus_factory.crash(first)

    second, handler = bus_factory.bus("second"), Handling()
    second.work("WORKLOADS", "worker", handler)
    await second.start()
    await eventually(lambda: bool(handler.entries))

    assert handler.steps == [("a", 3)]
    assert handler.entries[0].deliveries == 2


async def test_durable_is_shared_among_replicas(bus_factory: Stage) -> None:
    buses, handlers = [bus_factory.bus("one"), bus_factory.bus("two")], [Handling(), Handling()]
    for bus, handler in zip(buses, handlers, strict=True):
        bus.work("WORKLOADS", "worker", handler)
        await bus.start()

    for i in range(50):
        await publish_all(buses[0], workload(f"job-{i}"))
    await eventually(lambda: sum(len(handler.entries) for handler in handlers) == 50)
    await asyncio.sleep(0.1)

    steps = [step for handler in handlers for step in handler.steps]
    assert len(set(steps)) == len(steps) == 50


@QUICK_ACK_WAIT
async def test_stop_lets_a_running_handler_finish(bus_factory: Stage) -> None:
    bus, handler = bus_factory.bus("first"), Handling()
    finished = False

    async def slow(entry: Entry) -> None:
        nonlocal finished
        await handler(entry)
        await asyncio.sleep(0.3)
        finished = True

    bus.work("WORKLOADS", "worker", slow)
    await bus.start()
    await publish_all(bus, workload("a"))
    await eventually(lambda: bool(handler.entries))
    await bus.stop()
    assert finished

    second, again = bus_factory.bus("second"), Handling()
    second.work("WORKLOADS", "worker", again)
    await second.start()
    with pytest.raises(TimeoutError):
        await eventually(lambda: bool(again.entries), seconds=1.5)
