"""From the events of one workload to its spans: names, parents, and full coverage of its time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.tracer.open_traces import OpenTraces, WorkloadTrace
from services.tracer.timeline import batch_of, spans_of
from shared.bus.port import Entry
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import TRACEPARENT, Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import Finish, JobRef, WorkloadState
from shared.telemetry.spans import Kind, Span
from shared.testing.spans import coverage, leaves

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACE = f"00-{TRACE_ID}-b7ad6b7169203331-01"
ADMISSION = "sluice.admission.{cluster}.{namespace}.{name}"
HOP = timedelta(milliseconds=10)
"""From a service's clock to the log."""

WORKLOAD: dict[str, Any] = {
    "cluster": "hub", "namespace": "team-a", "name": "pipelinerun-build-1", "uid": "u-1",
}  # fmt: skip


def second(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


class Logs:
    """Puts messages on the logs, and reads them as the tracer does."""

    def __init__(self, *, ended: int = 0) -> None:
        self.traces = OpenTraces(delivered=ended)
        self._last: dict[str, int] = {}
        self.ended: list[WorkloadTrace] = []

    def put(self, message: Message, at: float, *, trace: str | None = TRACE) -> None:
        sequence = self._last[message.stream] = self._last.get(message.stream, 0) + 1
        entry = Entry(
            subject=message.subject,
            data=message.encode(),
            headers={} if trace is None else {TRACEPARENT: trace},
            sequence=sequence,
            time=second(at) + HOP,
        )
        self.ended += self.traces.observe(message.stream, entry)[1]

    def state(self, at: float, phase: str = "waiting", **more: Any) -> None:
        fields: dict[str, Any] = {"phase": phase, "created_at": BEGAN, "queue": "main"}
        owner = JobRef(
            api_version="tekton.dev/v1", kind="PipelineRun", plural="pipelineruns", name="build-1",
            uid="u-1",
        )  # fmt: skip
        trace = more.pop("trace", TRACE)
        self.put(
            WorkloadState.model_validate(WORKLOAD | fields | {"owner": owner} | more),
            at,
            trace=trace,
        )

    def decide(self, at: float, state: str, number: int, **more: Any) -> None:
        decided = {"term": 1, "number": number, "decided_at": second(at), "cluster_queue": "cq"}
        self.put(Admission.model_validate(WORKLOAD | decided | {"state": state} | more), at)

    def release(self, at: float, number: int) -> None:
        done = {"result": "applied", "action": "release", "term": 1, "number": number}
        self.put(Outcome.model_validate(WORKLOAD | done | {"at": second(at)}), at)

    def finish(self, at: float, *, success: bool = True, **more: Any) -> None:
        end = Finish(success=success, message="done", at=second(at))
        self.state(at, "finished", finish=end, **more)

    def trace(self) -> list[Span]:
        (trace,) = self.ended
        return spans_of(trace)


def named(spans: list[Span]) -> list[tuple[str, float, float]]:
    """Leaves in their order: name, from, to, in seconds to two places."""
    return [
        (
            span.name,
            round((span.start - BEGAN).total_seconds(), 2),
            round((span.end - BEGAN).total_seconds(), 2),
        )
        for span in sorted(leaves(spans), key=lambda span: (span.start, span.end))
    ]


def covered(spans: list[Span]) -> float:
    root = spans[0]
    return coverage(spans, root.start, root.end)


def simple(logs: Logs) -> None:
    logs.state(1)
    logs.decide(2, "waiting", 1, reason="InsufficientQuota")
    logs.decide(10, "waiting", 2, reason="Preempting")
    logs.decide(30, "admitted", 3)
    logs.release(31, 3)
    logs.finish(60)


def test_waiting_is_split_by_reason() -> None:
    logs = Logs()
    simple(logs)
    assert named(logs.trace()) == [
        ("process sluice.observed.{cluster}.{namespace}.{name}.{resource}", 0, 1.01),
        ("wait Pending", 1.01, 2),
        ("wait InsufficientQuota", 2, 10),
        ("wait Preempting", 10, 30),
        (f"create {ADMISSION}", 30, 30.01),
        (f"process {ADMISSION}", 30.01, 31),
        ("run", 31, 60),
    ]
    assert covered(logs.trace()) == pytest.approx(1.0)


def test_root_span_has_ids_of_annotation() -> None:
    logs = Logs()
    logs.state(1, run_of="build-container", trace_parent="00f067aa0ba902b7")
    logs.finish(2, success=False, run_of="build-container")
    root = logs.trace()[0]
    assert f"{root.context.trace_id:032x}" == TRACE_ID
    assert f"{root.context.span_id:016x}" == "b7ad6b7169203331"
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == "00f067aa0ba902b7"
    assert (root.name, root.kind) == ("RUN build-container", Kind.SERVER)
    assert root.attributes["cicd.pipeline.result"] == "failure"
    assert root.attributes["error.type"] == "failure"
    assert root.error == "done"


def test_create_publish_and_process_spans_of_a_decision_are_linked() -> None:
    logs = Logs()
    simple(logs)
    spans = {span.name: span for span in logs.trace()}
    created, processed = spans[f"create {ADMISSION}"], spans[f"process {ADMISSION}"]
    assert (created.kind, processed.kind) == (Kind.PRODUCER, Kind.CONSUMER)
    assert processed.links == (created.context,)
    assert created.attributes["messaging.system"] == "nats"
    assert created.attributes["messaging.message.id"] == "admission:1:3"
    destination = "sluice.admission.hub.team-a.pipelinerun-build-1"
    assert created.attributes["messaging.destination.name"] == destination
    decision = next(f for f in logs.ended[0].events if getattr(f, "number", 0) == 3)
    trace = logs.ended[0].context
    assert trace is not None
    batch = batch_of([(trace, decision)], count=4, end=second(30.02))  # type: ignore[list-item]
    assert batch is not None
    assert batch.attributes["messaging.batch.message_count"] == 4
    assert (batch.kind, batch.links) == (Kind.CLIENT, (created.context,))
    assert created.links == (batch.context,)
    assert batch.context.trace_id != created.context.trace_id


def test_same_logs_give_same_spans() -> None:
    once, twice = Logs(), Logs()
    simple(once)
    simple(twice)
    assert once.trace() == twice.trace()


def test_admission_checks_have_parallel_spans() -> None:
    logs = Logs()
    logs.state(1)
    logs.decide(5, "reserved", 1, checks=["machines", "spokes"])
    for at, check in ((15, "machines"), (25, "spokes")):
        fields = {"check": check, "state": "Ready", "at": second(at)}
        logs.put(CheckState.model_validate(WORKLOAD | fields), at)
    logs.decide(26, "admitted", 2)
    logs.release(27, 2)
    logs.finish(40)
    spans = logs.trace()
    names = [name for name, _, _ in named(spans)]
    assert ("wait AdmissionCheck machines", 5.01, 15.01) in named(spans)
    assert ("wait AdmissionCheck spokes", 5.01, 25.01) in named(spans)
    assert "wait AdmissionChecks" not in names, "something lies under it"
    assert "process sluice.check.{cluster}.{namespace}.{name}.{check}.{service}" in names
    assert covered(spans) == pytest.approx(1.0)


def test_eviction_gives_stop_span_and_new_waiting() -> None:
    logs = Logs()
    logs.state(1)
    logs.decide(2, "admitted", 1)
    logs.release(3, 1)
    logs.decide(10, "evicted", 2, reason="Preempted", preempted_by="team-b/other")
    logs.decide(12, "waiting", 3, reason="InsufficientQuota")
    logs.decide(20, "admitted", 4)
    logs.release(21, 4)
    logs.finish(30)
    spans_by_name = named(logs.trace())
    assert spans_by_name[4:7] == [
        ("run", 3, 10),
        ("stop Preempted", 10, 12),
        ("wait InsufficientQuota", 12, 20),
    ]
    stop = next(span for span in logs.trace() if span.name == "stop Preempted")
    assert stop.attributes["sluicegate.preempted_by"] == "team-b/other"
    assert covered(logs.trace()) == pytest.approx(1.0)


def test_wait_for_pods_ready_comes_before_run() -> None:
    logs = Logs()
    logs.state(1, pods_ready=False)
    logs.decide(2, "admitted", 1)
    logs.release(3, 1)
    logs.state(4, "running", pods_ready=False)
    logs.state(9, "running", pods_ready=True)
    logs.finish(30)
    assert named(logs.trace())[-2:] == [("wait PodsReady", 3, 9.01), ("run", 9.01, 30)]


def test_repeated_admission_does_not_end_run_span() -> None:
    logs = Logs()
    logs.state(1)
    logs.decide(2, "admitted", 1)
    logs.release(3, 1)
    logs.decide(8, "admitted", 2, pods_ready="Started")
    logs.finish(30)
    assert named(logs.trace())[-1] == ("run", 3, 30)


def test_workload_deleted_before_run_is_cancellation() -> None:
    logs = Logs()
    logs.state(1)
    logs.decide(2, "waiting", 1, reason="InsufficientQuota")
    logs.state(9, "gone")
    spans = logs.trace()
    assert spans[0].attributes["cicd.pipeline.result"] == "cancellation"
    assert named(spans)[-1] == ("wait InsufficientQuota", 2, 9.01)


def test_copy_is_part_of_hub_trace_from_its_order_on() -> None:
    logs = Logs()
    order = {"spoke": "hub", "uid": "at-home", "state": "offered", "number": 1, "at": second(-3)}
    logs.put(Dispatch.model_validate(WORKLOAD | {"cluster": "home"} | order), -3)
    logs.state(1, labels={ORIGIN: "multikueue"})
    logs.decide(2, "admitted", 1)
    logs.release(3, 1)
    logs.finish(30, labels={ORIGIN: "multikueue"})
    spans = logs.trace()
    top = spans[0]
    assert top.parent is not None
    assert f"{top.parent.span_id:016x}" == "b7ad6b7169203331"
    assert top.context.trace_id == top.parent.trace_id
    assert named(spans)[:3] == [
        ("create sluice.dispatch.{spoke}.{namespace}.{name}", -3, -2.99),
        ("process sluice.dispatch.{spoke}.{namespace}.{name}", -2.99, 0),
        ("process sluice.observed.{cluster}.{namespace}.{name}.{resource}", 0, 1.01),
    ]
    assert covered(spans) == pytest.approx(1.0)


def test_copy_with_creation_time_before_order_starts_after_order() -> None:
    """A cluster gives creation times in whole seconds."""
    logs = Logs()
    order = {"spoke": "hub", "uid": "at-home", "state": "offered", "number": 1, "at": second(0.3)}
    logs.put(Dispatch.model_validate(WORKLOAD | {"cluster": "home"} | order), 0.3)
    logs.state(0.8, labels={ORIGIN: "multikueue"})
    logs.finish(30, labels={ORIGIN: "multikueue"})
    assert named(logs.trace())[:3] == [
        ("create sluice.dispatch.{spoke}.{namespace}.{name}", 0.3, 0.31),
        ("process sluice.dispatch.{spoke}.{namespace}.{name}", 0.31, 0.81),
        ("wait Pending", 0.81, 30),
    ]


def test_hub_workload_on_spoke_runs_without_release() -> None:
    logs = Logs()
    logs.state(1)
    logs.decide(2, "reserved", 1, checks=["spokes"])
    ready = {"check": "spokes", "state": "Ready", "at": second(8), "spoke": "east"}
    logs.put(CheckState.model_validate(WORKLOAD | ready), 8)
    logs.decide(9, "admitted", 2, spoke="east")
    logs.finish(30)
    assert named(logs.trace())[-1] == ("run", 9.01, 30)


def test_decisions_read_before_workload_are_kept() -> None:
    """A decision that is read before its workload waits for it."""
    logs, shuffled = Logs(), Logs()
    simple(logs)
    shuffled.decide(2, "waiting", 1, reason="InsufficientQuota")
    shuffled.decide(10, "waiting", 2, reason="Preempting")
    shuffled.decide(30, "admitted", 3)
    shuffled.state(1)
    shuffled.release(31, 3)
    shuffled.finish(60)
    assert shuffled.trace() == logs.trace()


def test_decisions_read_after_end_are_kept() -> None:
    logs, shuffled = Logs(), Logs()
    simple(logs)
    shuffled.state(1)
    shuffled.finish(60)
    shuffled.release(31, 3)
    shuffled.decide(2, "waiting", 1, reason="InsufficientQuota")
    shuffled.decide(10, "waiting", 2, reason="Preempting")
    shuffled.decide(30, "admitted", 3)
    assert shuffled.trace() == logs.trace()


def test_order_read_after_copy_is_gone_belongs_to_that_copy() -> None:
    """An order has no uid of its copy; an order after the end of a copy is for the next copy."""
    logs = Logs()
    logs.state(1, labels={ORIGIN: "multikueue"})
    logs.finish(30, labels={ORIGIN: "multikueue"})
    logs.state(31, "gone", labels={ORIGIN: "multikueue"})
    for at in (-3, 40):
        order = {"spoke": "hub", "uid": "at-home", "state": "offered", "number": 1}
        home = WORKLOAD | {"cluster": "home", "at": second(at)}
        logs.put(Dispatch.model_validate(home | order), at)
    spans_by_name = [one for one in named(logs.trace()) if "dispatch" in one[0]]
    assert spans_by_name == [
        ("create sluice.dispatch.{spoke}.{namespace}.{name}", -3, -2.99),
        ("process sluice.dispatch.{spoke}.{namespace}.{name}", -2.99, 0),
    ]
    assert sum(event.log == "DISPATCHES" for event in logs.ended[0].events) == 1


def test_unsampled_workload_is_not_traced() -> None:
    for trace in (None, "nonsense", f"00-{TRACE_ID}-b7ad6b7169203331-00"):
        logs = Logs()
        logs.state(1, trace=trace)
        logs.decide(2, "admitted", 1)
        logs.finish(3, trace=trace)
        logs.decide(4, "released", 2)
        assert logs.ended == []
        assert logs.traces.open == 0


def test_restart_traces_only_undelivered_workloads() -> None:
    logs = Logs(ended=2)
    logs.state(1)
    logs.finish(3)
    assert logs.ended == []
    needed = logs.traces.since()
    assert needed["WORKLOADS"] == 3, "nothing of it is needed any more"


def test_since_starts_at_oldest_undelivered_workload() -> None:
    logs = Logs()
    logs.state(1)
    logs.decide(2, "waiting", 1, reason="Pending")
    assert logs.traces.since() == {
        "WORKLOADS": 1, "ADMISSIONS": 1, "CHECKS": 1, "DISPATCHES": 1, "OUTCOMES": 1
    }  # fmt: skip
    logs.finish(3)
    logs.decide(4, "released", 2)
    assert logs.traces.since()["ADMISSIONS"] == 1, "its trace was not taken yet"
    assert logs.traces.delivered() == 1
    logs.traces.mark_delivered(logs.ended[0])
    needed = logs.traces.since()
    assert (needed["WORKLOADS"], needed["ADMISSIONS"]) == (3, 3)
    assert logs.traces.delivered() == 2


def test_repeated_waiting_reason_adds_no_events() -> None:
    logs = Logs()
    logs.state(1)
    for number in range(5_000):
        logs.decide(2 + number, "waiting", number + 1, reason="InsufficientQuota")
    logs.finish(9_000)
    assert len(logs.ended[0].events) == 3


def test_new_uid_of_same_name_ends_previous_trace() -> None:
    logs = Logs()
    logs.state(1)
    other = TRACE.replace("b7ad", "c7ad")
    logs.state(5, uid="u-2", created_at=second(4), trace=other)
    logs.finish(9, uid="u-2", created_at=second(4), trace=other)
    assert [life.uid for life in logs.ended] == ["u-1", "u-2"]
