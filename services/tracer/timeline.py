"""Turns the events of one workload into the spans of its trace.

Each event ends one activity of the workload and starts the next. The activities are the leaves of the trace,
one after another, so that they cover all the time from creation to end. Waiting is split by its reasons.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from services.tracer.events import (
    LOGS,
    CheckEvent,
    DecisionEvent,
    OrderEvent,
    OutcomeEvent,
    PhaseEvent,
    TraceEvent,
)
from services.tracer.open_traces import WorkloadTrace
from shared.contracts import subjects
from shared.contracts.kube.conditions import PODS_READY
from shared.contracts.messages.admissions import GRANTED
from shared.contracts.subjects import (
    ADMISSION_TEMPLATE,
    CHECK_TEMPLATE,
    DISPATCH_TEMPLATE,
    OBSERVED_TEMPLATE,
)
from shared.telemetry import span_attributes
from shared.telemetry.spans import Context, Kind, Span, Value, derived_span_id, derived_trace_id

LINKS_MAX: Final = 500
"""Links of the span of one batch: viewers list all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Activity:
    """What a workload does for a while. An event with the same activity does not start a new one."""

    name: str
    kind: Kind = Kind.INTERNAL
    service: str = "quota"
    context: Context | None = None
    """The span's ids, if other spans link to it; None: derived from name and start."""

    attributes: Mapping[str, Value] = field(default_factory=dict, compare=False)
    links: tuple[Context, ...] = field(default=(), compare=False)


def spans_of(trace: WorkloadTrace) -> list[Span]:
    """The spans of a workload that has ended; of a copy, the spans below its hub workload's."""
    assert trace.context is not None
    assert trace.end is not None
    top = trace.context
    if trace.is_copy:
        top = _derived(top, "copy", tuple(trace.workload), trace.uid)
    events = sorted(trace.events, key=lambda event: (event.stored, LOGS.index(event.log)))
    below = _Timeline(trace, top, trace.context, events).spans()
    start = min([trace.created_at, *(span.start for span in below)])
    return [_whole(trace, top, start), *below]


def _decision_context(trace: Context, decision: DecisionEvent) -> Context:
    """The span of a decision; other spans link to it."""
    return _derived(trace, "decision", decision.term, decision.number)


def batch_of(
    decisions: Sequence[tuple[Context, DecisionEvent]], *, count: int, end: datetime
) -> Span | None:
    """The span of decisions that were published together, with a link to each; None if none is sampled.

    `count`: number of all decisions of the batch, sampled or not.
    """
    if not decisions:
        return None
    first = decisions[0][1]
    return Span(
        context=_batch_context(first),
        parent=None,
        service="quota",
        name=f"publish {ADMISSION_TEMPLATE}",
        kind=Kind.CLIENT,
        start=first.at,
        end=end,
        attributes={
            **_messaging("publish", "send", ADMISSION_TEMPLATE),
            "messaging.batch.message_count": count,
            span_attributes.TERM: first.term,
            "sluicegate.decision.first": min(one.number for _, one in decisions),
            "sluicegate.decision.last": max(one.number for _, one in decisions),
        },
        links=tuple(_decision_context(trace, one) for trace, one in decisions[:LINKS_MAX]),
    )


def _batch_context(decision: DecisionEvent) -> Context:
    """The span of a batch: a leader publishes all decisions of one moment together."""
    parts = ("batch", decision.term, decision.at.isoformat())
    return Context(trace_id=derived_trace_id(*parts), span_id=derived_span_id(*parts))


def _whole(trace: WorkloadTrace, top: Context, start: datetime) -> Span:
    """The span of the workload itself, from creation to end."""
    assert trace.context is not None
    assert trace.end is not None
    cluster, namespace, name = trace.workload
    parent = None
    if trace.is_copy:
        parent = trace.context
    elif trace.parent is not None:
        parent = Context(trace_id=trace.context.trace_id, span_id=trace.parent)
    pipeline = trace.run_of or trace.kind
    result = {True: "success", False: "failure", None: "cancellation"}[trace.success]
    queues = [event.cluster_queue for event in trace.events if isinstance(event, DecisionEvent)]
    attributes: dict[str, Value] = {
        "cicd.pipeline.name": pipeline,
        "cicd.pipeline.action.name": "RUN",
        "cicd.pipeline.run.id": trace.uid,
        "cicd.pipeline.result": result,
        span_attributes.CLUSTER: cluster,
        span_attributes.NAMESPACE: namespace,
        "sluicegate.kind": trace.kind,
        "sluicegate.job": trace.job,
        span_attributes.WORKLOAD: name,
        "sluicegate.queue": trace.queue,
        "sluicegate.cluster_queue": next((queue for queue in reversed(queues) if queue), ""),
        "sluicegate.priority": trace.priority,
    }
    if trace.success is False:
        attributes["error.type"] = "failure"
    return Span(
        context=top,
        parent=parent,
        service="sluicegate",
        name=f"RUN {pipeline}",
        kind=Kind.SERVER,
        start=start,
        end=trace.end,
        attributes=attributes,
        error=trace.message if trace.success is False else None,
    )


