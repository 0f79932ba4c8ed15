"""The last stored state of a subject is the last that was published, whatever was lost on the way."""

import pytest

from shared.telemetry import probes
from shared.testing.probing import acts
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.bus.publishing import Table


@pytest.mark.parametrize(
    ("trouble", "ack_seconds"), [("lost connection", PATIENCE_SECONDS), ("no answer", 0.3)]
)
async def test_older_state_is_not_sent_behind_a_stored_newer_one(
    table: Table, trouble: str
) -> None:
    old, new, other = table.publish("a"), table.publish("a"), table.publish("b")
    await table.sent(3)

    await table.take(1, 7)
    if trouble == "lost connection":
        await table.nobody(0)
        table.connection.lose()
        table.connection.regain()

    await table.sent(4)
    assert table.subjects[3:] == ["b"]
    await table.take(3, 8)
    assert (await old, await new, await other) == (7, 7, 8)


async def test_newer_state_stored_before_an_older_one_is_stored_again(table: Table) -> None:
    old, new = table.publish("a"), table.publish("a", identity="id-a-2")
    await table.sent(2)
    await table.nobody(0)
    table.connection.lose()  # And with it the acknowledgement of the second.
    table.connection.regain()

    await table.sent(4)
    await table.take(2, 8)
    with acts(probes.OVERTAKEN):
        await table.take(3, 7)  # A duplicate: the server has stored it before.
        await table.sent(5)
    await table.take(4, 9)

    assert (await old, await new) == (8, 9)
    assert table.connection.nc.sent[4].identity == "id-a-2:again"


async def test_newer_state_is_not_stored_again_before_one_that_follows(table: Table) -> None:
    results = [table.publish("a") for _ in range(3)]
    await table.sent(3)
    await table.nobody(0)
    table.connection.lose()
    table.connection.regain()

    await table.sent(6)
    await table.take(3, 8)
    await table.take(4, 7)
    await table.take(5, 9)

    assert [await result for result in results] == [8, 7, 9]
    assert len(table.subjects) == 6
