"""`sluice history`: the messages about one workload, and the traces they belong to."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from services.ctl.connect.reader import open_reader
from services.history.story import MessageBody, story, with_message
from shared.bus.stream_reader import Seen, StreamReader
from shared.contracts.kube.ages import instant
from shared.contracts.kube.conditions import conditions_of
from shared.contracts.kube.kinds import TASK_RUN
from shared.contracts.subjects import (
    SORT_OF,
    Stream,
    observed_filter,
    subject_filter,
    subject_pattern,
)
from shared.runtime.command import CommandError, Exit

TRACEPARENT: Final = "traceparent"
"""The header. It repeats `shared.contracts.messages.base`, whose import would cost more time than this
module."""

WORKLOAD_LOGS: Final = (Stream.ADMISSIONS, Stream.CHECKS, Stream.DISPATCHES, Stream.OUTCOMES)
"""Logs whose subject names the workload in its fifth token."""

BEGINNINGS: Final = (Stream.WORKLOADS, Stream.ADMISSIONS, Stream.OUTCOMES)
"""Logs from which quota deletes old messages when they are nearly full: of ended workloads, or of a long
history."""

MADE_ROOM: Final = "for ended work, to make room"

CUT: Final = "older messages were deleted"

STARTS: Final = subject_filter("history")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One message about the workload."""

    at: datetime
    log: str
    subject: str
    sequence: int
    what: str
    text: str
    trace_id: str | None
    body: MessageBody
    void: bool = False
    """Whether it is a void decision: its leader had been replaced, and no service carries it out."""


async def show_history(
    namespace: str, name: str, *, as_json: bool, every: bool, url: str | None, directory: Path
) -> None:
    """Print the story, or with `every` each message. Raises `CommandError` if no log has any about it."""
    async with open_reader(url, directory) as reader:
        events = await history(reader, namespace, name)
        starts = await _starts(reader)
        begin = await _beginning(reader, starts)
    if not events:
        raise CommandError(
            f"{namespace}/{name}",
            "the logs know nothing of it",
            hint="give the name of a job or of its Workload; `sluice get workloads -A` lists them. "
            + begin,
            status=Exit.FAILED,
        )
    *lines, traces = history_lines(events)
    lost = lost_beginning(events, starts)
    if as_json:
        lines = history_json(events)
    elif every:
        lines = [*lost, *lines, begin, traces]
    else:
        lines_of_story = list(story((e.at, "void" if e.void else e.what, e.body) for e in events))
        more = f"{len(events)} messages in all: `sluice history {namespace}/{name} --all`"
        lines = [*lost, *lines_of_story, *([begin] if MADE_ROOM in begin else []), more, traces]
    print("\n".join(lines))


async def _starts(reader: StreamReader) -> dict[str, MessageBody]:
    """Log to what quota says of its beginning."""
    return {
        str(seen.body.get("log")): seen.body for seen in await reader.now(Stream.QUEUES, STARTS)
    }


def lost_beginning(events: Iterable[Event], starts: Mapping[str, MessageBody]) -> list[str]:
    """A line if older messages about the workload were deleted, though it lived, or may have been."""
    deleted: dict[str, None] = {}
    doubtful: dict[str, None] = {}
    for event in events:
        start = starts.get(event.log, {})
        until = instant(start.get("others_until"))
        if event.subject in (start.get("shortened") or []):
            deleted[event.log] = None
        elif event.log in starts and until is not None and event.at < until:
            doubtful[event.log] = None
    if deleted:
        return [f"begins in the middle: {CUT} from {', '.join(deleted)}, to make room"]
    if doubtful:
        return [f"may begin in the middle: {CUT} from {', '.join(doubtful)}, to make room"]
    return []


