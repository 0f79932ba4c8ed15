"""The result of the demo's load, read from the logs once for summary and checks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from services.ctl.demo.create import Submitted
from services.simulator.judge.message_logs import LOGS, MessageLogs, read_logs
from shared.bus.follow import stored_entries
from shared.bus.headers import TYPE
from shared.bus.port import Bus, Entry
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.hosts import HostState, PlatformState
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.subjects import Stream

ADMITTED: Final = "admitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job of the load, from submission to end."""

    submitted: Submitted
    state: WorkloadState | None
    """The last state of its workload; None if there is none."""

    admission: Admission | None
    """The first decision that admitted it."""

    last: Admission | None
    """The last decision about it."""

    @property
    def wait_seconds(self) -> float | None:
        """From the API server's answer to the admission; None if it was not admitted."""
        if self.admission is None:
            return None
        return max(0.0, (self.admission.decided_at - self.submitted.at).total_seconds())

    @property
    def finished(self) -> bool:
        """Whether it ran to its end."""
        return self.state is not None and self.state.phase in ENDED_PHASES

    @property
    def shape(self) -> str:
        """Equal for workloads with equal requests in the same queue."""
        if self.state is None:
            return ""
        queue = self.admission.cluster_queue if self.admission is not None else ""
        asked = "; ".join(
            f"{p.count} x " + ", ".join(f"{k}={v}" for k, v in sorted(p.requests.items()))
            for p in self.state.pod_sets
        )
        return f"{queue}: {asked}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Everything that the logs say about the load."""

    message_logs: MessageLogs
    cases: tuple[JobResult, ...]
    refused: tuple[Submitted, ...] = ()
    hosts: tuple[HostState, ...] = ()
    """All host states of TaskRuns, in the order of the log."""

    platforms: tuple[PlatformState, ...] = ()
    """The last record of each platform: slots in use, and machines."""

    names: Mapping[str, str] = field(default_factory=dict)
    """uid to ``<namespace>/<name>`` of everything that was submitted."""


async def read_results(
    bus: Bus, submitted: Mapping[str, Submitted], refused: tuple[Submitted, ...] = ()
) -> LoadResult:
    """Read the logs from their beginning to their present end."""
    entries = [entry for log in LOGS async for entry in stored_entries(bus, log)]
    message_logs = read_logs(entries)
    of_hosts = [entry async for entry in stored_entries(bus, Stream.HOSTS)]
    hosts = [
        HostState.decode(entry.data)
        for entry in of_hosts
        if entry.headers.get(TYPE) == HostState.type
    ]
    states = {record.message.uid: record.message for record in message_logs.workloads}
    first: dict[str, Admission] = {}
    last: dict[str, Admission] = {}
    for record in message_logs.admissions:
        last[record.message.uid] = record.message
        if record.message.state == ADMITTED:
            first.setdefault(record.message.uid, record.message)
    return LoadResult(
        message_logs=message_logs,
        cases=tuple(
            JobResult(
                submitted=each,
                state=states.get(uid),
                admission=first.get(uid),
                last=last.get(uid),
            )
            for uid, each in submitted.items()
        ),
        refused=refused,
        hosts=tuple(hosts),
        platforms=tuple(_records_in(of_hosts)),
        names={uid: each.name for uid, each in submitted.items()},
    )


async def records(bus: Bus) -> list[PlatformState]:
    """The last record of each platform."""
    return _records_in([entry async for entry in stored_entries(bus, Stream.HOSTS)])


def _records_in(entries: Iterable[Entry]) -> list[PlatformState]:
    """The last record of each platform among `entries`."""
    found = {
        entry.subject: PlatformState.decode(entry.data)
        for entry in entries
        if entry.headers.get(TYPE) == PlatformState.type
    }
    return [found[subject] for subject in sorted(found)]