class _Timeline:
    """The activities of one workload, computed from its events in the order of the server's clock."""

    def __init__(
        self, trace: WorkloadTrace, top: Context, context: Context, events: Sequence[TraceEvent]
    ) -> None:
        """`top`: the workload's own span. `context`: that of the hub's workload, if this is a copy."""
        assert trace.end is not None
        self._trace = trace
        self._end = trace.end
        self._top = top
        self._context = context
        self._events = events
        self._starts: list[tuple[datetime, _Activity]] = []
        """Each activity with its start."""

        self._checks: dict[str, datetime] = {}
        """Admission checks that the workload waits for, and since when."""

        self._check_spans: list[Span] = []
        self._checks_context: Context | None = None
        """The span of waiting for all checks: parent of the spans of single checks."""

        self._last: DecisionEvent | None = None
        self._has_phase = False

    def spans(self) -> list[Span]:
        """All spans below the workload's own."""
        if not any(isinstance(event, OrderEvent) for event in self._events):
            self._start(self._trace.created_at, self._observed())
        for event in self._events:
            match event:
                case PhaseEvent():
                    self._on_phase(event)
                case DecisionEvent():
                    self._on_decision(event)
                case CheckEvent():
                    self._on_check(event)
                case OutcomeEvent():
                    self._on_outcome(event)
                case OrderEvent():
                    self._on_order(event)
                case _:
                    raise AssertionError(f"{type(event).__name__} is no event of a trace")
        self._end_checks(self._end)
        return [*self._activity_spans(), *self._check_spans]

    def _activity_spans(self) -> Iterator[Span]:
        """The span of each activity: it lasts until the next one starts, or until the workload ends."""
        reached = self._starts[0][0]
        for index, (at, activity) in enumerate(self._starts):
            start = min(max(at, reached), self._end)
            following = self._starts[index + 1 : index + 2]
            end = max(start, min(following[0][0], self._end) if following else self._end)
            reached = end
            if end > start or activity.context is not None:
                yield self._span(activity, start, end)

    def _start(self, at: datetime, activity: _Activity) -> None:
        if not self._starts or self._starts[-1][1] != activity:
            self._starts.append((at, activity))

    # --- events ---

    def _on_phase(self, event: PhaseEvent) -> None:
        if not self._has_phase:
            self._has_phase = True
            if self._last is None:
                self._start(event.stored, _waiting())
            return
        may_run = self._last is not None and self._last.state == "admitted"
        ready = event.pods_ready or (event.pods_ready is None and event.phase == "running")
        if may_run and ready and self._last is not None and self._last.spoke is None:
            self._start(event.stored, _RUNNING)

    def _on_decision(self, event: DecisionEvent) -> None:
        last, self._last = self._last, event
        again = last is not None and (last.state, last.spoke) == (event.state, event.spoke)
        if again and event.state in GRANTED:
            return  # Another field of the decision changed.
        self._end_checks(event.at)
        match event.state:
            case "waiting" | "released":
                self._start(event.at, _waiting(event))
            case "evicted":
                self._start(event.at, _stopping(event))
            case "reserved":
                self._start(event.at, self._deciding(event))
                self._await_checks(event)
            case "admitted" if last is not None and last.state == "admitted":
                self._start(event.at, _RUNNING)  # Only the spoke was added.
            case _:
                self._start(event.at, self._deciding(event))
                self._start(event.stored, _RUNNING if event.spoke else self._releasing(event))

    def _await_checks(self, event: DecisionEvent) -> None:
        context = _derived(self._top, "checks", event.term, event.number)
        self._checks_context = context
        self._start(
            event.stored,
            _Activity(name="wait AdmissionChecks", context=context, attributes=_reason(event)),
        )
        self._checks = dict.fromkeys(event.checks, event.stored)

    def _on_check(self, event: CheckEvent) -> None:
        if event.state not in {"Ready", "Rejected", "Retry"} or event.check not in self._checks:
            return
        self._end_check(event.check, event.stored)
        if not self._checks:
            self._start(event.stored, self._processing("quota", CHECK_TEMPLATE, check=event.check))

    def _end_checks(self, at: datetime) -> None:
        for check in list(self._checks):
            self._end_check(check, at)

    def _end_check(self, check: str, at: datetime) -> None:
        since = min(self._checks.pop(check), self._end)
        activity = _Activity(
            name=f"wait AdmissionCheck {check}",
            attributes={"sluicegate.wait.reason": "AdmissionCheck", "sluicegate.check": check},
        )
        end = max(since, min(at, self._end))
        self._check_spans.append(self._span(activity, since, end, under=self._checks_context))

    def _on_outcome(self, event: OutcomeEvent) -> None:
        if event.action != "release" or event.result != "applied":
            return
        if self._last is not None and self._last.state == "admitted":
            becomes_ready = any(
                isinstance(one, PhaseEvent) and one.pods_ready and one.stored >= event.stored
                for one in self._events
            )
            self._start(event.at, _STARTING if becomes_ready else _RUNNING)

    def _on_order(self, event: OrderEvent) -> None:
        if event.state != "offered" or self._has_phase:
            return
        context = _derived(self._top, "order", event.sequence)
        subject = subjects.join("dispatch", *self._trace.workload)
        self._start(
            event.at,
            _Activity(
                name=f"create {DISPATCH_TEMPLATE}",
                kind=Kind.PRODUCER,
                service="dispatcher",
                context=context,
                attributes=_messaging(
                    "create", "create", DISPATCH_TEMPLATE, subject, self._trace.uid
                ),
            ),
        )
        made = self._processing("patcher", DISPATCH_TEMPLATE, subject=subject, links=(context,))
        self._start(event.stored, made)
        # A cluster tells the time of creation in whole seconds, so it is often before the order.
        if self._trace.created_at > event.stored:
            self._start(self._trace.created_at, self._observed())

    # --- activities ---

    def _observed(self) -> _Activity:
        return self._processing("classifier", OBSERVED_TEMPLATE)

    def _deciding(self, event: DecisionEvent) -> _Activity:
        subject = subjects.join("admission", *self._trace.workload)
        return _Activity(
            name=f"create {ADMISSION_TEMPLATE}",
            kind=Kind.PRODUCER,
            context=_decision_context(self._context, event),
            attributes={
                **_messaging("create", "create", ADMISSION_TEMPLATE, subject, self._trace.uid),
                "messaging.message.id": f"admission:{event.term}:{event.number}",
                **_reason(event),
            },
            links=(_batch_context(event),),
        )

    def _releasing(self, event: DecisionEvent) -> _Activity:
        subject = subjects.join("admission", *self._trace.workload)
        link = _decision_context(self._context, event)
        return self._processing("patcher", ADMISSION_TEMPLATE, subject=subject, links=(link,))

    def _processing(
        self,
        service: str,
        template: str,
        *,
        check: str = "",
        subject: str = "",
        links: tuple[Context, ...] = (),
    ) -> _Activity:
        """A service processes a message: from its publication to the next event."""
        attributes = _messaging("process", "process", template, subject, self._trace.uid)
        if check:
            attributes["sluicegate.check"] = check
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
        cluster, namespace, name = self._trace.workload
        parts = (self._trace.uid, activity.name, start.isoformat())
        return Span(
            context=activity.context or _derived(self._top, *parts),
            parent=under or self._top,
            service=activity.service,
            name=activity.name,
            kind=activity.kind,
            start=start,
            end=end,
            attributes={
                span_attributes.CLUSTER: cluster,
                span_attributes.NAMESPACE: namespace,
                span_attributes.WORKLOAD: name,
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


def _reason(event: DecisionEvent) -> dict[str, Value]:
    attributes: dict[str, Value] = {
        "sluicegate.cluster_queue": event.cluster_queue,
        span_attributes.TERM: event.term,
        "sluicegate.decision": event.number,
    }
    if event.message:
        attributes["sluicegate.message"] = event.message
    if event.preempted_by:
        attributes["sluicegate.preempted_by"] = event.preempted_by
    return attributes


def _waiting(event: DecisionEvent | None = None) -> _Activity:
    """Waiting with the decision's reason; with Kueue's `Pending` if quota gave no reason yet."""
    reason = "" if event is None else event.reason
    reason = reason or "Pending"
    decision = {} if event is None else _reason(event)
    return _Activity(
        name=f"wait {reason}",
        attributes={
            "sluicegate.wait.reason": reason,
            "cicd.pipeline.run.state": "pending",
            **decision,
        },
    )


def _stopping(event: DecisionEvent) -> _Activity:
    return _Activity(
        name=f"stop {event.reason}".rstrip(),
        service="patcher",
        attributes={"cicd.pipeline.run.state": "finalizing", **_reason(event)},
    )


_RUNNING: Final = _Activity(
    name="run", service="cluster", attributes={"cicd.pipeline.run.state": "executing"}
)
_STARTING: Final = _Activity(
    name="wait PodsReady",
    service="cluster",
    attributes={"sluicegate.wait.reason": PODS_READY, "cicd.pipeline.run.state": "executing"},
)
