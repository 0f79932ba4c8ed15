"""Logs, metrics and trace spans of a term: what happened to TaskRuns, slots and machines."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from services.provisioner.allocation.allocate import EXPIRED
from services.provisioner.allocation.results import (
    AllocationOutcome,
    Failed,
    Launching,
    LedgerEvent,
    MachineEnding,
    MachineOrdered,
    Placed,
    Preparing,
    Result,
    SlotReleased,
    Waiting,
)
from services.provisioner.config.host_config import HostConfig, StaticPlatform
from services.provisioner.metrics import UNKNOWN, Metrics
from services.provisioner.task_runs.requests import HostRequest
from shared.contracts.messages.hosts import HostState
from shared.telemetry import span_attributes
from shared.telemetry.log_context import about
from shared.telemetry.tracing import Tracing

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Each method is called once for what it names."""

    metrics: Metrics
    tracing: Tracing
    _served_at: dict[str, datetime] = field(default_factory=dict)
    """TaskRun uid to the time at which it stopped waiting, while its host is not ready yet."""

    def state_published(
        self,
        request: HostRequest,
        result: Result,
        state: HostState,
        config: HostConfig,
        *,
        now: datetime,
    ) -> None:
        """The state of a TaskRun is another one than before."""
        platform = _label(request.platform, config)
        served_at = self._served_at.get(request.uid, now)
        match result:
            case Placed():
                self.metrics.placed(
                    platform,
                    seconds=(now - served_at).total_seconds(),
                    waited=(served_at - request.created_at).total_seconds(),
                    prepared=bool(result.sealed),
                )
            case Failed():
                self.metrics.allocation_failed(platform)
            case Launching() | Preparing():
                self._served_at.setdefault(request.uid, now)
            case Waiting():
                pass
        if isinstance(result, Placed | Failed):
            self.tracing.span(
                "machine allocate",
                parent=request.traceparent,
                start=request.created_at,
                end=max(request.created_at, now),
                attributes={**_attributes(state), "sluicegate.machine.outcome": state.state},
            )

    def host_released(self, state: HostState, config: HostConfig, *, now: datetime) -> None:
        """A TaskRun ended and holds nothing any more. `state`: what was published about it before."""
        self._served_at.pop(state.uid, None)
        if state.state != "ready":
            return
        seconds = (now - (state.asked_at or state.at)).total_seconds()
        self.metrics.task_run_ended(_label(state.platform, config), seconds=seconds)
        self.tracing.span(
            "machine hold",
            parent=state.traceparent,
            start=state.at,
            end=max(state.at, now),
            attributes=_attributes(state),
        )

    def ledger_changed(
        self, platform: str, events: Iterable[LedgerEvent], known: Iterable[HostRequest | HostState]
    ) -> None:
        """A new version of the ledger is recorded. `known`: the TaskRuns and reservations that it serves."""
        whose = {one.uid: one for one in known}
        for event in events:
            match event:
                case MachineOrdered(machine=machine):
                    with _about(whose.get(machine.holder)):
                        log.info(
                            "a machine was ordered",
                            platform=platform,
                            machine=machine.name,
                            task_run=machine.task_run,
                        )
                case MachineEnding(name=name, reason=reason):
                    log.info("a machine ends", platform=platform, machine=name, because=reason)
                    if reason == EXPIRED:
                        self.metrics.swept("old")
                case SlotReleased(uid=uid, host=host):
                    with _about(whose.get(uid.partition("@")[0])):
                        log.info(
                            "a slot of a host was released", platform=platform, host=host, uid=uid
                        )

    def round_ended(
        self,
        platform: str,
        outcome: AllocationOutcome,
        requests: Iterable[HostRequest],
        config: HostConfig,
    ) -> None:
        """A round of a platform is complete: set its gauges."""
        platform_config = config.platforms.get(platform)
        if platform_config is None:
            return
        slots = outcome.ledger.slots.values()
        hosts = len(platform_config.hosts) if isinstance(platform_config, StaticPlatform) else 0
        self.metrics.set_platform(
            platform,
            hosts=hosts + len(outcome.ledger.machines),
            running=[slot.namespace for slot in slots if slot.state != "held"],
            waiting=[
                request.namespace
                for request in requests
                if isinstance(outcome.results.get(request.uid), Waiting | Launching)
            ],
        )


def _label(platform: str, config: HostConfig) -> str:
    """The platform as a metric label. Users choose the name, and a label lives forever."""
    return platform if platform in config.platforms else UNKNOWN


def _attributes(state: HostState) -> dict[str, str | int | float | bool]:
    """Attributes of a span. Credentials are not among them."""
    return {
        span_attributes.CLUSTER: state.cluster,
        span_attributes.NAMESPACE: state.namespace,
        "sluicegate.taskrun": state.name,
        "sluicegate.platform": state.platform,
        "sluicegate.machine": state.host,
        "sluicegate.machine.provider": state.provider,
    }


def _about(served: HostRequest | HostState | None) -> AbstractContextManager[None]:
    """Log lines carry the workload of a TaskRun, if it belongs to one, and its trace."""
    if served is None:
        return nullcontext()
    workload = f"{served.namespace}/{served.workload}" if served.workload else ""
    return about(workload, served.traceparent)
