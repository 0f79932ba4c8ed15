"""What publishing promises."""

import asyncio
from datetime import UTC, datetime

import pytest

from shared.bus.port import FencedError, StreamFullError, TooLargeError
from shared.contracts.messages.workloads import WorkloadState
from tests.contract.bus.stage import Readings, Stage, error_of, outcome, step_of, workload


async def test_messages_are_stored_in_the_order_of_the_calls(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    await bus.start()

    futures = [bus.publish(workload(f"job-{i % 7}", step=i)) for i in range(2000)]

    assert await asyncio.gather(*futures) == list(range(1, 2001))
    entries, end = await read(bus.replay("WORKLOADS")).until_caught_up()
    assert [step_of(entry)[1] for entry in entries] == list(range(2000))
    assert end.sequence == 2000
    assert await bus.last_sequence("WORKLOADS") == 2000


async def test_flush_waits_for_everything_published(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()

    futures = [asyncio.ensure_future(bus.publish(workload(step=i))) for i in range(100)]
    await bus.flush()

    assert all(future.done() for future in futures)
    assert await bus.last_sequence("WORKLOADS") == 100


async def test_flush_raises_the_first_error_once(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    bus.publish(workload())
    bus.publish(workload(step=1), expect_last=17)
    bus.publish(workload(step=2), expect_subject=99)

    with pytest.raises(FencedError):
        await bus.flush()

    await bus.flush()


async def test_flush_does_not_raise_an_error_that_was_raised_before(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload())

    assert isinstance(await error_of(bus.publish(workload(step=1), expect_last=17)), FencedError)

    await bus.flush()


async def test_same_message_id_is_stored_once(bus_factory: Stage) -> None:
    one, other = bus_factory.bus("one"), bus_factory.bus("other")
    await one.start()
    await other.start()

    class Named(WorkloadState):
        @property
        def message_id(self) -> str:
            return f"named:{self.generation}"

    def named(step: int) -> Named:
        return Named.model_validate(workload(step=step).model_dump())

    first = await one.publish(named(1))
    assert await other.publish(named(1)) == first
    assert await one.publish(named(2)) == first + 1
    assert await one.last_sequence("WORKLOADS") == first + 1


async def test_messages_without_an_id_of_their_own_are_all_stored(bus_factory: Stage) -> None:
    first_life, second_life = bus_factory.bus("same"), bus_factory.bus("same")
    await first_life.start()
    await second_life.start()

    assert await first_life.publish(workload()) == 1
    assert await first_life.publish(workload()) == 2
    assert await second_life.publish(workload()) == 3


async def test_fence_accepts_expected_sequences_and_refuses_stale_ones(bus_factory: Stage) -> None:
    leader, other = bus_factory.bus("leader"), bus_factory.bus("other")
    await leader.start()
    await other.start()

    pipelined = [leader.publish(workload(f"j{i}"), expect_last=i) for i in range(200)]
    assert await asyncio.gather(*pipelined) == list(range(1, 201))

    await other.publish(workload("intruder"))
    stale = [leader.publish(workload(f"k{i}"), expect_last=200 + i) for i in range(3)]
    errors = [await error_of(future) for future in stale]
    # The first is refused; those behind it carry predictions that assumed it.
    assert isinstance(errors[0], FencedError)
    assert await leader.last_sequence("WORKLOADS") in {201, 202, 203}

    last = await leader.last_sequence("WORKLOADS")
    assert await leader.publish(workload("again"), expect_last=last) == last + 1


async def test_messages_after_a_refused_fence_are_not_stored(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload())

    futures = [bus.publish(workload(f"k{i}"), expect_last=50 + i) for i in range(1500)]
    errors = [await error_of(future) for future in futures]

    assert {type(error) for error in errors} == {FencedError}
    assert await bus.last_sequence("WORKLOADS") == 1


async def test_subject_can_be_fenced_alone(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()

    first = await bus.publish(workload("a"), expect_subject=0)
    await bus.publish(workload("b"), expect_subject=0)
    third = await bus.publish(workload("a", step=1), expect_subject=first)

    assert isinstance(
        await error_of(bus.publish(workload("a", step=2), expect_subject=first)), FencedError
    )
    assert await bus.publish(workload("a", step=3), expect_subject=third) == third + 1


async def test_full_log_refuses_and_accepts_messages_again_later(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload())
    await bus_factory.fill_up("WORKLOADS")

    assert isinstance(await error_of(bus.publish(workload(step=1))), StreamFullError)
    assert await bus.publish(outcome()) == 1, "another log is not concerned"

    await bus_factory.make_room("WORKLOADS")
    assert await bus.publish(workload(step=1)) == 2


async def test_too_large_message_is_refused_and_the_bus_continues(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    large = workload().model_copy(update={"labels": {"x": "y" * (5 << 20)}})

    results = [bus.publish(workload()), bus.publish(large)]

    assert await results[0] == 1
    assert isinstance(await error_of(results[1]), TooLargeError)
    assert await bus.publish(workload(step=1)) == 2


async def test_trace_context_that_is_too_large_for_a_header_stops_no_message(
    bus_factory: Stage,
) -> None:
    bus = bus_factory.bus()
    await bus.start()
    assert await bus.publish(workload().model_copy(update={"traceparent": "0" * 100_000})) == 1
    assert await bus.publish(workload(step=1)) == 2


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("*.>", id="wildcards"),
        pytest.param("a b\tc\r\nNats-Expected-Last-Sequence: 7", id="blanks and a header"),
        pytest.param("名前-ünïcode-🚦", id="letters of the world"),
        pytest.param("x" * 253, id="the longest name"),
        pytest.param("\x00\x01\x7f", id="control characters"),
        pytest.param("..", id="dots"),
        pytest.param("_", id="the token for no name"),
    ],
)
async def test_hostile_names_are_encoded_and_decoded(
    bus_factory: Stage, read: Readings, name: str
) -> None:
    bus = bus_factory.bus(instance=f"instance {name}")
    await bus.start()
    message = workload(name, namespace=name)

    await bus.publish(message)

    entries, _ = await read(bus.watch("WORKLOADS")).until_caught_up()
    assert [(e.subject, WorkloadState.decode(e.data)) for e in entries] == [
        (message.subject, message)
    ]


async def test_headers_are_cloud_events_and_carry_the_trace(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus("projector-0")
    await bus.start()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message = workload().model_copy(update={"traceparent": trace})

    before = datetime.now(UTC)
    await bus.publish(message)
    after = datetime.now(UTC)

    entries, _ = await read(bus.watch("WORKLOADS")).until_caught_up()
    headers = entries[0].headers
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-type"] == "dev.sluicegate.workload.v1"
    assert headers["ce-source"] == "projector-0"
    assert headers["ce-id"]
    assert headers["content-type"] == "application/json"
    assert before <= datetime.fromisoformat(headers["ce-time"]) <= after
    assert WorkloadState.decode(entries[0].data, headers).traceparent == trace


async def test_latest_message_of_a_subject_is_returned(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    await bus.publish(workload("a", step=1))
    await bus.publish(workload("a", step=2))
    await bus.publish(workload("b", step=3))

    latest = await bus.latest("WORKLOADS", workload("a").subject)

    assert latest is not None
    assert (step_of(latest), latest.sequence) == (("a", 2), 2)
    assert await bus.latest("WORKLOADS", workload("c").subject) is None
    assert await bus.last_sequence("OUTCOMES") == 0


async def test_fill_level_of_a_log_is_returned(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    assert (await bus.log_end("WORKLOADS")).fullness == 0.0
    for step in range(100):
        bus.publish(workload(step=step))
    await bus.flush()
    before = (await bus.log_end("WORKLOADS")).fullness
    assert 0.0 < before < 0.01
    await bus_factory.fill_up("WORKLOADS")
    assert (await bus.log_end("WORKLOADS")).fullness >= 1.0
