"""The timeline of one workload, from its creation to its end, read from the logs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from services.console.pages.documents import Preemptor, Timeline, TimelineLine
from services.history.story import MessageBody, descriptions
from shared.bus.follow import read, recall_entries, skip_undecodable, stored_entries
from shared.bus.port import Bus, Entry
from shared.contracts.kube.kinds import PIPELINE_RUN
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message, WorkloadMessage
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import subject_pattern
from shared.telemetry.traceparent import made_near

LINES_MAX: Final = 500
"""Lines that a timeline has at most, the last ones. A workload that is evicted each minute has many."""

_ELSEWHERE: Final = "a workload of another namespace"
_TRACE_PARTS: Final = 4

_About = WorkloadMessage | HostState
_Found = tuple[Entry, str, _About]
"""An entry, what it is about, and its message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where traces and jobs are shown: addresses with names in braces. Empty: nowhere."""

    trace: str = ""
    """With `{trace}`."""

    job: str = ""
    """With `{cluster}`, `{namespace}`, `{kind}` and `{name}`."""

    def to_trace(self, trace: str | None) -> str | None:
        """The address of a trace."""
        return _filled(self.trace, trace=trace) if trace else None

    def to_job(self, ref: WorkloadRef, job: JobRef | None) -> str | None:
        """The address of a job."""
        if job is None:
            return None
        names = {"cluster": ref.cluster, "namespace": ref.namespace}
        return _filled(self.job, **names, kind=job.kind.lower(), name=job.name)


def _filled(template: str, **names: str) -> str | None:
    """The template with each name percent-encoded; None if there is no template."""
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template or None


async def timeline(
    bus: Bus, ref: WorkloadRef, *, shows: Callable[[str], bool], links: Links
) -> Timeline:
    """What the logs hold about a workload. `shows`: whether the user may see a namespace."""
    found: list[_Found] = []
    for what, kind, filter_ in _sources(ref):
        found += await _stored(bus, what, kind, filter_)
    if any(_is_run(message) for _, _, message in found):
        found += await _hosts(bus, ref)
    found = _of_workload(ref, found)
    bodies = [(entry.time, what, _visible(message, shows)) for entry, what, message in found]
    states = [m for _, _, m in found if isinstance(m, WorkloadState) and m.cluster == ref.cluster]
    decisions = [m for _, _, m in found if isinstance(m, Admission) and m.cluster == ref.cluster]
    if states:  # An earlier one may have had the same name.
        decisions = [each for each in decisions if each.uid == states[-1].uid]
    lines = [*_beginning(states), *descriptions(bodies)]
    trace = _trace(message for _, _, message in found)
    return Timeline(
        cluster=ref.cluster,
        namespace=ref.namespace,
        name=ref.name,
        items=[TimelineLine(at=at, what=what, text=text) for at, what, text in lines[-LINES_MAX:]],
        omitted=max(0, len(lines) - LINES_MAX),
        last_admitted_at=_last_admitted_at(decisions),
        preemptor=_preemptor(decisions, shows),
        trace_id=trace,
        trace_url=links.to_trace(trace),
        job_url=links.to_job(ref, states[-1].owner if states else None),
    )


async def _stored(bus: Bus, what: str, kind: type[_About], *filters: str) -> list[_Found]:
    """Everything up to the end of the log, in its order; what cannot be read is skipped."""
    found: list[_Found] = []

    def keep(_stream: str, entry: Entry) -> None:
        found.append((entry, what, entry.read(kind)))

    async for entry in stored_entries(bus, kind.stream, *filters):
        skip_undecodable(keep, kind.stream, entry)
    return found


def _is_run(message: Message) -> bool:
    """Whether it is about a workload whose job may have build machines."""
    owner = message.owner if isinstance(message, WorkloadState) else None
    return owner is not None and owner.kind == PIPELINE_RUN.kind


async def _hosts(bus: Bus, ref: WorkloadRef) -> list[_Found]:
    """The states of the hosts of a run's TaskRuns. The last one of each TaskRun names the workload."""
    everywhere = subject_pattern("host", namespace=ref.namespace)
    uids: dict[str, str] = {}

    def on_entry(entry: Entry) -> None:
        state = read(entry, HostState)
        if state is not None and state.workload == ref.name:
            uids[state.uid] = state.name

    await recall_entries(bus, HostState.stream, [everywhere], on_entry=on_entry)
    if not uids:
        return []
    names = sorted({*uids.values()})
    filters = (subject_pattern("host", namespace=ref.namespace, name=name) for name in names)
    found = await _stored(bus, "host", HostState, *filters)
    return [each for each in found if isinstance(each[2], HostState) and each[2].uid in uids]


