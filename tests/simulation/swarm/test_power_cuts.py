"""A power cut in memory leaves what it leaves on a real server (`tests/integration/test_lost_tail.py`)."""

from datetime import UTC, datetime

from services.simulator.scenarios.swarm.power_cuts import fill_up, restore_view
from shared.bus.streams import load
from shared.testing.world.memory_streams import MemoryStream

AT = datetime(2026, 1, 1, tzinfo=UTC)


def streams() -> tuple[MemoryStream, MemoryStream]:
    configs = load().configs()
    return MemoryStream(configs["WORKLOADS"]), MemoryStream(configs["WORKLOADS_NOW"])


def store(stream: MemoryStream, name: str, origin: int | None = None) -> None:
    stream.append(
        subject=f"sluice.workload.hub.team.{name}", data=name.encode(), headers={"Nats-Msg-Id": name},
        at=0.0, time=AT, origin=origin,
    )  # fmt: skip


def test_log_gets_back_what_its_view_has_at_the_same_sequences() -> None:
    log, view = streams()
    for name in "ab":
        store(log, name)
    for sequence, name in enumerate("abcadab", start=1):
        store(view, name, origin=sequence)

    restore_view(view)
    fill_up(log, view, at=0.0, time=AT)

    assert log.last == view.sourced == 7
    for one in view.messages.values():
        last = log.latest(one.subject, at=0.0)
        assert last is not None
        assert (last.sequence, last.data) == (one.origin, one.data)


def test_log_that_is_further_than_its_view_stays_as_it_is() -> None:
    log, view = streams()
    for name in "abc":
        store(log, name)
    store(view, "a", origin=1)

    restore_view(view)
    fill_up(log, view, at=0.0, time=AT)

    assert (log.last, view.sourced) == (3, 1)
