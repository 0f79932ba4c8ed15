"""From what the logs say of one workload to the spans of its trace.

A workload is always at something: each fact ends one activity and begins the next. The activities are the
trace's leaves, one after another, so that no time between creation and end is unaccounted for. What waits
is split by the reason that was told.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from services.tracer.facts import LOGS, Asked, Checked, Decided, Done, Fact, Ordered
from services.tracer.lives import Life
from shared.contracts import subjects
from shared.telemetry.spans import Context, Kind, Span, Value, derived_span_id, derived_trace_id

__all__ = ["batch_of", "decision_context", "spans_of"]

OBSERVED: Final = "sluice.observed.{cluster}.{namespace}.{name}.{resource}"
ADMISSION: Final = "sluice.admission.{cluster}.{namespace}.{name}"
CHECK: Final = "sluice.check.{cluster}.{namespace}.{name}.{check}"
DISPATCH: Final = "sluice.dispatch.{spoke}.{namespace}.{name}"

PENDING: Final = "Pending"
"""Kueue's reason of what waits and was not told more."""

LINKS_MAX: Final = 500
"""Of one batch. Viewers list them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Activity:
    """What a workload is at. Two that are equal are one."""

    name: str
    kind: Kind = Kind.INTERNAL
    service: str = "quota"
    context: Context | None = None
    """Its span, where others must know it; None: derived from what it is."""

    attributes: Mapping[str, Value] = field(default_factory=dict, compare=False)
    links: tuple[Context, ...] = field(default=(), compare=False)


def spans_of(life: Life) -> list[Span]:
    """The trace of a life that has ended, or the part that a copy has in it."""
    assert life.trace is not None
    assert life.end is not None
    top = life.trace
    if life.is_copy:
        top = _derived(top, "copy", life.ident, life.uid)
    facts = sorted(life.facts, key=lambda fact: (fact.stored, LOGS.index(fact.log)))
    story = _Story(life, top, facts)
    below = story.spans()
    start = min([life.created_at, *(span.start for span in below)])
    return [_whole(life, top, start), *below]


def decision_context(trace: Context, decision: Decided) -> Context:
    """The span in which a decision was made, as it is linked to."""
    return _derived(trace, "decision", decision.term, decision.number)


def batch_of(
    decisions: Sequence[tuple[Context, Decided]], *, count: int, end: datetime
) -> Span | None:
    """The span of decisions that were published together, linked with each of them; None if none is traced.

    `count`: how many they were, those without a trace included.
    """
    if not decisions:
        return None
    first = decisions[0][1]
    return Span(
        context=_batch_context(first),
        parent=None,
        service="quota",
        name=f"publish {ADMISSION}",
        kind=Kind.CLIENT,
        start=first.at,
        end=end,
        attributes={
            **_messaging("publish", "send", ADMISSION),
            "messaging.batch.message_count": count,
            "sluicegate.term": first.term,
            "sluicegate.decision.first": min(one.number for _, one in decisions),
            "sluicegate.decision.last": max(one.number for _, one in decisions),
        },
        links=tuple(decision_context(trace, one) for trace, one in decisions[:LINKS_MAX]),
    )


def _batch_context(decision: Decided) -> Context:
    """Decisions of one moment of one leader are published together."""
    parts = ("batch", decision.term, decision.at.isoformat())
    return Context(trace_id=derived_trace_id(*parts), span_id=derived_span_id(*parts))


def _whole(life: Life, top: Context, start: datetime) -> Span:
    """The workload itself."""
    assert life.trace is not None
    assert life.end is not None
    cluster, namespace, name = life.ident
    parent = None
    if life.is_copy:
        parent = life.trace
    elif life.parent is not None:
        parent = Context(trace_id=life.trace.trace_id, span_id=life.parent)
    pipeline = life.run_of or life.kind
    result = {True: "success", False: "failure", None: "cancellation"}[life.success]
    queues = [fact.cluster_queue for fact in life.facts if isinstance(fact, Decided)]
    attributes: dict[str, Value] = {
        "cicd.pipeline.name": pipeline,
        "cicd.pipeline.action.name": "RUN",
        "cicd.pipeline.run.id": life.uid,
        "cicd.pipeline.result": result,
        "k8s.cluster.name": cluster,
        "k8s.namespace.name": namespace,
        "sluicegate.kind": life.kind,
        "sluicegate.job": life.job,
        "sluicegate.workload": name,
        "sluicegate.queue": life.queue,
        "sluicegate.cluster_queue": next((queue for queue in reversed(queues) if queue), ""),
        "sluicegate.priority": life.priority,
    }
    if life.success is False:
        attributes["error.type"] = "failure"
    return Span(
        context=top,
        parent=parent,
        service="sluicegate",
        name=f"RUN {pipeline}",
        kind=Kind.SERVER,
        start=start,
        end=life.end,
        attributes=attributes,
        error=life.message if life.success is False else None,
    )


class _Story:
    """Goes through the facts in the order in which they were stored."""

    def __init__(self, life: Life, top: Context, facts: Sequence[Fact]) -> None:
        self._life = life
        self._top = top
        self._facts = facts
        self._marks: list[tuple[datetime, _Activity]] = []
        self._checks: dict[str, datetime] = {}
        """Those that are waited for, since when."""

        self._beside: list[Span] = []
        """Spans below one of the activities."""

        self._under: Context | None = None
        """The activity that the checks lie under."""

        self._last: Decided | None = None
        self._asked = False

    def spans(self) -> list[Span]:
        """All that lies below the workload's own span."""
        if not any(isinstance(fact, Ordered) for fact in self._facts):
            self._mark(self._life.created_at, self._observed())
        for fact in self._facts:
            match fact:
                case Asked():
                    self._take_asked(fact)
                case Decided():
                    self._take_decided(fact)
                case Checked():
                    self._take_checked(fact)
                case Done():
                    self._take_done(fact)
                case Ordered():
                    self._take_ordered(fact)
                case _:
                    raise AssertionError(f"{type(fact).__name__} is no fact of a trace")
        assert self._life.end is not None
        self._end_checks(self._life.end)
        return [*self._in_turn(), *self._beside]

    def _in_turn(self) -> Iterator[Span]:
        """The activities as spans, each until the next."""
        assert self._life.end is not None
        reached = self._marks[0][0]
        for index, (at, activity) in enumerate(self._marks):
            start = min(max(at, reached), self._life.end)
            following = self._marks[index + 1 : index + 2]
            end = max(start, min(following[0][0], self._life.end) if following else self._life.end)
            reached = end
            if end > start or activity.context is not None:
                yield self._span(activity, start, end)

    def _mark(self, at: datetime, activity: _Activity) -> None:
        if not self._marks or self._marks[-1][1] != activity:
            self._marks.append((at, activity))

    # --- facts -------------------------------------------------------------------------------------

    def _take_asked(self, fact: Asked) -> None:
        if not self._asked:
            self._asked = True
            if self._last is None:
                self._mark(fact.stored, _waiting(PENDING))
            return
        may_run = self._last is not None and self._last.state == "admitted"
        ready = fact.pods_ready or (fact.pods_ready is None and fact.phase == "running")
        if may_run and ready and self._last is not None and self._last.spoke is None:
            self._mark(fact.stored, _RUNNING)

    def _take_decided(self, fact: Decided) -> None:
        last, self._last = self._last, fact
        again = last is not None and (last.state, last.spoke) == (fact.state, fact.spoke)
        if again and fact.state in {"reserved", "admitted"}:
            return  # Something of it was told anew.
        self._end_checks(fact.at)
        match fact.state:
            case "waiting" | "released":
                self._mark(fact.at, _waiting(fact.reason or PENDING, fact))
            case "evicted":
                self._mark(fact.at, _stopping(fact))
            case "reserved":
                self._mark(fact.at, self._deciding(fact))
                self._await_checks(fact)
            case "admitted" if last is not None and last.state == "admitted":
                self._mark(fact.at, _RUNNING)  # Which spoke it is on was told, no more.
            case _:
                self._mark(fact.at, self._deciding(fact))
                self._mark(fact.stored, _RUNNING if fact.spoke else self._releasing(fact))

    def _await_checks(self, fact: Decided) -> None:
        context = _derived(self._top, "checks", fact.term, fact.number)
        self._under = context
        self._mark(
            fact.stored,
            _Activity(name="wait AdmissionChecks", context=context, attributes=_reason(fact)),
        )
        self._checks = dict.fromkeys(fact.checks, fact.stored)

    def _take_checked(self, fact: Checked) -> None:
        if fact.state not in {"Ready", "Rejected", "Retry"} or fact.check not in self._checks:
            return
        self._end_check(fact.check, fact.stored)
        if not self._checks:
            self._mark(fact.stored, self._processing("quota", CHECK, fact.check))

    def _end_checks(self, at: datetime) -> None:
        for check in list(self._checks):
            self._end_check(check, at)

    def _end_check(self, check: str, at: datetime) -> None:
        assert self._life.end is not None
        since = min(self._checks.pop(check), self._life.end)
        activity = _Activity(
            name=f"wait AdmissionCheck {check}",
            attributes={"sluicegate.wait.reason": "AdmissionCheck", "sluicegate.check": check},
        )
        end = max(since, min(at, self._life.end))
        self._beside.append(self._span(activity, since, end, under=self._under))

    def _take_done(self, fact: Done) -> None:
        if fact.action != "release" or fact.result != "applied":
            return
        if self._last is not None and self._last.state == "admitted":
            tells = any(isinstance(f, Asked) and f.pods_ready is not None for f in self._facts)
            ready = any(
                isinstance(f, Asked) and f.pods_ready and f.stored >= fact.stored
                for f in self._facts
            )
            self._mark(fact.at, _STARTING if tells and ready else _RUNNING)

    def _take_ordered(self, fact: Ordered) -> None:
        if fact.state != "offered" or self._asked:
            return
        context = _derived(self._top, "order", fact.sequence)
        subject = subjects.join("dispatch", *self._life.ident)
        self._mark(
            fact.at,
            _Activity(
                name=f"create {DISPATCH}",
                kind=Kind.PRODUCER,
                service="dispatcher",
                context=context,
                attributes=_messaging("create", "create", DISPATCH, subject, self._life.uid),
            ),
        )
        made = self._processing("patcher", DISPATCH, subject=subject, links=(context,))
        self._mark(fact.stored, made)
        if self._life.created_at > fact.stored:  # It is told in whole seconds: mostly it is before.
            self._mark(self._life.created_at, self._observed())

    # --- activities --------------------------------------------------------------------------------

    def _observed(self) -> _Activity:
        return self._processing("classifier", OBSERVED)

    def _deciding(self, fact: Decided) -> _Activity:
        assert self._life.trace is not None
        subject = subjects.join("admission", *self._life.ident)
        return _Activity(
            name=f"create {ADMISSION}",
            kind=Kind.PRODUCER,
            context=decision_context(self._life.trace, fact),
            attributes={
                **_messaging("create", "create", ADMISSION, subject, self._life.uid),
                "messaging.message.id": f"admission:{fact.term}:{fact.number}",
                **_reason(fact),
            },
            links=(_batch_context(fact),),
        )

    def _releasing(self, fact: Decided) -> _Activity:
        assert self._life.trace is not None
        subject = subjects.join("admission", *self._life.ident)
        link = decision_context(self._life.trace, fact)
        return self._processing("patcher", ADMISSION, subject=subject, links=(link,))

    def _processing(
        self,
        service: str,
        template: str,
        *also: str,
        subject: str = "",
        links: tuple[Context, ...] = (),
    ) -> _Activity:
        """Somebody has a message and acts on it. `also`: what tells it from another of the kind."""
        attributes = _messaging("process", "process", template, subject, self._life.uid)
        if also:
            attributes["sluicegate.check"] = also[0]
        return _Activity(
            name=f"process {template}",
            kind=Kind.CONSUMER,
            service=service,
            attributes=attributes,
            links=links,
        )

    def _span(
        self, activity: _Activity, start: datetime, end: datetime, *, under: Context | None = None
    ) -> Span:
        cluster, namespace, name = self._life.ident
        what = (self._life.uid, activity.name, start.isoformat())
        return Span(
            context=activity.context or _derived(self._top, *what),
            parent=under or self._top,
            service=activity.service,
            name=activity.name,
            kind=activity.kind,
            start=start,
            end=end,
            attributes={
                "k8s.cluster.name": cluster,
                "k8s.namespace.name": namespace,
                "sluicegate.workload": name,
                **activity.attributes,
            },
            links=activity.links,
        )


