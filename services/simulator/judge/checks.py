"""Checks of recorded messages. Each returns sentences that say what is wrong."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from services.quota.audit.ledger import Cell, amount_text
from services.simulator.judge.message_logs import MessageLogs, Record
from services.simulator.judge.older_states import observed_in_order
from services.simulator.judge.quota_ledger import JudgedQueues
from shared.contracts.kube.numbers import is_at_least
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.contracts.messages.admissions import HOLDING, Admission, Term
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream
from shared.integrations import controller_uid, integration_for, queue_of

ROOM_KNOWN: Final = timedelta(seconds=20)
"""Longest time in which a leader does not know that a log is nearly full."""

RENAME_KNOWN: Final = timedelta(seconds=60)
"""Longest time in which quota does not know that a job has left a name: its classifier may have been away."""

_CHAIN_MAX: Final = 5
"""A job and the controllers above it: more than any kind has."""

Uid = str


def decided_in_order(message_logs: MessageLogs) -> list[str]:
    """One decider at a time: (term, number) only increases along the log."""
    wrong: list[str] = []
    last = (0, 0)
    places = [(one.sequence, (one.message.term, 0)) for one in message_logs.terms]
    places += [
        (one.sequence, (one.message.term, one.message.number)) for one in message_logs.admissions
    ]
    for sequence, place in sorted(places):
        if place <= last:
            wrong.append(f"ADMISSIONS {sequence}: decision {place} comes after decision {last}")
        last = place
    return wrong


def next_leader_can_read(message_logs: MessageLogs) -> list[str]:
    """Every amount of a decision parses: a leader reads what the one before it wrote."""
    wrong: list[str] = []
    for record in message_logs.admissions:
        for assigned in record.message.pod_sets:
            for resource, text in assigned.usage.items():
                if problem := _unreadable(text):
                    wrong.append(f"ADMISSIONS {record.sequence}: {resource}: {problem}")
    return wrong


def _unreadable(text: str) -> str:
    """Why a leader could not read an amount; empty: it can."""
    try:
        return f"{text} is less than nothing" if parse_quantity(text) < 0 else ""
    except QuantityError as error:
        return str(error)


def none_admitted_twice(message_logs: MessageLogs) -> list[str]:
    """A workload that holds quota gets no other quota; one job has one holder at a time.

    A job that gets another name has both until its classifier has told of both: one of them gives back soon.
    What waits is given the same again then, and what runs is counted again wherever it fits.
    """
    wrong: list[str] = []
    held: dict[Uid, dict[str, Admission]] = {}
    renamed: dict[tuple[Uid, str, str], tuple[datetime, str]] = {}
    """Jobs with two names, since when, and the sentence about that."""
    by_name: dict[tuple[str, str, str], Uid] = {}
    for record in message_logs.admissions:
        new = record.message
        holds = held.setdefault(new.uid, {})
        if new.state not in HOLDING:
            holds.pop(new.name, None)
            for pair in [one for one in renamed if one[0] == new.uid and new.name in one[1:]]:
                since, text = renamed.pop(pair)
                if record.time - since > RENAME_KNOWN:
                    wrong.append(text)
            continue
        own = holds.get(new.name)
        for before in holds.values():
            is_same = _places(before) == _places(new)
            text = (
                f"ADMISSIONS {record.sequence}: {new.ref.path} holds {_places(before)} as "
                f"{before.name} and is given {_places(new)}"
            )
            if before.name == new.name:
                wrong += [] if is_same else [text]
            elif own is None:
                if is_same or new.unplanned:
                    renamed[new.uid, before.name, new.name] = record.time, text
                else:
                    wrong.append(text)
        name = (new.cluster, new.namespace, new.name)
        other = by_name.get(name)
        if other is not None and other != new.uid and new.name in held[other]:
            wrong.append(
                f"ADMISSIONS {record.sequence}: {new.ref.path} is admitted as {new.uid} while {other} "
                "of the same name still holds quota"
            )
        by_name[name] = new.uid
        holds[new.name] = new
    return [*wrong, *(text for _, text in renamed.values())]


def quotas_respected(message_logs: MessageLogs) -> list[str]:
    """No admission exceeds the quota that its queue may use at that place of the log.

    Not judged, on three servers: those of a term of which decisions are missing before them (ADR 100).
    """
    wrong: list[str] = []
    gaps = _Gaps()
    takeovers = _Takeovers(message_logs.workloads)
    for record, books in _walk(message_logs):
        new = record.message
        is_torn = gaps.lacks_one_before(new)
        before = takeovers.free_before(new, books) or {}
        if new.unplanned or (is_torn and message_logs.replicated):
            continue
        for cell, more in books.increase(new).items():
            free = books.available(new.cluster_queue, cell)
            if free - more < min(0, before.get(cell, 0)):
                wrong.append(
                    f"ADMISSIONS {record.sequence}: {new.ref.path} takes {amount_text(cell, more)} in "
                    f"{new.cluster_queue}, of which {amount_text(cell, free)} is free"
                )
    return wrong


class _Gaps:
    """Terms of which decisions are missing."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._torn: set[int] = set()

    def lacks_one_before(self, decision: Admission) -> bool:
        """Whether one before it is missing. To be asked of each, in order."""
        if decision.number != self._last.get(decision.term, 0) + 1:
            self._torn.add(decision.term)
        self._last[decision.term] = decision.number
        return decision.term in self._torn


