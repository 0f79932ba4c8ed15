"""Checks of what really ran against what quota decided. Each returns sentences that say what is wrong.

The pods and runs of the cluster are the truth (`running_work`). The decisions on the log say only what was
given. Everything has `NOTICE_SECONDS` to be noticed and to end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from services.simulator.judge.message_logs import MessageLogs
from services.simulator.judge.running_work import Amounts, Change, Job, RunningWork
from shared.contracts.kube.quantities import parse_quantity
from shared.contracts.messages.admissions import HOLDING, Admission

NOTICE_SECONDS: Final = 30.0
_MOMENT: Final = timedelta(seconds=1)
"""What quota decides follows from what was observed this long before."""

_AGAIN: Final = timedelta(seconds=5)
"""What began to run in that moment is counted again within this time."""

BILLION: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Quota that the queues of some namespaces have together."""

    name: str
    namespaces: frozenset[str]
    nominal: Amounts
    """Resource to billionths: the sum over its queues."""

    strict: bool = False
    """Whether who comes first holds up the others (`StrictFIFO`)."""


@dataclass(slots=True)
class _Moment:
    """What runs and who holds quota at one time; it lasts until the next one."""

    at: datetime
    steady: dict[str, Amounts] = field(default_factory=dict)
    held: dict[str, list[Admission]] = field(default_factory=dict)
    """By uid of what runs: its own quota, and that of jobs that are made for it and were let out."""


def uncounted_is_stopped(work: RunningWork, message_logs: MessageLogs, end: datetime) -> list[str]:
    """What runs without quota is stopped in time."""

    def uncounted(moment: _Moment) -> Iterator[str]:
        for uid in moment.steady:
            holders, job = moment.held.get(uid, []), work.jobs[uid]
            if not holders and job.is_managed(moment.at):
                yield f"{_name(job)} runs and holds no quota"
            elif not holders or job.terminating:
                continue  # Its kind's controller acts no more: it is counted until it ends.
            elif all(one.state == "evicted" for one in holders):
                yield f"{_name(job)} runs on though it is evicted ({holders[0].reason})"
            elif not _planned(holders):
                yield f"{_name(job)} runs on though nobody admitted it"

    return _lasting(uncounted, work, message_logs, end)


def never_more_than_admitted(
    work: RunningWork, message_logs: MessageLogs, end: datetime
) -> list[str]:
    """What runs for one workload is no more than what it was given."""

    def grown(moment: _Moment) -> Iterator[str]:
        for uid, running in moment.steady.items():
            holders = moment.held.get(uid, [])
            if not holders or (len(holders) > 1 and work.jobs[uid].terminating):
                continue
            given = _given(_planned(holders) or holders)
            if any(running.get(resource, 0) > amount for resource, amount in given.items()):
                yield f"{_name(work.jobs[uid])} runs more than it was given"

    return _lasting(grown, work, message_logs, end)


def quotas_kept(
    work: RunningWork, message_logs: MessageLogs, end: datetime, pools: Sequence[Pool]
) -> list[str]:
    """What runs in each pool fits its quota, less what is reported as unplanned."""

    def exceeded(moment: _Moment) -> Iterator[str]:
        for pool in pools:
            running = dict.fromkeys(pool.nominal, 0)
            for uid, amounts in moment.steady.items():
                job = work.jobs[uid]
                unplanned = any(one.unplanned for one in moment.held.get(uid, []))
                is_managed = job.is_managed(moment.at) and job.namespace in pool.namespaces
                if is_managed and not unplanned:
                    for resource in running:
                        running[resource] += amounts.get(resource, 0)
            for resource, amount in running.items():
                if amount > pool.nominal[resource]:
                    yield f"more {resource} runs than the quota of {pool.name}"

    return _lasting(exceeded, work, message_logs, end)


