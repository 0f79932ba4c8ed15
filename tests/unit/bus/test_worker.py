"""The policy of durable work, where no server is needed to see it."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.nats.work.dead_letters import DEAD_BODY_MAX, dead_letter
from shared.bus.nats.work.worker import (
    IN_FLIGHT_MAX,
    Registration,
    Worker,
    backoff_seconds,
)
from shared.bus.port import BusError, Entry, Handler, LaterError, NeverError, UnavailableError
from shared.contracts.messages.base import Message, NewerSchemaError
from shared.contracts.subjects import SUBJECT_BYTES_MAX
from shared.testing.waiting import eventually
from tests.contract.bus.stage import AT


def entry(data: bytes, subject: str = "sluice.workload.hub.a.b") -> Entry:
    return Entry(subject=subject, data=data, headers={}, sequence=7, time=AT)


@given(st.integers(min_value=1, max_value=10**9), st.integers())
def test_back_off_grows_to_a_minute(deliveries: int, seed: int) -> None:
    pause = backoff_seconds(deliveries, Random(seed))

    assert 0.18 < pause <= 60.0
    if deliveries >= 10:
        assert pause >= 45.0


def test_back_off_doubles() -> None:
    whole = [max(backoff_seconds(n, Random(seed)) for seed in range(200)) for n in range(1, 9)]

    for one, next_ in pairwise(whole):
        assert next_ / one == pytest.approx(2.0, rel=0.05)


@given(st.binary(max_size=500))
def test_any_body_becomes_a_dead_letter_that_can_be_sent(data: bytes) -> None:
    letter = dead_letter("patcher", entry(data), "because", AT)

    assert type(letter).decode(letter.encode()) == letter
    if letter.encoding == "utf-8":
        assert letter.body.encode() == data


def test_large_body_is_truncated_and_marked() -> None:
    letter = dead_letter("patcher", entry(b"\xff" * 1_000_000), "x" * 100_000, AT)

    assert letter.encoding == "base64"
    assert f"cut at {DEAD_BODY_MAX}" in letter.reason
    assert len(letter.encode()) < 100_000


def test_subject_of_a_dead_letter_is_bounded() -> None:
    longest = "sluice.workload." + "x" * (SUBJECT_BYTES_MAX - 16)

    letter = dead_letter("s" * 60, entry(b"", longest), "because", AT)

    assert len(letter.subject) < 3000


class Delivery:
    """A message as nats-py delivers it, and what was answered."""

    def __init__(self, sequence: int, *, subject: str = "sluice.workload.hub.a.b") -> None:
        self.subject = subject
        self.data = b"{}"
        self.headers = {"Nats-Stream-Source": f"WORKLOADS {sequence} > > {subject}"}
        self.reply = f"$JS.ACK.WORKLOADS_NOW.d.1.{sequence}.1.1767323045000000000.0"
        self.answers: list[str] = []

    async def ack(self) -> None:
        self.answers.append("ack")

    async def nak(self, delay: float | None = None) -> None:
        self.answers.append(f"nak {delay}")

    async def term(self) -> None:
        self.answers.append("term")

    async def in_progress(self) -> None:
        self.answers.append("in progress")


async def as_it_is(entry: Entry) -> Entry:
    return entry


class Bench:
    """A worker, one registration, and what its handler was given."""

    def __init__(self, handler: Handler | None = None, *, ack_seconds: float = 0.0) -> None:
        self.handled: list[int] = []
        self.generation = 0
        self.open = asyncio.Event()
        self.open.set()
        self.letters: list[Message] = []
        self.dead_error: BusError | None = None
        self.worker = Worker(
            service="patcher",
            put_dead=self.put,
            now=lambda: AT,
            rng=Random(1),
            whole=as_it_is,
            is_void=lambda _entry: False,
            current=lambda _log: self.generation,
            ack_wait_seconds=0.15,
            ack_seconds=ack_seconds,
        )
        self.registration = Registration(
            stream="WORKLOADS", durable="d", handler=handler or self.handle
        )

    async def handle(self, one: Entry) -> None:
        self.handled.append(one.sequence)
        await self.open.wait()

    def put(self, message: Message, _identity: str) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.dead_error is not None:
            done.set_exception(self.dead_error)
        else:
            self.letters.append(message)
            done.set_result(1)
        return done

    async def take(self, *deliveries: Any) -> None:
        for delivery in deliveries:
            await self.worker.accept(self.registration, delivery)

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_entry_older_than_the_one_handled_is_acknowledged_unhandled() -> None:
    bench, newer, older, same = Bench(), Delivery(7), Delivery(5), Delivery(7)

    await bench.take(newer)
    await bench.settle()
    await bench.take(older, same)
    await bench.settle()

    assert bench.handled == [7]
    assert older.answers == same.answers == ["ack"]


async def test_of_entries_waiting_for_their_key_only_the_newest_is_handled() -> None:
    bench = Bench()
    bench.open.clear()
    deliveries = [Delivery(sequence) for sequence in (1, 2, 3, 4)]

    await bench.take(*deliveries)
    await bench.settle()
    bench.open.set()
    await bench.settle()

    assert bench.handled == [4]
    assert all(delivery.answers == ["ack"] for delivery in deliveries)


async def test_of_another_subject_an_older_sequence_is_handled() -> None:
    bench = Bench()

    await bench.take(Delivery(7), Delivery(5, subject="sluice.workload.hub.a.c"))
    await bench.settle()

    assert bench.handled == [7, 5]


async def test_restarted_log_is_not_mistaken_for_older_entries() -> None:
    bench = Bench()
    await bench.take(Delivery(7))
    await bench.settle()
    latest = bench.worker.latest("d")
    assert latest is not None
    assert latest.place == (0, 7)

    bench.generation = 1
    await bench.take(Delivery(1))
    await bench.settle()

    assert bench.handled == [7, 1]


async def test_long_handler_extends_the_acknowledgement_deadline() -> None:
    bench, delivery, waiting = Bench(), Delivery(1), Delivery(2)
    bench.open.clear()
    bench.worker.start()

    await bench.take(delivery)
    await bench.settle()
    await bench.take(waiting)
    both = (delivery, waiting)
    await eventually(lambda: all(one.answers.count("in progress") >= 3 for one in both))
    bench.open.set()
    await bench.settle()

    for one in both:
        assert one.answers[-1] == "ack"
    await bench.worker.stop(seconds=1)


async def test_failed_entry_is_not_skipped_as_outdated() -> None:
    calls = 0

    async def handler(_entry: Entry) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise LaterError("not now", delay_seconds=2.0)

    bench, first, again = Bench(handler), Delivery(7), Delivery(7)
    await bench.take(first)
    await bench.settle()
    await bench.take(again)
    await bench.settle()

    assert (first.answers, again.answers) == (["nak 2.0"], ["ack"])


async def test_dead_letter_is_stored_before_the_entry_is_terminated() -> None:
    async def handler(_entry: Entry) -> None:
        raise NeverError("no such API")

    bench, kept, ended = Bench(handler), Delivery(7), Delivery(7)
    bench.dead_error = UnavailableError("no answer")
    await bench.take(kept)
    await bench.settle()
    assert kept.answers[0].startswith("nak"), "not stored: the entry comes again"

    bench.dead_error = None
    await bench.take(ended)
    await bench.settle()
    assert ended.answers == ["term"]
    assert len(bench.letters) == 1


async def test_failure_of_the_key_function_counts_as_a_failure_of_the_handler() -> None:
    def key(_entry: Entry) -> str:
        raise NeverError("no name")

    bench, delivery = Bench(), Delivery(1)
    bench.registration = replace(bench.registration, key=key)

    await bench.take(delivery)
    await bench.settle()

    assert delivery.answers == ["term"]


async def test_number_of_concurrent_handlers_is_bounded() -> None:
    bench = Bench()
    bench.open.clear()
    for sequence in range(IN_FLIGHT_MAX):
        await bench.take(Delivery(sequence + 1, subject=f"sluice.workload.hub.a.{sequence}"))

    one_more = asyncio.create_task(bench.take(Delivery(9999, subject="sluice.workload.hub.a.x")))
    await bench.settle()
    assert not one_more.done()

    bench.open.set()
    await one_more


async def test_stop_waits_for_handlers_up_to_the_timeout() -> None:
    bench, delivery = Bench(), Delivery(1)
    bench.open.clear()
    await bench.take(delivery)
    await bench.settle()

    await bench.worker.stop(seconds=0.05)

    assert delivery.answers == [], "the server gives it to somebody else"


async def test_finished_entries_are_acknowledged_together() -> None:
    bench, deliveries = Bench(ack_seconds=1.0), [Delivery(1), Delivery(2)]

    for delivery in deliveries:
        await bench.take(delivery)
        await bench.settle()
        assert delivery.answers == []
    await eventually(lambda: all(delivery.answers for delivery in deliveries))

    assert bench.handled == [1, 2]
    assert [delivery.answers for delivery in deliveries] == [["ack"], ["ack"]]


async def test_finished_entries_are_acknowledged_before_stop() -> None:
    bench, delivery = Bench(ack_seconds=30.0), Delivery(1)
    await bench.take(delivery)
    await bench.settle()

    await bench.worker.stop(seconds=1)

    assert delivery.answers == ["ack"]


async def test_entry_of_the_log_before_is_neither_answered_nor_remembered() -> None:
    bench, past, new = Bench(), Delivery(7), Delivery(1)
    bench.open.clear()
    await bench.take(past)
    await bench.settle()

    bench.generation = 1  # The log is another one, while the handler runs.
    bench.open.set()
    await bench.take(new)
    await bench.settle()
    await asyncio.sleep(0.01)

    assert bench.handled == [7, 1]
    assert past.answers == [], "the new log may have given its number to another message"
    assert new.answers == ["ack"]


async def test_log_lines_of_a_handler_carry_whom_they_are_about_and_the_trace() -> None:
    carried: list[dict[str, Any]] = []

    async def handler(_entry: Entry) -> None:
        carried.append(structlog.contextvars.get_contextvars())

    bench = Bench(handler)
    traced, other = Delivery(1), Delivery(2, subject="sluice.workload.hub.a.c")
    traced.headers["traceparent"] = f"00-{'1' * 32}-{'2' * 16}-01"

    await bench.take(traced, other)
    await bench.settle()

    assert [(each["subject"], each.get("trace")) for each in carried] == [
        ("sluice.workload.hub.a.b", "1" * 32),
        ("sluice.workload.hub.a.c", None),
    ]


@pytest.mark.parametrize(
    "error",
    [LaterError("no"), NeverError("no"), ValueError("no"), NewerSchemaError("Workload", "9", 1)],
    ids=lambda error: type(error).__name__,
)
async def test_log_line_about_the_end_of_a_message_tells_the_trace_of_no_other(
    error: Exception,
) -> None:
    async def handler(_entry: Entry) -> None:
        raise error

    bench = Bench(handler)
    traced, other = Delivery(1), Delivery(2, subject="sluice.workload.hub.a.c")
    traced.headers["traceparent"] = f"00-{'1' * 32}-{'2' * 16}-01"

    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        await bench.take(traced)
        await bench.settle()
        await bench.take(other)
        await bench.settle()

    told = {(each["subject"], each.get("trace")) for each in lines if "subject" in each}
    others = (
        {("sluice.workload.hub.a.c", None)} if not isinstance(error, NewerSchemaError) else set()
    )
    assert told == {("sluice.workload.hub.a.b", "1" * 32)} | others, "a newer release is told once"
