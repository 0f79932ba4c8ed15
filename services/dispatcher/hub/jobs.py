"""The hub's own jobs, by the names of their workloads, and who was nominated for them by others."""

from dataclasses import dataclass

from shared.contracts.kube.kinds import WORKLOAD, Object
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import is_managed_elsewhere
from shared.contracts.messages.workloads import OwnerReference
from shared.integrations import Integration, Integrations, queue_of

__all__ = ["Hub", "HubJob", "Key"]

Key = tuple[str, str]
"""Namespace and name of a workload of the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubJob:
    """A job that waits, or was sent away."""

    integration: Integration
    obj: Object

    @property
    def managed(self) -> bool:
        """Its own controller leaves it alone, its status too: another program runs it elsewhere."""
        return is_managed_elsewhere(self.obj)

    @property
    def reference(self) -> OwnerReference:
        """As a workload names its owner."""
        kind, metadata = self.integration.kind, self.obj["metadata"]
        return OwnerReference(
            api_version=kind.api_version,
            kind=kind.kind,
            plural=kind.plural,
            name=metadata["name"],
            uid=metadata["uid"],
        )


class Hub:
    """The jobs that have a queue and have not ended."""

    def __init__(self, *, cluster: str, nominations: bool, integrations: Integrations) -> None:
        self._cluster = cluster
        self._integrations = integrations
        self._nominations = nominations
        self._jobs: dict[Key, HubJob] = {}
        self._names: dict[tuple[str, str, str], Key] = {}
        """By plural and group, namespace and name: two groups may call their kinds alike."""

        self.nominated: dict[Key, tuple[str, ...]] = {}
        """`status.nominatedClusterNames`, where somebody else writes it."""

    def take(self, observed: Observed) -> Key | None:
        """Take in a job or a Workload of the hub; return the workload that it says something of."""
        if observed.namespace is None or observed.cluster != self._cluster:
            return None
        if observed.plural == WORKLOAD.plural and observed.group == WORKLOAD.group:
            return self._take_workload((observed.namespace, observed.name), observed)
        integration = self._integrations.find(group=observed.group, plural=observed.plural)
        if integration is None:
            return None
        name = (integration.kind.detail, observed.namespace, observed.name)
        before = self._names.get(name)
        if before is not None and self._jobs[before].obj["metadata"]["uid"] != observed.uid:
            if observed.deleted:
                return None  # The end of an earlier life.
            del self._jobs[before], self._names[name]
        obj = observed.object
        over = observed.deleted or obj is None or integration.finish(obj) is not None
        if over or obj is None or not queue_of(obj) or self._integrations.is_nested(obj):
            key = self._names.pop(name, None)
            if key is not None:
                self._jobs.pop(key, None)
            return key
        key = self._names.get(name) or (
            observed.namespace,
            workload_name(
                kind=integration.kind.kind,
                group=integration.kind.group,
                name=observed.name,
                uid=observed.uid,
            ),
        )
        self._names[name] = key
        self._jobs[key] = HubJob(integration=integration, obj=obj)
        return key

    def _take_workload(self, key: Key, observed: Observed) -> Key | None:
        if not self._nominations:
            return None
        status = (observed.object or {}).get("status") or {}
        named = tuple(str(spoke) for spoke in status.get("nominatedClusterNames") or ())
        if observed.deleted or not named:
            return key if self.nominated.pop(key, None) is not None else None
        changed = self.nominated.get(key) != named
        self.nominated[key] = named
        return key if changed else None

    def job(self, key: Key, uid: str) -> HubJob | None:
        """The job behind a workload, of that life; None if it is not seen, or is over."""
        found = self._jobs.get(key)
        return found if found is not None and found.obj["metadata"]["uid"] == uid else None

    def label(self, key: Key, label: str) -> str | None:
        """A label of the job."""
        found = self._jobs.get(key)
        labels = {} if found is None else found.obj["metadata"].get("labels") or {}
        return labels.get(label) or None

    def wish(self, key: Key, made_with: Object | None) -> Object | None:
        """What its user set in its spec since its copy was made; None: nothing."""
        found = self._jobs.get(key)
        if found is None or made_with is None:
            return None
        spec = found.integration.carry(found.obj)
        changed = {name: value for name, value in spec.items() if value != made_with.get(name)}
        return changed or None
