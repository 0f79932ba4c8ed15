"""Who is told when why it waits; nobody who is let in waits behind a reason."""

from datetime import UTC, datetime, timedelta

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import Wait
from services.quota.publishing.reasons import BUSY, REASONS_MAX, WHILE_BUSY, ReasonSchedule
from shared.contracts.refs import WorkloadRef

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Stage:
    """Reasons with a clock that the test moves; nobody waits in the engine itself."""

    def __init__(self, *, delay: float = 1.0) -> None:
        self.reasons = ReasonSchedule(delay)
        self.now = NOON
        self._engine = QuotaEngine()

    def put(self, *names: str, text: str = "no room", at_once: bool = False) -> None:
        for name in names:
            key = f"team/{name}"
            wait = Wait(cluster="hub", key=key, uid=name, reason="Pending", message=text)
            self.reasons.enqueue(WorkloadRef("hub", "team", name), wait, self.now, at_once=at_once)
        self.reasons.refill(self._engine, self.now)

    def after(self, seconds: float, *, let_in: int = 0) -> list[str]:
        """Who is told then, with what; meanwhile so many were let in each second."""
        told = []
        while seconds > 0:
            for _ in range(let_in):
                self.reasons.count_admission()
            step = min(seconds, 1.0)
            seconds -= step
            self.now += timedelta(seconds=step)
            told += self.told()
        return told

    def told(self, *only: str) -> list[str]:
        self.reasons.refill(self._engine, self.now)
        which = (lambda ref: ref.name in only) if only else None
        due = self.reasons.due_reasons(self.now, which)
        return [f"{wait.uid}: {wait.message}" for _, wait in due]


def test_reason_is_published_after_the_delay() -> None:
    stage = Stage()
    stage.put("a")
    assert stage.told() == []
    assert stage.reasons.next_at(stage.now) == NOON + timedelta(seconds=1)
    assert stage.after(1) == ["a: no room"]
    assert stage.after(1) == []
    assert stage.reasons.next_at(stage.now) is None


def test_workload_admitted_within_delay_gets_no_reason() -> None:
    stage = Stage()
    stage.put("a")
    stage.reasons.forget(WorkloadRef("hub", "team", "a"))
    assert stage.after(5) == []


def test_zero_delay_publishes_all_reasons_at_once() -> None:
    stage = Stage(delay=0)
    names = [str(number) for number in range(REASONS_MAX + 5)]
    stage.put(*names)
    assert len(stage.told()) == len(names)


def test_later_reason_replaces_earlier_one() -> None:
    stage = Stage()
    stage.put("a", "b")
    stage.after(0.5)
    stage.put("a", text="less room")
    assert stage.after(0.5) == ["a: less room", "b: no room"]


def test_load_limits_reasons_to_longest_waiting_until_it_ends() -> None:
    stage = Stage()
    names = [str(number) for number in range(3 * WHILE_BUSY)]
    stage.put(*names)
    everybody = [f"{name}: no room" for name in names]
    assert stage.after(1, let_in=BUSY + 1) == everybody[:WHILE_BUSY]
    assert stage.told() == []
    assert stage.after(1, let_in=BUSY + 1) == everybody[WHILE_BUSY : 2 * WHILE_BUSY]
    assert stage.after(1) == everybody[2 * WHILE_BUSY :]


def test_few_admissions_are_no_load() -> None:
    stage = Stage()
    names = [str(number) for number in range(3 * WHILE_BUSY)]
    stage.put(*names)
    assert len(stage.after(1, let_in=BUSY)) == len(names)


def test_admissions_without_waiting_workloads_are_no_load() -> None:
    stage = Stage()
    stage.after(60, let_in=BUSY + 1)
    stage.put(*(str(number) for number in range(3 * WHILE_BUSY)))
    assert len(stage.after(1)) == 3 * WHILE_BUSY


def test_urgent_reason_is_published_under_load() -> None:
    stage = Stage()
    stage.put(*(str(number) for number in range(3 * WHILE_BUSY)))
    stage.after(1, let_in=BUSY + 1)
    stage.put("gave its quota back", at_once=True)
    assert stage.told() == ["gave its quota back: no room"]


def test_lifecycle_change_expedites_the_reason() -> None:
    stage = Stage()
    stage.put("a")
    assert not stage.reasons.expedite(WorkloadRef("hub", "team", "b"))
    assert stage.reasons.expedite(WorkloadRef("hub", "team", "a"))
    assert stage.told() == ["a: no room"]


def test_thousands_of_reasons_are_spread_over_time() -> None:
    stage = Stage()
    stage.put(*(str(number) for number in range(2 * REASONS_MAX + 1)))
    assert [len(stage.after(1)) for _ in range(3)] == [REASONS_MAX, REASONS_MAX, 1]


def test_full_log_publishes_reasons_of_lost_quota_only() -> None:
    stage = Stage()
    stage.put("waits")
    stage.put("lost", "other", at_once=True)
    stage.after(0)
    stage.now += timedelta(seconds=1)
    assert stage.told("lost") == ["lost: no room"]
    assert stage.told() == ["other: no room", "waits: no room"]


def test_clock_set_back_does_not_hold_up_reasons() -> None:
    stage = Stage()
    stage.put("before")
    stage.now -= timedelta(hours=1)
    stage.put("after")
    assert stage.after(1) == ["before: no room", "after: no room"]


def test_reasons_after_a_load_have_the_full_rate() -> None:
    stage = Stage(delay=0.1)
    stage.put(*(str(number) for number in range(WHILE_BUSY)))
    stage.after(1, let_in=BUSY + 1)
    stage.after(1, let_in=BUSY + 1)
    stage.after(60)
    stage.put(*(str(number) for number in range(3 * WHILE_BUSY)))
    assert len(stage.after(0.2)) == 3 * WHILE_BUSY
