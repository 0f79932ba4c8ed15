"""The part that machines have in a workload's trace: how long it waited for one, and how long it had it."""

from datetime import datetime

from services.provisioner.task_runs.requests import Request
from shared.contracts.messages.effects import HostState
from shared.telemetry.tracing import Tracing

__all__ = ["trace_end", "trace_place"]


def trace_place(tracing: Tracing, request: Request, said: HostState, *, now: datetime) -> None:
    """A TaskRun has its machine, or was told that it gets none. Never names what opens it."""
    tracing.span(
        "machine allocate",
        parent=request.traceparent,
        start=request.created_at,
        end=max(request.created_at, now),
        attributes={**_about(said), "sluicegate.machine.outcome": said.state},
    )


def trace_end(tracing: Tracing, said: HostState, *, now: datetime) -> None:
    """A TaskRun gave its machine back; `said` is what it was told when it got it."""
    tracing.span(
        "machine hold",
        parent=said.traceparent,
        start=said.at,
        end=max(said.at, now),
        attributes=_about(said),
    )


def _about(said: HostState) -> dict[str, str | int | float | bool]:
    return {
        "k8s.cluster.name": said.cluster,
        "k8s.namespace.name": said.namespace,
        "sluicegate.taskrun": said.name,
        "sluicegate.platform": said.platform,
        "sluicegate.machine": said.host,
        "sluicegate.machine.provider": said.provider,
    }