async def _beginning(reader: StreamReader, started: Mapping[str, MessageBody]) -> str:
    """Where the logs begin, in words: by age, or because quota made room in a log that was nearly full."""
    parts = []
    for log in BEGINNINGS:
        state = (await reader.call(f"STREAM.INFO.{log}"))["state"]
        if not state["messages"]:
            parts.append(f"{log} is empty")
            continue
        first = datetime.fromisoformat(state["first_ts"])
        cut = instant(started.get(log, {}).get("began_at"))
        made_room = cut is not None and cut > first
        at = cut if cut is not None and made_room else first
        why = f" {MADE_ROOM}" if made_room else ""
        parts.append(f"{log} {at.isoformat(timespec='seconds')}{why}")
    return f"logs begin: {', '.join(parts)}"


async def history(reader: StreamReader, namespace: str, name: str) -> list[Event]:
    """All messages that the logs hold about a workload and its job, oldest first.

    `name` is that of either. Every uid that had this name is included.
    """
    workloads: dict[str, None] = {}
    jobs: dict[str, None] = {name: None}
    events: list[Event] = []
    for message in await reader.replay(
        Stream.WORKLOADS, subject_pattern("workload", namespace=namespace)
    ):
        owner = (message.body.get("owner") or {}).get("name")
        if name in {message.body.get("name"), owner}:
            workloads[message.body["name"]] = None
            if owner:
                jobs[owner] = None
            events.append(_event(Stream.WORKLOADS, message))
    objects = dict.fromkeys((*jobs, *workloads))
    found: list[tuple[str, Seen]] = []
    for log, filters in {
        Stream.OBSERVED: [
            f"{subject_pattern('observed', namespace=namespace, name=each)}.*" for each in objects
        ],
        **{
            log: [_workload_subject(log, namespace, workload) for workload in workloads]
            for log in WORKLOAD_LOGS
        },
    }.items():
        if filters:
            found += [(log, message) for message in await reader.replay(log, *filters)]
    terms = await reader.terms()
    events += [_event(log, message, void=message.is_void(terms)) for log, message in found]
    events += await _hosts(reader, namespace, tuple(jobs))
    return sorted(events, key=lambda event: (event.at, event.log, event.sequence))


def _workload_subject(log: str, namespace: str, workload: str) -> str:
    subject = subject_pattern(SORT_OF[log], namespace=namespace, name=workload)
    return f"{subject}.>" if log == Stream.CHECKS else subject


async def _hosts(reader: StreamReader, namespace: str, jobs: tuple[str, ...]) -> list[Event]:
    """Machines of the TaskRuns whose owner is the job."""
    owned: dict[str, None] = {}
    for message in await reader.replay(
        Stream.OBSERVED, observed_filter(TASK_RUN, namespace=namespace)
    ):
        metadata = (message.body.get("object") or {}).get("metadata") or {}
        owners = metadata.get("ownerReferences") or []
        if any(owner.get("name") in jobs for owner in owners):
            owned[message.body["name"]] = None
    if not owned:
        return []
    filters = [subject_pattern("host", namespace=namespace, name=name) for name in owned]
    return [
        _event(Stream.HOSTS, message) for message in await reader.replay(Stream.HOSTS, *filters)
    ]


def _event(log: str, message: Seen, *, void: bool = False) -> Event:
    what = SORT_OF[log]
    text = _TEXTS[what](message.body) if message.body else "undecodable"
    return Event(
        at=message.time,
        log=log,
        subject=message.subject,
        sequence=message.sequence,
        what=what,
        text=f"void, its leader was replaced: {text}" if void else text,
        trace_id=_trace_id(message.headers.get(TRACEPARENT, "")),
        body=message.body,
        void=void,
    )


