"""A cache of one cluster: the latest of each observed object, workload state and admission."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from shared.bus.follow import follow_entries, isolated, read
from shared.bus.kind_follower import KindFollower
from shared.bus.port import Bus, Entry, LogChangedError
from shared.contracts import subjects
from shared.contracts.controllers import OWN_CONTROLLERS
from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import Body, spec_of, version_of
from shared.contracts.kube.conditions import FINISHED, is_true
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState
from shared.contracts.subjects import SORT_OF, Stream, observed_filter, subject_filter
from shared.integrations import INTEGRATIONS, Integration, Integrations, queue_of
from shared.integrations.groups import Groups
from shared.telemetry import probes

_ObjectKey = tuple[str, str | None, str]
"""`<plural>_<group>`, namespace, name."""

LogPosition = tuple[int, int]
"""`Entry.place`."""

NOWHERE: Final = (0, 0)


class ObjectCache:
    """The latest of each object, workload state and admission of one cluster."""

    def __init__(self, *, bus: Bus, cluster: str) -> None:
        self._bus = bus
        self._cluster = cluster
        self._objects: dict[_ObjectKey, Body] = {}
        self._workloads: dict[str, tuple[LogPosition, WorkloadState]] = {}
        """Subject to place in the log and state."""

        self._admissions: dict[str, tuple[LogPosition, Admission]] = {}
        """Subject to place in the log and admission."""

        self.integrations = Integrations()
        """The kinds that can wait in this cluster."""

        self.groups = Groups()
        """The groups of objects that are one workload."""

        self.on_gated: Callable[[Integration, Body], None] | None = None
        """Called for each observed object of a kind with a scheduling gate."""

        self.integrations_changed = asyncio.Event()
        self._unread = {Stream.OBSERVED, Stream.WORKLOADS, Stream.ADMISSIONS}
        """Streams of which the stored messages are not read yet."""

    def not_synced(self) -> str | None:
        """None once the stored messages of all streams are read, else which streams are being read."""
        return f"reading {', '.join(sorted(self._unread))}" if self._unread else None

    def object(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        """The newest known state of an object: observed, or answered by the API server to a write."""
        return self._objects.get((kind.detail, namespace, name))

    def objects(self, kind: Kind) -> Iterator[Body]:
        """All cached objects of a kind. The caller awaits nothing between two of them."""
        return (obj for key, obj in self._objects.items() if key[0] == kind.detail)

    def controller_of(self, check: str) -> str | None:
        """The controller that an AdmissionCheck names; None if the check is not known."""
        found = self.object(kinds.ADMISSION_CHECK, None, check)
        return None if found is None else str(spec_of(found).get("controllerName") or "")

    def foreign_checks(self, names: Iterable[str]) -> set[str]:
        """Those of these AdmissionChecks that other controllers answer."""
        controllers = ((name, self.controller_of(name)) for name in names)
        return {
            name
            for name, controller in controllers
            if controller is not None and controller not in OWN_CONTROLLERS
        }

    def preemptor_of(self, admission: Admission) -> Body | None:
        """The Workload for which this one is evicted; None if none is, or if it is not known here."""
        if admission.state != "evicted" or admission.preempted_by is None:
            return None
        namespace, _, name = admission.preempted_by.partition("/")
        return self.object(kinds.WORKLOAD, namespace, name)

    def workload(self, namespace: str, name: str) -> WorkloadState | None:
        """The latest state of a workload; None if there is none."""
        return self._workloads.get(self._subject("workload", namespace, name), (NOWHERE, None))[1]

    def admission(self, namespace: str, name: str) -> Admission | None:
        """The latest admission of a workload; None if there is none."""
        return self._admissions.get(self._subject("admission", namespace, name), (NOWHERE, None))[1]

    def admissions(self) -> tuple[Admission, ...]:
        """The latest admission of each workload."""
        return tuple(admission for _, admission in self._admissions.values())

    def is_member(self, obj: Body, integration: Integration) -> bool:
        """True if the object is counted with its group, if it names one."""
        return integration.matches(obj) and not self.integrations.runs_with_controller(
            obj, integration
        )

    def store(self, kind: Kind, obj: Body) -> None:
        """Store what the API server answered, unless a newer state is known."""
        metadata = obj["metadata"]
        key = (kind.detail, metadata.get("namespace"), metadata["name"])
        if version_of(obj) >= version_of(self._objects.get(key)):
            self._store_if_needed(key, obj)

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Remove an object that the API server does not have any more."""
        self._objects.pop((kind.detail, namespace, name), None)

    def apply_workload(self, entry: Entry) -> WorkloadState:
        """Apply a workload state; return it, or the newer one that is known already.

        Each entry comes twice, from the cache's own reader and as work: it is decoded once. Raises
        `UndecodableError`.
        """
        known = self._workloads.get(entry.subject)
        if known is not None and known[0] >= entry.place:
            return known[1]
        state = entry.read(WorkloadState)
        self._workloads[entry.subject] = (entry.place, state)
        return state

    def _on_workload(self, entry: Entry) -> None:
        known = self._workloads.get(entry.subject)
        if known is not None and known[0] >= entry.place:
            return
        state = read(entry, WorkloadState)
        # The end of an unknown workload was handled and forgotten; if not, it comes as work.
        if state is not None and (known is not None or state.phase not in ENDED_PHASES):
            self._workloads[entry.subject] = (entry.place, state)

    def apply_admission(self, entry: Entry) -> Admission:
        """Apply an admission; return it, or the newer one that is known already.

        A former leader may write late, so (epoch, term, number) decides which one is newer (ADR 5). Raises
        `UndecodableError`.
        """
        known = self._admissions.get(entry.subject)
        if known is not None and known[0] >= entry.place:
            return known[1]
        return self._keep_newer(entry, entry.read(Admission))

    def _keep_newer(self, entry: Entry, admission: Admission) -> Admission:
        known = self._admissions.get(entry.subject)
        # A log that was made anew, or lost its tail, knows nothing of what was decided before.
        same = known is not None and known[0][0] == entry.generation
        if known is not None and same and known[1].order > admission.order:
            probes.OLDER_DECISION.fired += 1
            admission = known[1]
        self._admissions[entry.subject] = (entry.place, admission)
        return admission

    def _on_admission(self, entry: Entry) -> None:
        known = self._admissions.get(entry.subject)
        if known is None or known[0] < entry.place:
            admission = read(entry, Admission)
            if admission is None:
                return
            admission = self._keep_newer(entry, admission)
        else:
            admission = known[1]
        ended = admission.state == "released" and Stream.WORKLOADS not in self._unread
        if ended and self.workload(admission.namespace, admission.name) is None:
            self._admissions.pop(entry.subject, None)

    def forget(self, namespace: str, name: str) -> None:
        """Remove state and admission of a workload that is gone and needs nothing any more."""
        self._workloads.pop(self._subject("workload", namespace, name), None)
        self._admissions.pop(self._subject("admission", namespace, name), None)

    def _subject(self, what: str, namespace: str, name: str) -> str:
        return subjects.join(what, self._cluster, namespace, name)

    async def run_observed(self) -> None:
        """Follow the observed objects until cancelled."""
        followed = (
            kinds.WORKLOAD,
            kinds.ADMISSION_CHECK,
            kinds.RESOURCE_FLAVOR,
            kinds.CLUSTER_QUEUE,
            kinds.LOCAL_QUEUE,
            kinds.COHORT,
            *(i.kind for i in INTEGRATIONS),
        )
        filters = [observed_filter(kind, self._cluster) for kind in followed]
        await KindFollower(
            bus=self._bus,
            cluster=self._cluster,
            filters=filters,
            kinds=self.integrations.added_kinds,
            on_integration=self._on_integration,
            on_entry=self._on_observed_entry,
            on_caught_up=partial(self._on_caught_up, Observed.stream),
        ).run()

    def _on_integration(self, observed: Observed) -> None:
        self.integrations.observe(observed)
        self.integrations_changed.set()

    async def run_workloads(self) -> None:
        """Follow the workload states until cancelled."""
        await self._follow(Stream.WORKLOADS, self._on_workload)

    async def run_admissions(self) -> None:
        """Follow the admissions until cancelled."""
        await self._follow(Stream.ADMISSIONS, self._on_admission)

    async def until_log_lost(self) -> None:
        """Raise `LogChangedError` once a log lacks what this process has published (ADR 101)."""
        lost = await self._bus.log_lost()
        raise LogChangedError(f"{lost} lacks what this patcher has published")

    async def _follow(self, stream: str, on_entry: Callable[[Entry], None]) -> None:
        filter_ = subject_filter(SORT_OF[stream], self._cluster)

        def on_isolated_entry(entry: Entry) -> None:
            with isolated(stream, entry.subject):
                on_entry(entry)

        await follow_entries(
            self._bus,
            stream,
            [filter_],
            on_entry=on_isolated_entry,
            on_caught_up=partial(self._on_caught_up, stream),
        )

    def _on_caught_up(self, stream: str, _sequence: int) -> None:
        self._unread.discard(stream)

    def _on_observed_entry(self, entry: Entry) -> bool:
        """Apply an entry of OBSERVED; False if it cannot be read."""
        if (observed := read(entry, Observed)) is None:
            return False
        with isolated(Observed.stream, entry.subject):
            self._on_observed(observed)
        return True

    def _on_observed(self, observed: Observed) -> None:
        detail = f"{observed.plural}_{observed.group.replace('.', '_')}"
        key = (detail, observed.namespace, observed.name)
        known = self._objects.get(key)
        if observed.deleted or observed.body is None:
            self._forget_member(observed)
            if known is not None:
                metadata = known["metadata"]
                if observed.ends(metadata["uid"], str(metadata.get("resourceVersion", ""))):
                    del self._objects[key]
        elif version_of(observed.body) >= version_of(known):
            self._store_if_needed(key, observed.body)
            integration = self.integrations.find(group=observed.group, plural=observed.plural)
            if integration is None or integration.gate is None:
                return
            if self.is_member(observed.body, integration):
                # Only what was observed: an answer to a write may come after the end of its object.
                self.groups.observe(observed.body, integration)
            if self.on_gated is not None:
                self.on_gated(integration, observed.body)

    def _forget_member(self, observed: Observed) -> None:
        integration = self.integrations.find(group=observed.group, plural=observed.plural)
        if integration is not None and integration.group and observed.namespace:
            self.groups.forget(integration.kind, observed)

    def _store_if_needed(self, key: _ObjectKey, obj: Body) -> None:
        """Store an object while a handler may need it; others can be read from the API server."""
        if key[0] == kinds.WORKLOAD.detail:
            needed = not _is_finished_and_released(obj)
        else:
            plural, _, group = key[0].partition("_")
            integration = self.integrations.find(group=group.replace("_", "."), plural=plural)
            needed = integration is None or not (
                not queue_of(obj) or integration.finish(obj) is not None
            )
        if needed:
            self._objects[key] = obj
        else:
            self._objects.pop(key, None)


def _is_finished_and_released(workload: Body) -> bool:
    """True if the Workload has finished and our finalizer does not keep it any more."""
    finalizers = workload["metadata"].get("finalizers") or []
    return is_true(workload, FINISHED) and names.RESOURCE_IN_USE not in finalizers