def priorities_respected(message_logs: MessageLogs) -> list[str]:
    """At no admission did a waiting workload of higher priority in the same queue fit the free quota.

    Judged by the messages that the decider had read (`Admission.inputs`). In doubt it is no inversion: of a
    term of which decisions are missing, one before may have been the other workload's (ADR 100).
    """
    wrong: list[str] = []
    gaps = _Gaps()
    line = _WaitingWorkloads(message_logs.workloads)
    takeovers = _Takeovers(message_logs.workloads)
    for record, books in _walk(message_logs):
        new = record.message
        is_torn = gaps.lacks_one_before(new)
        line.advance(new.inputs.get(Stream.WORKLOADS, 0))
        begins = books.increase(new) and books.holder(new) is None and not new.unplanned
        if takeovers.free_before(new, books) is None and begins and not is_torn:
            passed = next(
                (
                    one
                    for one in line.ahead_of(new, books)
                    if books.fits(one) and line.may_be_admitted(one, new.decided_at)
                ),
                None,
            )
            if passed is not None:
                wrong.append(
                    f"ADMISSIONS {record.sequence}: {new.ref.path} of priority {new.priority} is "
                    f"admitted to {new.cluster_queue} although {passed.namespace}/{passed.name} of "
                    f"priority {passed.priority} waits and fits"
                )
        line.decided[new.uid] = new
    return wrong


class _Takeovers:
    """Quota that a Workload gives back because a job takes it over, in the same moment.

    Its queue may be overused by then, or have others waiting: the job gets nothing that was not held.
    """

    def __init__(self, workloads: Iterable[Record[WorkloadState]]) -> None:
        self._takers = {
            (one.message.ref, one.message.uid, one.message.adopts)
            for one in workloads
            if one.message.adopts
        }
        self._given_back: dict[WorkloadRef, tuple[Admission, datetime, dict[Cell, int]]] = {}

    def free_before(self, new: Admission, books: JudgedQueues) -> Mapping[Cell, int] | None:
        """What was free of the queue before the Workload gave back; None if `new` takes nothing over.

        To be asked about every decision, in order.
        """
        if new.state not in HOLDING:
            if (held := books.holder(new)) is not None:
                free = {c: books.available(held.cluster_queue, c) for c in books.usage(held)}
                self._given_back[new.ref] = held, new.decided_at, free
            return None
        if (given := self._given_back.pop(new.ref, None)) is None:
            return None
        held, at, free = given
        is_taken = (new.ref, new.uid, held.uid) in self._takers
        same = (held.cluster_queue, at) == (new.cluster_queue, new.decided_at)
        return free if is_taken and same else None


class _WaitingWorkloads:
    """The waiting workloads, as far as the decider had read."""

    def __init__(self, workloads: Iterable[Record[WorkloadState]]) -> None:
        self._coming = list(workloads)
        self._next = 0
        self._states: dict[tuple[str, str, str], WorkloadState] = {}
        self.decided: dict[Uid, Admission] = {}

    def advance(self, sequence: int) -> None:
        while self._next < len(self._coming) and self._coming[self._next].sequence <= sequence:
            state = self._coming[self._next].message
            key = (state.cluster, state.namespace, state.name)
            if state.phase == "waiting":
                self._states[key] = state
            else:
                self._states.pop(key, None)
            self._next += 1

    def ahead_of(self, new: Admission, books: JudgedQueues) -> list[WorkloadState]:
        return [
            state
            for state in self._states.values()
            if state.priority > new.priority
            and state.cluster == new.cluster
            and books.holder(state) is None
            and books.queue_of(state.namespace, state.queue) == new.cluster_queue
        ]

    def may_be_admitted(self, state: WorkloadState, at: datetime) -> bool:
        """True if the workload lacks nothing but quota: it is active and not backing off."""
        last = self.decided.get(state.uid)
        times = [state.requeue_at, None if last is None else last.requeue_at]
        refused = last is not None and "Refused" in last.message + last.reason
        # What a preemptor claimed is kept for it: whoever is admitted beside it takes nothing of that.
        claims = last is not None and last.reason == "WaitingForPreemptedWorkloads"
        return (
            not claims
            and state.active
            and state.inadmissible is None
            and not refused
            and all(time is None or time <= at for time in times)
        )


