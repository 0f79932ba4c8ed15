"""The publisher against a server that fails in every way; each answer is the test's."""

import asyncio

import pytest
from prometheus_client import REGISTRY

from shared.bus.headers import EXPECT_LAST
from shared.bus.port import BusError, FencedError, StreamFullError, TooLargeError, UnavailableError
from tests.unit.bus.publishing import Table


async def test_results_belong_to_their_messages_whatever_the_order_of_answers(
    table: Table,
) -> None:
    first, second = table.publish("a"), table.publish("b")
    await table.sent(2)

    await table.take(1, 2)
    await table.take(0, 1)

    assert (await first, await second) == (1, 2)


async def test_unanswered_messages_are_sent_again_in_order_after_a_lost_connection(
    table: Table,
) -> None:
    results = [table.publish(name) for name in "abcd"]
    await table.sent(4)
    await table.take(1, 2)

    table.connection.lose()
    later = table.publish("e")
    await asyncio.sleep(0.1)
    assert len(table.subjects) == 4, "nothing is sent while nobody is there"
    table.connection.regain()
    await table.sent(8)

    assert table.subjects[4:] == ["a", "c", "d", "e"]
    replies = [sent.reply for sent in table.connection.nc.sent]
    assert replies[4:7] == [replies[0], replies[2], replies[3]], "the same messages, not new ones"
    for nth, sequence in ((4, 1), (5, 3), (6, 4), (7, 5)):
        await table.take(nth, sequence)
    assert [await result for result in results] == [1, 2, 3, 4]
    assert await later == 5


async def test_unstored_message_is_sent_again_before_later_ones(table: Table) -> None:
    first, second = table.publish("a"), table.publish("b")
    await table.sent(2)

    await table.nobody(0)
    third = table.publish("c")
    await asyncio.sleep(0.05)
    assert table.subjects == ["a", "b"], "the rest waits until all on the way are answered"
    await table.take(1, 1)
    await table.sent(4)

    assert table.subjects[2:] == ["a", "c"]
    await table.take(2, 2)
    await table.take(3, 3)
    assert (await first, await second, await third) == (2, 1, 3)


async def test_older_state_never_follows_a_newer_one(table: Table) -> None:
    """The first state of `a` failed, the second came through: the first is not sent again."""
    old, new = table.publish("a"), table.publish("a")
    await table.sent(2)

    await table.nobody(0)
    await table.take(1, 7)

    assert await new == 7
    assert await old == 7, "whoever waits learns where the newer state is"
    await asyncio.sleep(0.15)
    assert len(table.subjects) == 2


@pytest.mark.parametrize("ack_seconds", [0.3])
async def test_missing_answer_counts_as_a_lost_message(table: Table) -> None:
    result = table.publish("a")
    await table.sent(2)

    await table.take(1, 1)

    assert await result == 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(10071, FencedError, id="somebody else has written since"),
        pytest.param(10077, StreamFullError, id="the log is full"),
        pytest.param(10047, StreamFullError, id="the disk is full"),
        pytest.param(10054, TooLargeError, id="above the stream's own limit"),
        pytest.param(10052, BusError, id="anything else is final too"),
    ],
)
async def test_refusals_raise_different_errors(
    table: Table, code: int, kind: type[BusError]
) -> None:
    result = table.publish("a")
    await table.sent(1)

    await table.refuse(0, code)

    with pytest.raises(kind, match=str(code)):
        await result
    assert len(table.subjects) == 1


async def test_stored_but_unanswered_message_is_found_at_its_expected_sequence(
    table: Table,
) -> None:
    result = table.publish("a", expect=6)
    await table.sent(1)
    table.log[7] = "id-a"
    table.connection.lose()
    table.connection.regain()
    await table.sent(2)

    await table.refuse(1, 10071)

    assert await result == 7


async def test_message_of_another_writer_at_the_expected_sequence_refuses_this_and_later_ones(
    table: Table,
) -> None:
    results = [table.publish(name, expect=6 + i) for i, name in enumerate("ab")]
    await table.sent(2)
    table.log[7] = table.log[8] = "theirs"
    table.connection.lose()
    table.connection.regain()
    await table.sent(4)

    for nth in (2, 3):
        await table.refuse(nth, 10071)

    for result in results:
        with pytest.raises(FencedError):
            await result


async def test_unanswered_lookup_is_repeated(table: Table) -> None:
    result = table.publish("a", expect=6)
    await table.sent(1)
    table.log[7] = "id-a"
    table.connection.lose()
    table.connection.regain()
    await table.sent(2)
    table.silent = True
    await table.refuse(1, 10071)
    await table.sent(3)
    table.silent = False

    await table.refuse(2, 10071)

    assert await result == 7


async def test_refusal_of_the_first_attempt_needs_no_lookup(table: Table) -> None:
    result = table.publish("a", expect=6)
    await table.sent(1)
    table.log[7] = "id-a"

    await table.refuse(0, 10071)

    with pytest.raises(FencedError):
        await result


async def test_cluster_without_a_leader_is_asked_again(table: Table) -> None:
    result = table.publish("a")
    await table.sent(1)

    await table.refuse(0, 10008)
    await table.sent(2)
    await table.take(1, 1)

    assert await result == 1


async def test_failed_fenced_message_fails_later_ones(table: Table) -> None:
    table.connection.lose()
    first = table.publish("a", expect=6)
    follower, unfenced = table.publish("b", expect=7), table.publish("c")
    other = table.publisher.publish("d", b"", {EXPECT_LAST: "7"}, stream="ANOTHER")
    await asyncio.sleep(2.3)  # the whole retry time of all of them
    table.connection.regain()

    with pytest.raises(UnavailableError):
        await first
    with pytest.raises(FencedError, match="one before it failed"):
        await follower
    for result in (unfenced, other):
        with pytest.raises(UnavailableError):
            await result


async def test_publish_fails_with_the_reason_after_the_retry_time(table: Table) -> None:
    counted = unacknowledged()
    result = table.publish("a")
    table.connection.refused = "Permissions Violation for Publish to 'a'"

    with pytest.raises(UnavailableError, match=r"a: not acknowledged.*Permissions Violation"):
        await result
    assert unacknowledged() == counted + 1, "the alert SluicegateLogTakesNothing goes by it"


def unacknowledged() -> float:
    """How many messages for the stream of these tests were given up."""
    return REGISTRY.get_sample_value("sluicegate_bus_unacknowledged_total", {"stream": "S"}) or 0.0


async def test_answer_after_the_timeout_is_ignored(table: Table) -> None:
    result = table.publish("a")
    await table.sent(1)
    await table.take(0, 1)
    await table.take(0, 1)

    assert await result == 1


async def test_cancelled_waiter_does_not_cancel_the_message(table: Table) -> None:
    table.connection.lose()
    result = table.publish("a")
    result.cancel()
    table.connection.regain()

    await table.sent(1)
    await table.take(0, 1)
    await table.publisher.flush()


async def test_stopping_fails_what_is_unanswered(table: Table) -> None:
    sent = table.publish("a")
    await table.sent(1)
    await table.publisher.stop()

    with pytest.raises(UnavailableError, match="stopped"):
        await sent
