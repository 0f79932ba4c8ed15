"""Releases N and N+1 beside each other: nothing that a newer one wrote is given up or believed half."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

from shared.bus.admin.asyncapi import CONTRACTS
from shared.bus.follow import read as read_message
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.base import SCHEMA_VERSION, Message, NewerSchemaError
from shared.contracts.messages.outcomes import DeadLetter
from shared.contracts.messages.workloads import WorkloadState
from shared.telemetry.metrics import NEWER, WORK
from shared.testing.waiting import eventually
from tests.contract.bus.stage import Readings, Stage, workload

RECORDED = Path(__file__).parents[1] / "recorded" / "2f44c83.jsonl"


class NextState(WorkloadState):
    """The same type, as the next release has it."""

    schema_version: ClassVar[int] = WorkloadState.schema_version + 1


def newer(name: str, *, step: int = 0) -> NextState:
    return NextState.model_validate(workload(name, step=step).model_dump())


class Replica:
    """A replica of a service that shares the durable with those of the other release."""

    def __init__(self, kind: type[WorkloadState]) -> None:
        self.kind = kind
        self.handled: list[tuple[str, int]] = []

    async def __call__(self, entry: Entry) -> None:
        state = entry.read(self.kind)
        self.handled.append((state.name, state.generation))


async def test_work_of_a_newer_release_waits_for_a_newer_replica(
    bus_factory: Stage, read: Readings
) -> None:
    old_bus, old = bus_factory.bus("old"), Replica(WorkloadState)
    old_bus.work("WORKLOADS", "worker", old)
    await old_bus.start()
    before = WORK.labels("worker", "newer")._value.get()
    old_bus.publish(newer("a"))
    old_bus.publish(workload("b"))
    await old_bus.flush()
    await eventually(lambda: WORK.labels("worker", "newer")._value.get() >= before + 2)
    await eventually(lambda: old.handled == [("b", 0)])

    new_bus, new = bus_factory.bus("new"), Replica(NextState)
    new_bus.work("WORKLOADS", "worker", new)
    await new_bus.start()
    await eventually(lambda: ("a", 0) in new.handled)

    # Rolling upgrade: both go on, and each state is handled by a replica that knows it.
    for step in range(1, 4):
        new_bus.publish(newer("a", step=step))
        new_bus.publish(workload("b", step=step))
    await new_bus.flush()
    await eventually(lambda: ("a", 3) in new.handled)
    await eventually(lambda: ("b", 3) in old.handled + new.handled)
    assert all(name == "b" for name, _ in old.handled)
    assert await new_bus.last_sequence(DeadLetter.stream) == 0


async def test_reader_holds_newer_state_apart_and_a_newer_reader_takes_it(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    bus.publish(workload("a", step=1))
    bus.publish(newer("a", step=2))
    await bus.flush()
    # A view that follows its log a moment later may show the first state before.
    *_, entry = (await read(bus.watch("WORKLOADS")).until_caught_up())[0]
    before = NEWER.labels("WORKLOADS")._value.get()

    assert read_message(entry, WorkloadState) is None
    assert NEWER.labels("WORKLOADS")._value.get() == before + 1
    assert (known := read_message(entry, NextState)) is not None
    assert known.generation == 2


async def test_message_says_its_schema_version(bus_factory: Stage, read: Readings) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload("a"))
    (entry,) = await read(bus.replay("WORKLOADS")).entries(1)
    assert entry.headers[SCHEMA_VERSION] == str(WorkloadState.schema_version)


@pytest.mark.parametrize("version", ["2", "99", "1.1", "v2"])
def test_body_of_a_schema_that_is_not_known_is_newer_whatever_it_holds(version: str) -> None:
    with pytest.raises(NewerSchemaError, match="upgrade this service"):
        WorkloadState.decode(b"\xff", {SCHEMA_VERSION: version})


@pytest.mark.parametrize("version", [None, "0", "1"])
def test_body_of_a_schema_that_is_known_is_read(version: str | None) -> None:
    headers = {} if version is None else {SCHEMA_VERSION: version}
    state = workload("a")
    assert WorkloadState.decode(state.encode(), headers) == state


def test_logs_of_the_release_before_schema_versions_are_read() -> None:
    kinds = {
        kind.type: kind
        for module in CONTRACTS
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Message) and "type" in vars(kind)
    }
    read_types = set()
    for line in RECORDED.read_text().splitlines():
        stored = json.loads(line)
        kind = kinds[stored["headers"]["ce-type"]]
        message = kind.decode(stored["data"].encode(), stored["headers"])
        assert message.subject == stored["subject"]
        assert SCHEMA_VERSION not in stored["headers"]
        read_types.add(kind)
    assert {Admission, Term, WorkloadState} <= read_types
    assert len(read_types) >= 10
