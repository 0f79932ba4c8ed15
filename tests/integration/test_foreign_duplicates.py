"""An id that another writer has used hides no message; a state that is repeated is stored once."""

from datetime import UTC, datetime
from pathlib import Path

import nats

from shared.bus.embedded import EmbeddedServer
from shared.bus.headers import EVENT_ID, MESSAGE_ID
from shared.bus.nats.bus import NatsBus
from shared.contracts.kube.kinds import JOB
from shared.settings.access import Access, new_key
from shared.telemetry.metrics import FOREIGN_ID
from shared.testing.builders import observed, workload
from shared.testing.waiting import PATIENCE_SECONDS
from tests.clock import now

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def counted() -> float:
    [metric] = FOREIGN_ID.collect()
    return next(s.value for s in metric.samples if s.name.endswith("_total"))


async def test_message_whose_id_another_has_used_is_stored_and_counted(
    server: EmbeddedServer,
) -> None:
    bus = NatsBus(url=server.url, instance="classifier", now=now)
    await bus.start()
    thief = await nats.connect(server.url)
    try:
        await bus.publish(workload("first", created_at=NOON))
        entry = await bus.latest("WORKLOADS", workload("first", created_at=NOON).subject)
        assert entry is not None
        head, _, number = entry.headers[MESSAGE_ID].rpartition(":")
        await thief.jetstream(timeout=PATIENCE_SECONDS).publish(
            "sluice.workload.x.y.z", b"{}", headers={MESSAGE_ID: f"{head}:{int(number) + 1}"}
        )
        before, second = counted(), workload("second", created_at=NOON)
        sequence = await bus.publish(second)
        found = await bus.latest("WORKLOADS", second.subject)
        assert found is not None
        assert found.sequence == sequence
        assert found.headers[EVENT_ID] == f"{head}:{int(number) + 1}", "what we call it stays"
        assert counted() == before + 1
    finally:
        await thief.close()
        await bus.stop()


async def test_state_that_two_watchers_see_is_stored_once(server: EmbeddedServer) -> None:
    before, seen = counted(), observed(JOB, "j", namespace="a")
    buses = [NatsBus(url=server.url, instance=name, now=now) for name in ("one", "two")]
    sequences = []
    for bus in buses:
        await bus.start()
        sequences.append(await bus.publish(seen))
        await bus.stop()
    assert sequences == [1, 1]
    assert counted() == before


def test_message_id_of_a_name_is_equal_for_replicas_and_differs_for_other_users(
    tmp_path: Path,
) -> None:
    for user in ("a", "b"):
        (tmp_path / user).write_text(new_key()[0])
    first, replica = (Access(nkey=tmp_path / "a").message_ids() for _ in range(2))
    other = Access(nkey=tmp_path / "b").message_ids()
    assert first("name") == replica("name") != other("name")
    assert len({first("name"), first("name2"), other("name"), "name"}) == 4
    assert Access().message_ids()("name") == "name"