def _last_admitted_at(decisions: list[Admission]) -> datetime | None:
    """When it was admitted last; None: never, as far as the log goes back."""
    for each in reversed(decisions):
        if each.state == "admitted":
            return each.admitted_at or each.decided_at
    return None


def _preemptor(decisions: list[Admission], shows: Callable[[str], bool]) -> Preemptor | None:
    """Who preempted it last; None: nobody, as far as the log goes back."""
    for each in reversed(decisions):
        if each.state == "evicted" and each.preempted_by:
            namespace, _, name = each.preempted_by.partition("/")
            if not shows(namespace):
                return Preemptor(at=each.decided_at)
            return Preemptor(at=each.decided_at, namespace=namespace, name=name)
    return None


def _sources(ref: WorkloadRef) -> list[tuple[str, type[WorkloadMessage], str]]:
    """What a message is about, its type, and the filter for those about this workload and its copies."""

    def everywhere(what: str) -> str:
        return subject_pattern(what, namespace=ref.namespace, name=ref.name)

    return [
        ("workload", WorkloadState, everywhere("workload")),
        ("admission", Admission, everywhere("admission")),
        ("check", CheckState, f"{subject_pattern('check', *ref)}.>"),
        ("outcome", Outcome, everywhere("outcome")),
    ]


def _of_workload(ref: WorkloadRef, found: list[_Found]) -> list[_Found]:
    """What is about this workload or its copies on spokes, in order; another cluster may have its name.

    A copy has no copies: those on other spokes are its siblings, whose story the hub tells.
    """
    states = [message for _, _, message in found if isinstance(message, WorkloadState)]
    copied_to = {state.cluster for state in states if ORIGIN in state.labels}
    clusters = {ref.cluster}
    if ref.cluster not in copied_to and any(state.cluster == ref.cluster for state in states):
        clusters |= copied_to
    kept = [each for each in found if each[2].cluster in clusters]
    return sorted(kept, key=lambda each: (each[0].time, each[0].sequence))


def _visible(message: Message, shows: Callable[[str], bool]) -> MessageBody:
    """The body without the name of a workload that the user may not see."""
    body = message.model_dump(mode="json")
    by = body.get("preempted_by")
    if by and not shows(str(by).split("/")[0]):
        body["preempted_by"] = _ELSEWHERE
    return body


def _beginning(states: list[WorkloadState]) -> Iterator[tuple[datetime, str, str]]:
    """When the object was created, and whether the webhook held it then, as far as that is known."""
    if states:
        first = states[0]
        owner = "Workload" if first.owner is None else f"{first.owner.kind} {first.owner.name}"
        if _held_by_webhook(first):
            text = f"{owner} is created; the webhook lets it wait for quota"
            yield first.created_at, "webhook", text
        else:
            yield first.created_at, "workload", f"{owner} is created"


def _held_by_webhook(first: WorkloadState) -> bool:
    """Whether the webhook held the job at its creation: it gave it a trace context then.

    The webhook writes no log. Only jobs of users are held by it: not a Workload without a job, nor a copy,
    which has the trace context of its original. A job that the webhook did not see is held by the patcher.
    """
    is_of_user = first.owner is not None and ORIGIN not in first.labels
    return (
        is_of_user and first.phase == "waiting" and made_near(first.traceparent, first.created_at)
    )


def _trace(messages: Iterable[Message]) -> str | None:
    """The id of the trace that the messages belong to. None: they carry none."""
    for message in messages:
        parts = (message.traceparent or "").split("-")
        if len(parts) == _TRACE_PARTS:
            return parts[1]
    return None
