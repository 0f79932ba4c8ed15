"""Who is told when why it waits; nobody who is let in waits behind a reason."""

from datetime import UTC, datetime, timedelta

from services.quota.engine import QuotaEngine
from services.quota.engine.facts import Wait
from services.quota.publishing.reasons import BUSY, REASONS_MAX, WHILE_BUSY, ReasonSchedule
from shared.contracts.refs import WorkloadRef

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Desk:
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


def test_who_waits_longer_than_the_delay_is_told_why() -> None:
    desk = Desk()
    desk.put("a")
    assert desk.told() == []
    assert desk.reasons.next_at(desk.now) == NOON + timedelta(seconds=1)
    assert desk.after(1) == ["a: no room"]
    assert desk.after(1) == []
    assert desk.reasons.next_at(desk.now) is None


def test_who_is_let_in_before_is_told_nothing() -> None:
    desk = Desk()
    desk.put("a")
    desk.reasons.forget(WorkloadRef("hub", "team", "a"))
    assert desk.after(5) == []


def test_without_a_delay_everybody_is_told_at_once() -> None:
    desk = Desk(delay=0)
    names = [str(number) for number in range(REASONS_MAX + 5)]
    desk.put(*names)
    assert len(desk.told()) == len(names)


def test_a_later_reason_takes_the_place_of_an_earlier_one() -> None:
    desk = Desk()
    desk.put("a", "b")
    desk.after(0.5)
    desk.put("a", text="less room")
    assert desk.after(0.5) == ["a: less room", "b: no room"]


def test_under_a_load_who_waits_longest_is_told_first_and_the_rest_when_it_is_over() -> None:
    desk = Desk()
    names = [str(number) for number in range(3 * WHILE_BUSY)]
    desk.put(*names)
    everybody = [f"{name}: no room" for name in names]
    assert desk.after(1, let_in=BUSY + 1) == everybody[:WHILE_BUSY]
    assert desk.told() == []
    assert desk.after(1, let_in=BUSY + 1) == everybody[WHILE_BUSY : 2 * WHILE_BUSY]
    assert desk.after(1) == everybody[2 * WHILE_BUSY :]


def test_a_few_that_are_let_in_are_no_load() -> None:
    desk = Desk()
    names = [str(number) for number in range(3 * WHILE_BUSY)]
    desk.put(*names)
    assert len(desk.after(1, let_in=BUSY)) == len(names)


def test_what_was_let_in_while_nobody_waited_is_no_load() -> None:
    desk = Desk()
    desk.after(60, let_in=BUSY + 1)
    desk.put(*(str(number) for number in range(3 * WHILE_BUSY)))
    assert len(desk.after(1)) == 3 * WHILE_BUSY


def test_what_cannot_wait_is_told_under_any_load() -> None:
    desk = Desk()
    desk.put(*(str(number) for number in range(3 * WHILE_BUSY)))
    desk.after(1, let_in=BUSY + 1)
    desk.put("gave its quota back", at_once=True)
    assert desk.told() == ["gave its quota back: no room"]


def test_whose_life_changes_is_told_with_its_reason_at_once() -> None:
    desk = Desk()
    desk.put("a")
    assert not desk.reasons.expedite(WorkloadRef("hub", "team", "b"))
    assert desk.reasons.expedite(WorkloadRef("hub", "team", "a"))
    assert desk.told() == ["a: no room"]


def test_thousands_that_are_told_cost_no_burst() -> None:
    desk = Desk()
    desk.put(*(str(number) for number in range(2 * REASONS_MAX + 1)))
    assert [len(desk.after(1)) for _ in range(3)] == [REASONS_MAX, REASONS_MAX, 1]


def test_while_the_log_is_full_only_those_are_told_who_lose_their_quota() -> None:
    desk = Desk()
    desk.put("waits")
    desk.put("lost", "other", at_once=True)
    desk.after(0)
    desk.now += timedelta(seconds=1)
    assert desk.told("lost") == ["lost: no room"]
    assert desk.told() == ["other: no room", "waits: no room"]


def test_a_clock_that_is_set_back_keeps_nobody_from_being_told() -> None:
    desk = Desk()
    desk.put("before")
    desk.now -= timedelta(hours=1)
    desk.put("after")
    assert desk.after(1) == ["before: no room", "after: no room"]


def test_who_comes_after_a_load_is_not_told_more_slowly_for_it() -> None:
    desk = Desk(delay=0.1)
    desk.put(*(str(number) for number in range(WHILE_BUSY)))
    desk.after(1, let_in=BUSY + 1)
    desk.after(1, let_in=BUSY + 1)
    desk.after(60)
    desk.put(*(str(number) for number in range(3 * WHILE_BUSY)))
    assert len(desk.after(0.2)) == 3 * WHILE_BUSY