def reasons_given(message_logs: MessageLogs) -> list[str]:
    """The last decision about each waiting workload has a reason."""
    last: dict[tuple[str, str, str], Admission] = {}
    for record in message_logs.admissions:
        one = record.message
        last[one.cluster, one.namespace, one.name] = one
    wrong: list[str] = []
    for state in _latest(message_logs.workloads).values():
        if state.phase != "waiting":
            continue
        decision = last.get((state.cluster, state.namespace, state.name))
        if decision is None or decision.uid != state.uid:
            wrong.append(f"{state.ref.path} waits, and nothing was ever decided about it")
        elif decision.state == "waiting" and not (decision.reason and decision.message):
            wrong.append(f"{state.ref.path} waits without a reason ({decision.reason!r})")
    return wrong


def none_started_twice(message_logs: MessageLogs) -> list[str]:
    """A job with a queue starts once, and once more after each eviction."""
    starts: dict[Uid, list[str]] = {}
    names: dict[Uid, str] = {}
    for record in message_logs.observed:
        job = record.message
        if integration_for(group=job.group, kind=job.kind) is None or not job.object:
            continue
        if not queue_of(job.object):
            continue  # It starts with the one that made it.
        started = (job.object.get("status") or {}).get("startTime")
        if started and started not in starts.setdefault(job.uid, []):
            starts[job.uid].append(started)
            names[job.uid] = f"{job.kind} {job.namespace}/{job.name}"
    taken_off: dict[Uid, int] = {}
    held: set[Uid] = set()
    for decision in message_logs.admissions:
        uid, state = decision.message.uid, decision.message.state
        if state in HOLDING:
            held.add(uid)
        elif uid in held:
            held.discard(uid)
            taken_off[uid] = taken_off.get(uid, 0) + 1
    return [
        f"{names[uid]} started {len(times)} times: {', '.join(times)}"
        for uid, times in starts.items()
        if len(times) > 1 + taken_off.get(uid, 0)
    ]


def none_runs_without_leave(message_logs: MessageLogs) -> list[str]:
    """Every job that was observed running held quota then, or what made it, by the times of the messages.

    A watcher may tell late that a job ran, after its stop has given the quota back: what it tells is
    then no newer than the job that was stopped.
    """
    wrong: list[str] = []
    held: set[Uid] = set()
    stopped_at: dict[Uid, str] = {}
    reported: set[Uid] = set()
    above: dict[Uid, Uid] = {}
    """Job to its controller."""

    def chain(uid: Uid) -> Iterator[Uid]:
        for _ in range(_CHAIN_MAX):
            yield uid
            uid = above.get(uid, "")

    records: list[Record[Any]] = [*message_logs.admissions, *message_logs.outcomes]
    pending = deque(sorted(records, key=lambda one: one.time))
    for record in message_logs.observed:
        while pending and pending[0].time <= record.time:
            one = pending.popleft().message
            if isinstance(one, Admission):
                (held.add if one.state in HOLDING else held.discard)(one.uid)
            elif (one.result, one.action) == ("applied", "suspend"):
                stopped_at[one.uid] = one.version
        job = record.message
        if job.body is not None:
            above[job.uid] = controller_uid(job.body)
        if not _runs(job) or job.uid in reported or not held.isdisjoint(chain(job.uid)):
            continue
        stops = [stopped_at.get(one, "0") for one in chain(job.uid)]
        if not any(is_at_least(version, job.resource_version) for version in stops):
            reported.add(job.uid)
            wrong.append(
                f"OBSERVED {record.sequence}: {job.kind} {job.namespace}/{job.name} runs, and holds "
                "no quota"
            )
    return wrong


