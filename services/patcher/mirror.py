"""What the patcher knows of its cluster without asking it: a copy of what was observed and decided."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import structlog

from shared.bus.port import Bus, CaughtUp, Entry
from shared.contracts import kinds, names, subjects
from shared.contracts.admissions import Admission
from shared.contracts.integrations import INTEGRATIONS, is_nested, queue_of
from shared.contracts.kinds import Object
from shared.contracts.messages import UndecodableError
from shared.contracts.observed import Observed, observed_filter
from shared.contracts.workloads import WorkloadState

__all__ = ["Mirror", "version_of"]

log = structlog.get_logger(__name__)

_ObjectKey = tuple[str, str | None, str]
"""`<plural>_<group>`, namespace, name."""


_INTEGRATIONS: Final = {integration.kind.detail: integration for integration in INTEGRATIONS}
_ENDED: Final = frozenset({"finished", "gone"})


def version_of(obj: Object | None) -> int:
    """Resource versions are numbers that grow (KEP-5504); -1 for no object."""
    if obj is None:
        return -1
    value = str(obj["metadata"].get("resourceVersion", ""))
    return int(value) if value.isdecimal() else 0


class Mirror:
    """The latest of each object, workload and decision of one cluster."""

    def __init__(self, *, bus: Bus, cluster: str) -> None:
        self._bus = bus
        self._cluster = cluster
        self._objects: dict[_ObjectKey, Object] = {}
        self._workloads: dict[tuple[str, str], WorkloadState] = {}
        self._admissions: dict[tuple[str, str], Admission] = {}
        self._missing = {"OBSERVED", "WORKLOADS", "ADMISSIONS"}

    def not_synced(self) -> str | None:
        """None once everything that was there has been read, else what is missing."""
        return f"reading {', '.join(sorted(self._missing))}" if self._missing else None

    def object(self, kind: kinds.Kind, namespace: str | None, name: str) -> Object | None:
        """The newest state that was observed, or that the API server answered to a write of ours."""
        return self._objects.get((kind.detail, namespace, name))

    def workload(self, namespace: str, name: str) -> WorkloadState | None:
        """The latest state of a workload."""
        return self._workloads.get((namespace, name))

    def admission(self, namespace: str, name: str) -> Admission | None:
        """The latest decision about a workload."""
        return self._admissions.get((namespace, name))

    def admissions(self) -> tuple[Admission, ...]:
        """The latest decision about each workload."""
        return tuple(self._admissions.values())

    def wrote(self, kind: kinds.Kind, obj: Object) -> None:
        """Remember an answer to a write: the watch may be behind it."""
        metadata = obj["metadata"]
        key = (kind.detail, metadata.get("namespace"), metadata["name"])
        if version_of(obj) >= version_of(self._objects.get(key)):
            self._keep(key, obj)

    def vanished(self, kind: kinds.Kind, namespace: str | None, name: str) -> None:
        """The API server says that it is not there."""
        self._objects.pop((kind.detail, namespace, name), None)

    def take_workload(self, state: WorkloadState) -> None:
        """Take in a workload, unless it is gone: a tombstone needs no memory once it was handled."""
        self._workloads[state.namespace, state.name] = state

    def take_admission(self, admission: Admission) -> None:
        """Take in a decision; an older one never replaces a newer."""
        key = (admission.namespace, admission.name)
        known = self._admissions.get(key)
        if known is None or (known.term, known.number) <= (admission.term, admission.number):
            self._admissions[key] = admission

    def forget(self, namespace: str, name: str) -> None:
        """Let go of a workload that is gone and dealt with."""
        self._workloads.pop((namespace, name), None)
        self._admissions.pop((namespace, name), None)

    async def run_observed(self) -> None:
        """Follow what is observed, until cancelled."""
        followed = (
            kinds.WORKLOAD,
            kinds.RESOURCE_FLAVOR,
            kinds.CLUSTER_QUEUE,
            kinds.LOCAL_QUEUE,
            *(i.kind for i in INTEGRATIONS),
        )
        filters = [observed_filter(kind, self._cluster) for kind in followed]
        await self._follow("OBSERVED", filters, self._take_observed)

    async def run_workloads(self) -> None:
        """Follow the workloads, until cancelled."""
        await self._follow("WORKLOADS", [self._of_cluster("workload")], self._take_workload_entry)

    async def run_admissions(self) -> None:
        """Follow the decisions, until cancelled."""
        await self._follow(
            "ADMISSIONS", [self._of_cluster("admission")], self._take_admission_entry
        )

    def _of_cluster(self, what: str) -> str:
        return f"{subjects.ROOT}.{what}.{subjects.encode(self._cluster)}.>"

    async def _follow(self, stream: str, filters: list[str], take: Callable[[Entry], None]) -> None:
        async with aclosing(self._bus.watch(stream, *filters)) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    self._missing.discard(stream)
                    continue
                try:
                    take(item)
                except UndecodableError as error:
                    # The durable consumer gives it to the dead letters; here it only cannot be seen.
                    log.warning("cannot read", subject=item.subject, error=str(error))

    def _take_observed(self, entry: Entry) -> None:
        observed = Observed.decode(entry.data)
        detail = f"{observed.plural}_{observed.group.replace('.', '_')}"
        key = (detail, observed.namespace, observed.name)
        known = self._objects.get(key)
        if observed.deleted or observed.object is None:
            if known is not None and known["metadata"]["uid"] == observed.uid:
                del self._objects[key]
        elif version_of(observed.object) >= version_of(known):
            self._keep(key, observed.object)

    def _keep(self, key: _ObjectKey, obj: Object) -> None:
        """Remember it while there may be something to do about it; the rest can be asked for."""
        integration = _INTEGRATIONS.get(key[0])
        if key[0] == kinds.WORKLOAD.detail:
            over = _is_over(obj)
        else:
            over = integration is not None and (
                not queue_of(obj) or is_nested(obj) or integration.finish(obj) is not None
            )
        if over:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj

    def _take_workload_entry(self, entry: Entry) -> None:
        state = WorkloadState.decode(entry.data, entry.headers)
        if state.phase not in _ENDED:  # The durable consumer sees to an end, and forgets.
            self.take_workload(state)

    def _take_admission_entry(self, entry: Entry) -> None:
        admission = Admission.decode(entry.data, entry.headers)
        if admission.state == "released":
            name = (admission.namespace, admission.name)
            if "WORKLOADS" not in self._missing and name not in self._workloads:
                self._admissions.pop(name, None)
                return
        self.take_admission(admission)


def _is_over(workload: Object) -> bool:
    """It has finished, and nothing of ours keeps it from being deleted."""
    conditions = (workload.get("status") or {}).get("conditions") or []
    finished = any(c.get("type") == "Finished" and c.get("status") == "True" for c in conditions)
    return finished and names.RESOURCE_IN_USE not in (workload["metadata"].get("finalizers") or [])