def _trace_id(traceparent: str) -> str | None:
    """The 32 digits of a trace id; None for a malformed header."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) == _TRACEPARENT_PARTS else None


_TRACEPARENT_PARTS: Final = 4


def _observed(body: MessageBody) -> str:
    title = f"{body.get('kind')} {body.get('name')}"
    if body.get("deleted"):
        return f"{title} is gone"
    if body.get("object_ref"):
        return f"{title}: resourceVersion {body.get('resource_version')}, larger than a message"
    obj: MessageBody = body.get("object") or {}
    spec = obj.get("spec") or {}
    facts = [f"resourceVersion {body.get('resource_version')}"]
    if spec.get("status"):
        facts.append(f"spec.status {spec['status']}")
    if spec.get("suspend") is not None:
        facts.append("suspended" if spec["suspend"] else "not suspended")
    facts += [
        f"{c.get('type')}={c.get('status')}" + (f" ({c['reason']})" if c.get("reason") else "")
        for c in conditions_of(obj)
    ]
    return f"{title}: {', '.join(facts)}"


def _workload(body: MessageBody) -> str:
    text = f"{body.get('phase')}, priority {body.get('priority')}"
    if body.get("priority_class"):
        text += f" ({body['priority_class']})"
    asked = "; ".join(
        f"{pod_set.get('count')} x {_pairs(pod_set.get('requests') or {})}"
        for pod_set in body.get("pod_sets") or []
    )
    if asked:
        text += f", asks {asked}"
    if body.get("inadmissible"):
        text += f", inadmissible: {body['inadmissible']}"
    if finish := body.get("finish"):
        text += f", {'succeeded' if finish.get('success') else 'failed'}: {finish.get('message')}"
    return text


def _admission(body: MessageBody) -> str:
    text = str(body.get("state"))
    if body.get("cluster_queue"):
        text += f" in {body['cluster_queue']}"
    given = "; ".join(_pairs(p.get("usage") or {}) for p in body.get("pod_sets") or [])
    if given:
        text += f": {given}"
    if body.get("reason"):
        text += f", {body['reason']}"
    if body.get("message"):
        text += f": {body['message']}"
    return f"{text} (decision {body.get('term')}.{body.get('number')})"


def _check(body: MessageBody) -> str:
    return with_message(f"{body.get('check')} {body.get('state')}", body)


def _dispatch(body: MessageBody) -> str:
    return f"{body.get('state')} to {body.get('spoke')}"


def _outcome(body: MessageBody) -> str:
    decision = f"(decision {body.get('term')}.{body.get('number')})"
    return with_message(f"{body.get('action')} {body.get('result')} {decision}", body)


def _host(body: MessageBody) -> str:
    text = f"TaskRun {body.get('name')}: {body.get('platform')} {body.get('state')}"
    if body.get("host"):
        text += f" on {body['host']} ({body.get('provider')} {body.get('address') or ''})".rstrip()
    return with_message(text, body)


_TEXTS: Final[dict[str, Callable[[MessageBody], str]]] = {
    "observed": _observed,
    "workload": _workload,
    "admission": _admission,
    "check": _check,
    "dispatch": _dispatch,
    "outcome": _outcome,
    "host": _host,
}


def _pairs(amounts: MessageBody) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(amounts.items()))


def history_lines(events: Iterable[Event]) -> list[str]:
    """For people: time, place in the log, text; the last line has the trace ids."""
    listed = list(events)
    width = max((len(f"{e.log}:{e.sequence}") for e in listed), default=0)
    lines = [
        f"{e.at.isoformat(timespec='milliseconds')}  {f'{e.log}:{e.sequence}':<{width}}  "
        f"{e.what:<9}  {e.text}"
        for e in listed
    ]
    traces = sorted({e.trace_id for e in listed if e.trace_id})
    return [*lines, f"trace: {', '.join(traces) or 'none'}"]


def history_json(events: Iterable[Event]) -> list[str]:
    """For programs: one JSON object a line."""
    return [
        json.dumps(
            {
                "at": e.at.isoformat(),
                "log": e.log,
                "sequence": e.sequence,
                "what": e.what,
                "trace_id": e.trace_id,
                "message": e.body,
                **({"void": True} if e.void else {}),
            }
        )
        for e in events
    ]