def released_when_gone(
    work: RunningWork, message_logs: MessageLogs, namespaces: Iterable[str]
) -> list[str]:
    """No quota in `namespaces` is given back while the pods that it was for still run or end.

    Who starts a stopped job again in the moment before is not seen yet, but counted again soon. A workload
    that gets another name is counted under it in the same moment: the log has both decisions, in any order.
    """
    within = frozenset(namespaces)
    wrong: dict[int, str] = {}
    doubtful: dict[str, tuple[int, datetime]] = {}
    running: dict[str, Change] = {}
    idle_until: dict[str, datetime] = {}
    coming = iter(work.changes)
    upcoming = next(coming, None)
    held: dict[str, set[str]] = {}
    for record in message_logs.admissions:
        while upcoming is not None and upcoming.at <= record.time:
            before_it = running.get(upcoming.uid)
            if before_it is None or not (before_it.steady or before_it.ending):
                idle_until[upcoming.uid] = upcoming.at
            running[upcoming.uid] = upcoming
            upcoming = next(coming, None)
        one = record.message
        root = work.root_of(one.uid)
        under = held.setdefault(root, set())
        was_held = one.name in under
        under.discard(one.name)
        if one.state in HOLDING:
            under.add(one.name)
            sequence, by = doubtful.pop(root, (0, one.decided_at))
            if one.decided_at <= by:
                wrong.pop(sequence, None)
        elif was_held and not under and one.namespace in within and root in running:
            now = running[root]
            if not now.steady and not now.ending:
                continue
            is_news = record.time - idle_until[root] <= _MOMENT
            doubtful[root] = (record.sequence, one.decided_at + _AGAIN * is_news)
            wrong[record.sequence] = (
                f"ADMISSIONS {record.sequence}: the quota of {_name(work.jobs[root])} is given back "
                f"while it runs {_shown(now.steady)} and ends {_shown(now.ending)}"
            )
    return list(wrong.values())


def priorities_given(message_logs: MessageLogs, expected: Mapping[str, int]) -> list[str]:
    """Every workload (by uid) gets quota with the priority of the rules, whatever its user writes."""
    wrong: dict[str, str] = {}
    for record in message_logs.admissions:
        one = record.message
        given = expected.get(one.uid, one.priority)
        if one.state in HOLDING and one.priority != given:
            wrong[one.uid] = (
                f"ADMISSIONS {record.sequence}: {one.namespace}/{one.name} has priority "
                f"{one.priority}, and the rules gave it {given}"
            )
    return list(wrong.values())


def _lasting(
    wrong_at: Callable[[_Moment], Iterator[str]],
    work: RunningWork,
    message_logs: MessageLogs,
    end: datetime,
) -> list[str]:
    """Return what is wrong for longer than `NOTICE_SECONDS` without a break, each once."""
    since: dict[str, datetime] = {}
    sentences: dict[str, str] = {}
    for moment in _moments(work, message_logs, end):
        present = dict.fromkeys(wrong_at(moment))
        for text in [text for text in since if text not in present]:
            _tell(sentences, text, since.pop(text), moment.at)
        for text in present:
            since.setdefault(text, moment.at)
    for text, began in since.items():
        _tell(sentences, text, began, end)
    return list(sentences.values())


def _tell(sentences: dict[str, str], text: str, began: datetime, ended: datetime) -> None:
    seconds = (ended - began).total_seconds()
    if seconds > NOTICE_SECONDS:
        sentences[text] = f"{text}, for {seconds:.1f} s from {began:%H:%M:%S} on"


def _moments(work: RunningWork, message_logs: MessageLogs, end: datetime) -> Iterator[_Moment]:
    """Yield the state after each change and each decision, in the order of time; the same object."""
    moment = _Moment(at=end)
    under: dict[str, dict[str, Admission]] = {}
    last: dict[str, dict[str, Admission]] = {}
    happenings: list[tuple[datetime, Change | Admission]] = [(one.at, one) for one in work.changes]
    happenings += [(record.time, record.message) for record in message_logs.admissions]
    for at, one in sorted(happenings, key=lambda happening: happening[0]):
        if at > end:
            return
        moment.at = at
        if isinstance(one, Change):
            moment.steady.pop(one.uid, None)
            if one.steady:
                moment.steady[one.uid] = one.steady
        else:
            holders = under.setdefault(one.uid, {})
            holders.pop(one.name, None)
            if one.state in HOLDING:
                holders[one.name] = one
            root = work.root_of(one.uid)
            of_root = last.setdefault(root, {})
            of_root.pop(one.uid, None)
            if holders:
                of_root[one.uid] = [*holders.values()][-1]
            moment.held[root] = [*of_root.values()]
        yield moment


def _planned(holders: Sequence[Admission]) -> list[Admission]:
    return [one for one in holders if one.state != "evicted" and not one.unplanned]


def _given(holders: Sequence[Admission]) -> Amounts:
    given: Amounts = {}
    for pod_set in (each for one in holders for each in one.pod_sets):
        for resource, text in pod_set.usage.items():
            given[resource] = given.get(resource, 0) + parse_quantity(text)
    return given


def _name(job: Job) -> str:
    return f"{job.kind} {job.namespace}/{job.name} ({job.uid[:8]})"


def _shown(amounts: Amounts) -> str:
    parts = (f"{amount / BILLION:g} {resource}" for resource, amount in amounts.items())
    return ", ".join(parts) or "nothing"