def none_admitted_without_room(
    message_logs: MessageLogs, crowded: Iterable[tuple[str, datetime, datetime]]
) -> list[str]:
    """Nobody is given quota while a log that ends need has only the room for ends.

    A leader asks before its first decision, and learns it within `ROOM_KNOWN` of the log's filling. What it
    decided before may be stored later: the network held it up, or its process was paused.
    """
    wrong: list[str] = []
    held: set[Uid] = set()
    terms = {one.message.term: one for one in message_logs.terms}
    for record in message_logs.admissions:
        one = record.message
        given = one.state in HOLDING and one.uid not in held and not one.unplanned
        (held.add if one.state in HOLDING else held.discard)(one.uid)
        term = terms.get(one.term)
        decided = _decided_at(record, term)
        for log, since, until in crowded if given else ():
            known = term.time if term and term.time > since else since + ROOM_KNOWN
            if (
                log in {Stream.ADMISSIONS, Stream.WORKLOADS, Stream.OUTCOMES}
                and known < decided < until
            ):
                wrong.append(f"{one.ref.path} is given quota while {log} has only room for ends")
    return wrong


def _decided_at(record: Record[Admission], term: Record[Term] | None) -> datetime:
    """When a decision was made, at the latest. Its leader's clock may be off, as when its term began."""
    if term is None:
        return record.time
    off = term.message.began_at - term.time
    return min(record.time, record.message.decided_at - off)


def nothing_dead(message_logs: MessageLogs) -> list[str]:
    """There are no dead letters."""
    return [
        f"dead letter of {one.message.service} for {one.message.original_subject}: "
        f"{one.message.reason}"
        for one in message_logs.dead
    ]


def none_lost(
    message_logs: MessageLogs, submitted: Mapping[Uid, str], *, finished: bool
) -> list[str]:
    """Every submitted job (uid to name) is known; with `finished`, all of them ended."""
    states = {state.uid: state for state in _latest(message_logs.workloads).values()}
    dead = {one.message.original_subject for one in message_logs.dead}
    wrong: list[str] = []
    for uid, name in submitted.items():
        state = states.get(uid)
        if state is None:
            if not any(name.rpartition("/")[2] in subject for subject in dead):
                wrong.append(f"{name} was submitted, and no workload is known for it")
        elif finished and state.phase not in ENDED_PHASES:
            wrong.append(f"{name} is {state.phase}, not finished")
    return wrong


def quota_given_back(message_logs: MessageLogs) -> list[str]:
    """After all jobs have ended, none holds quota."""
    held: dict[tuple[WorkloadRef, Uid], str] = {}
    for record in message_logs.admissions:
        one = record.message
        holder = one.ref, one.uid
        if one.state in HOLDING:
            held[holder] = f"{one.ref.path} still holds quota in {one.cluster_queue}: {one.state}"
        else:
            held.pop(holder, None)
    return list(held.values())


ALWAYS: Final[tuple[Callable[[MessageLogs], list[str]], ...]] = (
    observed_in_order,
    decided_in_order,
    next_leader_can_read,
    none_admitted_twice,
    quotas_respected,
    priorities_respected,
    reasons_given,
    none_started_twice,
    none_runs_without_leave,
    nothing_dead,
)
"""What must hold whenever all jobs passed the webhook."""


def _walk(message_logs: MessageLogs) -> Iterable[tuple[Record[Admission], JudgedQueues]]:
    """Yield each decision with the quota ledger before it, built from the messages it had read."""
    books: dict[str, JudgedQueues] = {}
    index = read = 0
    for record in message_logs.admissions:
        known = record.message.inputs.get(Stream.WORKLOADS, 0)
        while read < len(message_logs.workloads) and message_logs.workloads[read].sequence <= known:
            state = message_logs.workloads[read].message
            books.setdefault(state.cluster, JudgedQueues()).reclaim(state)
            read += 1
        known = record.message.inputs.get(Stream.OBSERVED, 0)
        while index < len(message_logs.observed) and message_logs.observed[index].sequence <= known:
            observed = message_logs.observed[index].message
            books.setdefault(observed.cluster, JudgedQueues()).observe(observed)
            index += 1
        of_cluster = books.setdefault(record.message.cluster, JudgedQueues())
        yield record, of_cluster
        of_cluster.record(record.message)


def _latest(
    workloads: Iterable[Record[WorkloadState]],
) -> dict[tuple[str, str, str], WorkloadState]:
    return {
        (one.message.cluster, one.message.namespace, one.message.name): one.message
        for one in workloads
    }


def _places(admission: Admission) -> list[tuple[str, str, int, tuple[tuple[str, str], ...]]]:
    queue = admission.cluster_queue
    sets = admission.pod_sets
    return [(queue, one.name, one.count, tuple(sorted(one.flavors.items()))) for one in sets]


def _runs(job: Observed) -> bool:
    integration = integration_for(group=job.group, kind=job.kind)
    if integration is None or job.deleted or not job.object or not queue_of(job.object):
        return False
    return not integration.held(job.object) and integration.active(job.object)