def _derived(top: Context, *parts: object) -> Context:
    span_id = derived_span_id(top.trace_id, top.span_id, *parts)
    return Context(trace_id=top.trace_id, span_id=span_id)


def _messaging(
    name: str, type_: str, template: str, subject: str = "", conversation: str = ""
) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "messaging.system": "nats",
        "messaging.operation.name": name,
        "messaging.operation.type": type_,
        "messaging.destination.template": template,
    }
    if subject:
        attributes["messaging.destination.name"] = subject
    if conversation:
        attributes["messaging.message.conversation_id"] = conversation
    return attributes


def _reason(fact: Decided) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "sluicegate.cluster_queue": fact.cluster_queue,
        "sluicegate.term": fact.term,
        "sluicegate.decision": fact.number,
    }
    if fact.message:
        attributes["sluicegate.message"] = fact.message
    if fact.preempted_by:
        attributes["sluicegate.preempted_by"] = fact.preempted_by
    return attributes


def _waiting(reason: str, fact: Decided | None = None) -> _Activity:
    said = {} if fact is None else _reason(fact)
    return _Activity(
        name=f"wait {reason}",
        attributes={
            "sluicegate.wait.reason": reason,
            "cicd.pipeline.run.state": "pending",
            **said,
        },
    )


def _stopping(fact: Decided) -> _Activity:
    return _Activity(
        name=f"stop {fact.reason}".rstrip(),
        service="patcher",
        attributes={"cicd.pipeline.run.state": "finalizing", **_reason(fact)},
    )


_RUNNING: Final = _Activity(
    name="run", service="cluster", attributes={"cicd.pipeline.run.state": "executing"}
)
_STARTING: Final = _Activity(
    name="wait PodsReady",
    service="cluster",
    attributes={"sluicegate.wait.reason": "PodsReady", "cicd.pipeline.run.state": "executing"},
)
