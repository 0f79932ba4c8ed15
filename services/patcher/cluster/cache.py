"""What the patcher knows of its cluster without asking it: a copy of what was observed and decided."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Final

import structlog

from shared.bus.kind_follower import KindFollower
from shared.bus.port import Bus, CaughtUp, Entry
from shared.contracts import subjects
from shared.contracts.kube import kinds, names
from shared.contracts.kube.conditions import FINISHED, is_true
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import observed_filter
from shared.integrations import INTEGRATIONS, Integrations, queue_of

__all__ = ["Mirror", "version_of"]

log = structlog.get_logger(__name__)

_ObjectKey = tuple[str, str | None, str]
"""`<plural>_<group>`, namespace, name."""


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
        self._workloads: dict[str, tuple[int, WorkloadState]] = {}
        """By subject, with its place in the log. So are the decisions."""

        self._admissions: dict[str, tuple[int, Admission]] = {}
        self.integrations = Integrations()
        """What is known of the kinds that can wait in this cluster."""

        self.integrations_changed = asyncio.Event()
        self._missing = {"OBSERVED", "WORKLOADS", "ADMISSIONS"}

    def not_synced(self) -> str | None:
        """None once everything that was there has been read, else what is missing."""
        return f"reading {', '.join(sorted(self._missing))}" if self._missing else None

    def object(self, kind: kinds.Kind, namespace: str | None, name: str) -> Object | None:
        """The newest state that was observed, or that the API server answered to a write of ours."""
        return self._objects.get((kind.detail, namespace, name))

    def objects(self, kind: kinds.Kind) -> Iterator[Object]:
        """All objects of a kind that are remembered. Nothing may be awaited between two of them."""
        return (obj for key, obj in self._objects.items() if key[0] == kind.detail)

    def workload(self, namespace: str, name: str) -> WorkloadState | None:
        """The latest state of a workload."""
        known = self._workloads.get(self._subject("workload", namespace, name))
        return None if known is None else known[1]

    def admission(self, namespace: str, name: str) -> Admission | None:
        """The latest decision about a workload."""
        known = self._admissions.get(self._subject("admission", namespace, name))
        return None if known is None else known[1]

    def admissions(self) -> tuple[Admission, ...]:
        """The latest decision about each workload."""
        return tuple(admission for _, admission in self._admissions.values())

    def wrote(self, kind: kinds.Kind, obj: Object) -> None:
        """Remember an answer to a write: the watch may be behind it."""
        metadata = obj["metadata"]
        key = (kind.detail, metadata.get("namespace"), metadata["name"])
        if version_of(obj) >= version_of(self._objects.get(key)):
            self._keep(key, obj)

    def vanished(self, kind: kinds.Kind, namespace: str | None, name: str) -> None:
        """The API server says that it is not there."""
        self._objects.pop((kind.detail, namespace, name), None)

    def take_workload(self, entry: Entry) -> WorkloadState:
        """Take in a state, unless a newer one is known; return the newer of both.

        Each entry comes twice, by the view and as work: it is decoded once. Raises `UndecodableError`.
        """
        known = self._workloads.get(entry.subject)
        if known is not None and known[0] >= entry.sequence:
            return known[1]
        state = entry.read(WorkloadState)
        self._workloads[entry.subject] = (entry.sequence, state)
        return state

    def take_admission(self, entry: Entry) -> Admission:
        """Take in a decision; an older one never replaces a newer. Otherwise as `take_workload`."""
        known = self._admissions.get(entry.subject)
        if known is not None and known[0] >= entry.sequence:
            return known[1]
        admission = entry.read(Admission)
        if known is not None and _order(known[1]) > _order(admission):
            admission = known[1]  # A leader that was replaced wrote late (ADR 5).
        self._admissions[entry.subject] = (entry.sequence, admission)
        return admission

    def forget(self, namespace: str, name: str) -> None:
        """Let go of a workload that is gone and dealt with."""
        self._workloads.pop(self._subject("workload", namespace, name), None)
        self._admissions.pop(self._subject("admission", namespace, name), None)

    def _subject(self, what: str, namespace: str, name: str) -> str:
        return subjects.join(what, self._cluster, namespace, name)

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
        await KindFollower(
            bus=self._bus,
            cluster=self._cluster,
            filters=filters,
            kinds=self.integrations.brought,
            take_integration=self._take_integration,
            take=lambda item: self._on_item("OBSERVED", item, self._take_observed),
        ).run()

    def _take_integration(self, observed: Observed) -> None:
        self.integrations.take(observed)
        self.integrations_changed.set()

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
                self._on_item(stream, item, take)

    def _on_item(self, stream: str, item: Entry | CaughtUp, take: Callable[[Entry], None]) -> None:
        if isinstance(item, CaughtUp):
            self._missing.discard(stream)
            return
        try:
            take(item)
        except UndecodableError as error:
            # The durable consumer gives it to the dead letters; here it only cannot be seen.
            log.warning("cannot read", subject=item.subject, error=str(error))

    def _take_observed(self, entry: Entry) -> None:
        observed = entry.read(Observed)
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
        plural, _, group = key[0].partition("_")
        integration = self.integrations.find(group=group.replace("_", "."), plural=plural)
        if key[0] == kinds.WORKLOAD.detail:
            over = _is_over(obj)
        else:
            over = integration is not None and (
                not queue_of(obj)
                or self.integrations.is_nested(obj)
                or integration.finish(obj) is not None
            )
        if over:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj

    def _take_workload_entry(self, entry: Entry) -> None:
        known = entry.subject in self._workloads
        if self.take_workload(entry).phase in _ENDED and not known:
            # It was dealt with and forgotten; if not, it comes as work.
            self._workloads.pop(entry.subject, None)

    def _take_admission_entry(self, entry: Entry) -> None:
        admission = self.take_admission(entry)
        ended = admission.state == "released" and "WORKLOADS" not in self._missing
        if ended and self.workload(admission.namespace, admission.name) is None:
            self._admissions.pop(entry.subject, None)


def _order(admission: Admission) -> tuple[int, int]:
    return (admission.term, admission.number)


def _is_over(workload: Object) -> bool:
    """It has finished, and nothing of ours keeps it from being deleted."""
    return is_true(workload, FINISHED) and names.RESOURCE_IN_USE not in (
        workload["metadata"].get("finalizers") or []
    )
