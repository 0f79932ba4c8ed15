"""What each judge lets pass and what it does not, on histories small enough to read."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from services.simulator.judge import checks
from services.simulator.judge.message_logs import MessageLogs
from tests.simulation.swarm.history import History


def too_much(history: History) -> None:
    history.decide("a", cpu="3")
    history.decide("b", cpu="2")


def enough_after_release(history: History) -> None:
    history.decide("a", cpu="3")
    history.decide("a", "released")
    history.decide("b", cpu="2")


def evicted_still_holds(history: History) -> None:
    history.decide("a", cpu="3")
    history.decide("a", "evicted", cpu="3")
    history.decide("b", cpu="2")


def window_without_its_first_decision(history: History) -> None:
    history.decide("a", cpu="4")
    history.decide("b", cpu="2", number=3)


def on_three_servers(tell: Callable[[History], None]) -> Callable[[History], None]:
    def told(history: History) -> None:
        history.message_logs.replicated = True
        tell(history)

    return told


def borrowed(history: History) -> None:
    history.cluster_queue("main", nominal="4", cohort="all")
    history.cluster_queue("other", nominal="2", cohort="all")
    history.decide("a", cpu="6")


def borrowed_beyond_the_limit(history: History) -> None:
    history.cluster_queue("main", nominal="4", cohort="all", borrowingLimit="1")
    history.cluster_queue("other", nominal="2", cohort="all")
    history.decide("a", cpu="6")


def borrowed_what_is_not_lent(history: History) -> None:
    history.cluster_queue("main", nominal="4", cohort="all")
    history.cluster_queue("other", nominal="2", cohort="all", lendingLimit="1")
    history.decide("a", cpu="6")


def finished_pods_give_back(history: History) -> None:
    history.decide("a", cpu="4", count=2)
    history.waits("a", cpu="2", count=2, phase="running", reclaimable=1)
    history.decide("b", cpu="2")


def machines_that_are_gone_give_back(history: History) -> None:
    history.decide("a", cpu="4")
    history.waits("a", cpu="4", phase="running", returned={"cpu": "3"})
    history.decide("b", cpu="3")


def unplanned_above_nominal(history: History) -> None:
    history.decide("a", cpu="9", unplanned=True)


def quota_shrank_under_a_holder(history: History) -> None:
    history.decide("a", cpu="4")
    history.cluster_queue("main", nominal="1")
    history.decide("a", "evicted", cpu="4")


def passed_over(history: History) -> None:
    history.waits("urgent", priority=9)
    history.waits("idle")
    history.decide("idle")


def passed_over_unseen(history: History) -> None:
    history.waits("idle")
    history.decide("idle", inputs={"OBSERVED": 3, "WORKLOADS": 1})
    history.waits("urgent", priority=9)


def too_large_to_be_passed_over(history: History) -> None:
    history.waits("urgent", cpu="5", priority=9)
    history.waits("idle")
    history.decide("idle")


def other_quota_while_holding(history: History) -> None:
    history.decide("a")
    history.decide("a", flavor="others")


def two_lives_at_once(history: History) -> None:
    history.decide("a", uid="first")
    history.decide("a", uid="second")


def one_life_after_another(history: History) -> None:
    history.decide("a", uid="first")
    history.decide("a", "released", uid="first")
    history.decide("a", uid="second")


def renamed_while_it_runs(history: History) -> None:
    history.decide("a", uid="one")
    history.decide("b", flavor="others", uid="one", unplanned=True)
    history.decide("b", "evicted", flavor="others", uid="one", unplanned=True)
    history.decide("a", "released", uid="one")


def renamed_while_it_waits(history: History) -> None:
    history.decide("a", uid="one")
    history.decide("b", uid="one")
    history.decide("a", "released", uid="one")


def counted_under_two_names(history: History) -> None:
    history.decide("a", uid="one")
    history.decide("b", flavor="others", uid="one", unplanned=True)


def holds_under_two_names(history: History) -> None:
    history.decide("a", uid="one")
    history.decide("b", uid="one")


def holds_under_two_names_to_its_end(history: History) -> None:
    holds_under_two_names(history)
    for _ in range(60):
        history.waits("other")
    history.decide("a", "released", uid="one")
    history.decide("b", "released", uid="one")


def admitted_under_two_names(history: History) -> None:
    history.decide("a", uid="one")
    history.decide("b", flavor="others", uid="one")


def moved_while_it_holds(history: History) -> None:
    history.decide("a")
    history.decide("a", cluster_queue="other")


def taken_over(history: History, *, adopts: str = "theirs", cpu: str = "1") -> None:
    """A Workload gives its quota to a job; what runs unplanned uses more than the queue has."""
    history.decide("a", uid="theirs")
    history.decide("runs", cpu="4", unplanned=True)
    history.waits("urgent", priority=9)
    history.waits("a", uid="job", adopts=adopts)
    at = history.message_logs.workloads[-1].time
    history.decide("a", "released", uid="theirs", decided_at=at)
    history.decide("a", uid="job", cpu=cpu, decided_at=at)


def taken_over_by_nobody(history: History) -> None:
    taken_over(history, adopts="")


def taken_over_with_more(history: History) -> None:
    taken_over(history, cpu="2")


def taken_over_after_another(history: History) -> None:
    """Somebody else has the quota before the job."""
    history.decide("a", uid="theirs", cpu="4")
    history.waits("a", uid="job", adopts="theirs")
    at = history.message_logs.workloads[-1].time
    history.decide("a", "released", uid="theirs", decided_at=at)
    history.decide("b", cpu="4", decided_at=at)
    history.decide("a", uid="job", cpu="4", decided_at=at)


def taken_over_while_others_wait(history: History) -> None:
    history.decide("a", uid="theirs", cpu="4")
    history.waits("urgent", cpu="4", priority=9)
    history.waits("a", uid="job", adopts="theirs")
    at = history.message_logs.workloads[-1].time
    history.decide("a", "released", uid="theirs", decided_at=at)
    history.decide("a", uid="job", cpu="4", decided_at=at)


def decided_by_two(history: History) -> None:
    history.decide("a", term=2, number=1)
    history.decide("b", term=1, number=7)


def runs_before_leave(history: History) -> None:
    history.runs("a")
    history.decide("a")


def runs_with_leave(history: History) -> None:
    history.decide("a")
    history.runs("a")


def preempted_and_stopped(history: History) -> None:
    history.decide("a")
    history.decide("a", "evicted")
    history.stopped("a", version="20")
    history.decide("a", "waiting", reason="Preempted", message="for b")


def ran_before_its_stop(history: History) -> None:
    preempted_and_stopped(history)
    history.runs("a", version="15")


def runs_after_its_stop(history: History) -> None:
    preempted_and_stopped(history)
    history.runs("a", version="21")


def started_again(history: History) -> None:
    history.decide("a")
    history.runs("a", started="2026-01-01T00:00:00Z")
    history.runs("a", started="2026-01-01T00:01:00Z")


def started_again_after_eviction(history: History) -> None:
    history.decide("a")
    history.runs("a", started="2026-01-01T00:00:00Z")
    history.decide("a", "evicted")
    history.decide("a", "waiting", reason="Preempted", message="for b")
    history.decide("a")
    history.runs("a", started="2026-01-01T00:01:00Z")


def waits_without_a_word(history: History) -> None:
    history.waits("a")


def waits_with_a_reason(history: History) -> None:
    history.waits("a")
    history.decide("a", "waiting", reason="WaitingForQuota", message="1 cpu more needed")


def too_large_to_read(history: History) -> None:
    history.decide("a", cpu="14E")


def holds_to_the_end(history: History) -> None:
    history.decide("a")


@dataclass(frozen=True, kw_only=True)
class Case:
    tell: Callable[[History], None]
    judge: Callable[[MessageLogs], list[str]] = field(default=checks.quotas_respected)
    wrong: str | None = None


CASES = {
    "two workloads together exceed the quota": Case(
        tell=too_much, wrong="takes 2 cpu .* of which 1 cpu"
    ),
    "the second is admitted after the first released its quota": Case(tell=enough_after_release),
    "an evicted workload holds quota until it is released": Case(
        tell=evicted_still_holds, wrong="takes 2 cpu"
    ),
    "a window lacks its first": Case(tell=window_without_its_first_decision, wrong="takes 2 cpu"),
    "a window lacks its first on three servers": Case(
        tell=on_three_servers(window_without_its_first_decision)
    ),
    "two exceed the quota on three servers": Case(tell=on_three_servers(too_much), wrong="2 cpu"),
    "a queue borrows free quota of its cohort": Case(tell=borrowed),
    "a queue borrows beyond its borrowing limit": Case(
        tell=borrowed_beyond_the_limit, wrong="5 cpu"
    ),
    "a queue borrows beyond the lending limit of another": Case(
        tell=borrowed_what_is_not_lent, wrong="5 cpu"
    ),
    "pods that finished give their share back": Case(tell=finished_pods_give_back),
    "deleted machines give their slots back": Case(tell=machines_that_are_gone_give_back),
    "what nobody admitted is above nominal quota": Case(tell=unplanned_above_nominal),
    "quota shrinks below the admitted usage": Case(tell=quota_shrank_under_a_holder),
    "a fitting workload of higher priority is passed over": Case(
        tell=passed_over, judge=checks.priorities_respected, wrong="urgent of priority 9 waits"
    ),
    "the decider did not know the workload of higher priority yet": Case(
        tell=passed_over_unseen, judge=checks.priorities_respected
    ),
    "the workload of higher priority does not fit": Case(
        tell=too_large_to_be_passed_over, judge=checks.priorities_respected
    ),
    "an admitted workload gets other quota": Case(
        tell=other_quota_while_holding, judge=checks.none_admitted_twice, wrong="is given"
    ),
    "two objects of one name hold quota at once": Case(
        tell=two_lives_at_once, judge=checks.none_admitted_twice, wrong="still holds quota"
    ),
    "two objects of one name hold quota one after another": Case(
        tell=one_life_after_another, judge=checks.none_admitted_twice
    ),
    "a job that runs is counted under another name": Case(
        tell=renamed_while_it_runs, judge=checks.none_admitted_twice
    ),
    "a job gets other quota under another name": Case(
        tell=admitted_under_two_names, judge=checks.none_admitted_twice, wrong="is given"
    ),
    "a job that waits is admitted under another name": Case(
        tell=renamed_while_it_waits, judge=checks.none_admitted_twice
    ),
    "a job that runs is counted under two names for good": Case(
        tell=counted_under_two_names, judge=checks.none_admitted_twice, wrong="is given"
    ),
    "a job is admitted under two names for good": Case(
        tell=holds_under_two_names, judge=checks.none_admitted_twice, wrong="is given"
    ),
    "a job is admitted under two names until it ends": Case(
        tell=holds_under_two_names_to_its_end, judge=checks.none_admitted_twice, wrong="is given"
    ),
    "an admitted workload gets the same of another queue": Case(
        tell=moved_while_it_holds, judge=checks.none_admitted_twice, wrong="is given"
    ),
    "a job takes a Workload over whose queue is overused": Case(tell=taken_over),
    "a job gets what a Workload has given back that it did not take": Case(
        tell=taken_over_by_nobody, wrong="takes 1 cpu"
    ),
    "a job takes a Workload over, and more than that held": Case(
        tell=taken_over_with_more, wrong="takes 2 cpu"
    ),
    "a job takes a Workload over whose quota another one has by then": Case(
        tell=taken_over_after_another, wrong="takes 4 cpu"
    ),
    "a job takes a Workload over while a higher priority waits for its quota": Case(
        tell=taken_over_while_others_wait, judge=checks.priorities_respected
    ),
    "an earlier term decides after a later one": Case(
        tell=decided_by_two, judge=checks.decided_in_order, wrong=r"\(1, 7\) comes after"
    ),
    "an amount is larger than a quantity may be": Case(
        tell=too_large_to_read, judge=checks.next_leader_can_read, wrong="larger than"
    ),
    "a job ran before its admission": Case(
        tell=runs_before_leave, judge=checks.none_runs_without_leave, wrong="holds no quota"
    ),
    "a job runs after its admission": Case(
        tell=runs_with_leave, judge=checks.none_runs_without_leave
    ),
    "a watcher tells late that a job ran before it was stopped": Case(
        tell=ran_before_its_stop, judge=checks.none_runs_without_leave
    ),
    "a job runs again after it was stopped": Case(
        tell=runs_after_its_stop, judge=checks.none_runs_without_leave, wrong="holds no quota"
    ),
    "a job was started twice": Case(
        tell=started_again, judge=checks.none_started_twice, wrong="started 2 times"
    ),
    "a job was started again after an eviction": Case(
        tell=started_again_after_eviction, judge=checks.none_started_twice
    ),
    "a workload waits without a reason": Case(
        tell=waits_without_a_word, judge=checks.reasons_given, wrong="nothing was ever decided"
    ),
    "a workload waits with a reason": Case(tell=waits_with_a_reason, judge=checks.reasons_given),
    "quota that is never given back": Case(
        tell=holds_to_the_end, judge=checks.quota_given_back, wrong="still holds quota in main"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_judge_reports_each_kind_of_breach(case: Case) -> None:
    history = History()
    case.tell(history)

    found = case.judge(history.message_logs)

    if case.wrong is None:
        assert found == []
    else:
        assert len(found) == 1
        assert re.search(case.wrong, found[0])


def test_judge_finds_a_job_without_a_workload() -> None:
    history = History()
    history.waits("known")
    submitted = {"known": "team/known", "unknown": "team/unknown"}
    assert checks.none_lost(history.message_logs, submitted, finished=False) == [
        "team/unknown was submitted, and no workload is known for it"
    ]
    assert len(checks.none_lost(history.message_logs, submitted, finished=True)) == 2
