"""The patcher's mirror of the decisions: the newer one counts, whichever was stored last."""

from datetime import UTC, datetime

import pytest

from services.patcher.cluster.cache import ObjectCache
from shared.bus.headers import TYPE
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission
from shared.telemetry import probes
from shared.testing.probing import acts
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

AT = datetime(2026, 1, 1, tzinfo=UTC)


def decided(term: int, number: int, *, sequence: int) -> Entry:
    admission = Admission(
        cluster="hub", namespace="team", name="x", uid="u", state="admitted", term=term, number=number,
        decided_at=AT, cluster_queue="cq",
    )  # fmt: skip
    return Entry(
        subject=admission.subject, data=admission.encode(), headers={TYPE: Admission.type},
        sequence=sequence, time=AT,
    )  # fmt: skip


@pytest.mark.parametrize("older", [(1, 9), (2, 2)], ids=["of an earlier term", "of the same term"])
async def test_older_decision_that_is_stored_behind_a_newer_one_is_not_believed(
    older: tuple[int, int],
) -> None:
    cache = ObjectCache(bus=MemoryBus(MemoryServer(), instance="test"), cluster="hub")
    newer = cache.apply_admission(decided(2, 3, sequence=1))
    with acts(probes.OLDER_DECISION):
        assert cache.apply_admission(decided(*older, sequence=2)) == newer
    assert cache.apply_admission(decided(2, 4, sequence=3)).number == 4
