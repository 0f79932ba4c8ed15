"""Which orders of a hub this cluster carries out (ADR 73).

Whoever may publish `sluice.dispatch.>` can ask any patcher for anything. So the patcher compares each
order with what it knows by itself: its own name and its hub's, the kinds and LocalQueues of its cluster,
and the namespaces that an operator excluded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.errors import retry_later
from services.patcher.cluster.writer import get_or_none
from shared.bus.port import LaterError
from shared.contracts.kube.kinds import LOCAL_QUEUE, WORKLOAD
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import (
    COPY_FINALIZER,
    LEASE,
    ORDER,
    ORIGIN,
    PREBUILT_WORKLOAD,
    lease_seconds_of,
)
from shared.integrations import Integration, queue_of
from shared.kube.port import Kube

_OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})
_METADATA_FIELDS: Final = frozenset({"name", "namespace", "labels", "annotations", "finalizers"})
"""Fields of the metadata of a copy. With `ownerReferences` it would pass for a part of another job."""


class RefusalReason(StrEnum):
    """Why an order is refused; a label of `sluicegate_refused_messages_total`."""

    ADDRESSEE = "addressee"
    """It is of another hub, or addressed to the hub's own cluster."""

    MALFORMED = "malformed"
    MARKS = "marks"
    """An object does not carry the marks of the order."""

    NAMESPACE = "namespace"
    """An object is in another namespace than the order says."""

    NOT_HELD = "not-held"
    KIND = "kind"
    """No Integration of this cluster has the kind."""

    EXCLUDED = "excluded"
    """The operator of this cluster excluded the namespace."""

    QUEUE = "queue"
    """The LocalQueue does not exist in this cluster."""


_SETUP: Final = frozenset({RefusalReason.KIND, RefusalReason.EXCLUDED, RefusalReason.QUEUE})


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRefusal:
    """Why an order is not carried out."""

    reason: RefusalReason
    text: str

    @property
    def by_setup(self) -> bool:
        """True if a correct hub may send such an order, because the two clusters are set up differently."""
        return self.reason in _SETUP

    @property
    def tells_hub(self) -> bool:
        """True if the hub is told, so that it sends the workload elsewhere."""
        return self.reason is not RefusalReason.ADDRESSEE


class _RefusedError(Exception):
    def __init__(self, reason: RefusalReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCheck:
    """Compares the orders for one cluster with what is observed there."""

    kube: Kube
    cache: ObjectCache
    cluster: str
    hub: str
    """Name of the hub whose orders are carried out."""

    excluded: tuple[str, ...]
    """Patterns of namespaces in which nothing is made."""

    own_kueue: bool = False
    """A Kueue of this cluster admits the copies."""

    async def refusal_of(self, order: Dispatch) -> OrderRefusal | None:
        """Return why the order is not carried out; None if it is. Raises `LaterError`."""
        try:
            self._check_addressee(order)
            if order.state == "withdrawn":
                self._check_reference(order)
            else:
                self._check_contents(order)
                await self._check_queues(order)
        except _RefusedError as error:
            return OrderRefusal(reason=error.reason, text=str(error))
        return None

    def _check_addressee(self, order: Dispatch) -> None:
        if order.spoke != self.cluster:
            text = f"spoke: {order.spoke!r}: this is the patcher of {self.cluster!r}"
            raise _RefusedError(RefusalReason.ADDRESSEE, text)
        if self.cluster in {self.hub, order.cluster}:
            text = f"spoke: {order.spoke!r} is the hub itself: its patcher makes no copies"
            raise _RefusedError(RefusalReason.ADDRESSEE, text)
        if order.cluster != self.hub:
            text = (
                f"cluster: {order.cluster!r}: this cluster carries out orders of {self.hub!r} only; "
                "SLUICE_HUB names its hub"
            )
            raise _RefusedError(RefusalReason.ADDRESSEE, text)

    def _check_reference(self, order: Dispatch) -> None:
        """Check what a withdrawn order deletes: a copy of this hub, of this workload."""
        if order.job is None:
            return
        job = order.job
        metadata = _metadata_of(job, "job")
        self._integration_of(job)
        _check_namespace(order, metadata, "job")
        labels = _strings(metadata, "labels", "job")
        _check_mark(labels, ORIGIN, None, "job.metadata.labels")
        _check_mark(labels, PREBUILT_WORKLOAD, order.name, "job.metadata.labels")
        mark = _strings(metadata, "annotations", "job").get(ORDER, "")
        if mark.rpartition("/")[0] != self.hub:
            text = f"job.metadata.annotations[{ORDER}]: {mark!r}: must name the hub {self.hub!r}"
            raise _RefusedError(RefusalReason.MARKS, text)

    def _check_contents(self, order: Dispatch) -> None:
        """Check what the order makes or changes."""
        if any(fnmatchcase(order.namespace, pattern) for pattern in self.excluded):
            text = (
                f"namespace: {order.namespace}: excluded on cluster {self.cluster} "
                "(SLUICE_EXCLUDED_NAMESPACES)"
            )
            raise _RefusedError(RefusalReason.EXCLUDED, text)
        if order.job is not None:
            self._check_job(order, order.job)
        if order.workload is not None:
            self._check_workload(order, order.workload)
        if order.target is not None:
            self._check_target(order)

    def _check_job(self, order: Dispatch, job: dict[str, Any]) -> None:
        metadata = _metadata_of(job, "job")
        integration = self._integration_of(job)
        _check_copy(order, job, metadata, "job")
        labels = _strings(metadata, "labels", "job")
        _check_mark(labels, PREBUILT_WORKLOAD, order.name, "job.metadata.labels")
        if not isinstance(job.get("spec"), dict):
            raise _RefusedError(RefusalReason.MALFORMED, "job.spec: must be an object")
        problems = integration.problems(job)
        if problems:
            text = f"job: cannot be read: {'; '.join(problems)}"
            raise _RefusedError(RefusalReason.MALFORMED, text)
        if not integration.held(job) or not integration.matches(job):
            text = f"job.spec: a copy must be created held, and this {integration.kind.kind} is not"
            raise _RefusedError(RefusalReason.NOT_HELD, text)

    def _check_workload(self, order: Dispatch, workload: dict[str, Any]) -> None:
        if not self.own_kueue:
            text = "workload: this cluster has no Kueue of its own that would admit it"
            raise _RefusedError(RefusalReason.KIND, text)
        metadata = _metadata_of(workload, "workload")
        version, kind = workload.get("apiVersion"), workload.get("kind")
        if (version, kind) != (WORKLOAD.api_version, WORKLOAD.kind):
            text = f"workload: {version} {kind}: must be {WORKLOAD.api_version} {WORKLOAD.kind}"
            raise _RefusedError(RefusalReason.KIND, text)
        _check_copy(order, workload, metadata, "workload")
        if metadata["name"] != order.name:
            text = f"workload.metadata.name: {metadata['name']!r}: must be {order.name!r}"
            raise _RefusedError(RefusalReason.MARKS, text)
        spec = workload.get("spec")
        if not isinstance(spec, dict) or not isinstance(spec.get("priority"), int):
            text = "workload.spec.priority: must be a number"
            raise _RefusedError(RefusalReason.MALFORMED, text)
        if order.reranked and not isinstance(spec.get("priorityClassRef"), dict):
            text = "workload.spec.priorityClassRef: must be an object"
            raise _RefusedError(RefusalReason.MALFORMED, text)

    def _check_target(self, order: Dispatch) -> None:
        """Check that the job to change is the one that the order made."""
        target, job = order.target, order.job
        assert target is not None
        if job is not None and job["metadata"]["name"] != target.name:
            text = f"target.name: {target.name!r}: the job is {job['metadata']['name']!r}"
            raise _RefusedError(RefusalReason.MARKS, text)
        found = self._find(target.group, target.kind)
        if found.kind.plural != target.plural:
            text = f"target.plural: {target.plural!r}: must be {found.kind.plural!r}"
            raise _RefusedError(RefusalReason.KIND, text)

    def _integration_of(self, job: Mapping[str, Any]) -> Integration:
        version = str(job.get("apiVersion") or "")
        found = self._find(version.rpartition("/")[0], str(job.get("kind") or ""))
        if found.kind.api_version != version:
            text = f"job.apiVersion: {version!r}: must be {found.kind.api_version!r}"
            raise _RefusedError(RefusalReason.KIND, text)
        return found

    def _find(self, group: str, kind: str) -> Integration:
        found = self.cache.integrations.find(group=group, kind=kind)
        if found is not None:
            return found
        if (unsynced := self.cache.not_synced()) is not None:
            raise LaterError(unsynced)
        text = f"{kind} of {group or 'the core group'} is nothing that can wait here"
        raise _RefusedError(RefusalReason.KIND, text)

    async def _check_queues(self, order: Dispatch) -> None:
        """Check that each LocalQueue exists here: in a queue that nobody made, nothing is ever decided."""
        queues: dict[str, str] = {}
        if order.job is not None:
            queues["job.metadata.labels"] = queue_of(order.job)
        if order.workload is not None:
            queues["workload.spec.queueName"] = str(order.workload["spec"].get("queueName") or "")
        for field, queue in queues.items():
            if not queue:
                raise _RefusedError(RefusalReason.QUEUE, f"{field}: names no LocalQueue")
            if not await self._queue_exists(order.namespace, queue):
                text = (
                    f"{field}: LocalQueue {order.namespace}/{queue} does not exist on cluster "
                    f"{self.cluster}: create it there"
                )
                raise _RefusedError(RefusalReason.QUEUE, text)

    async def _queue_exists(self, namespace: str, name: str) -> bool:
        if self.cache.object(LOCAL_QUEUE, namespace, name) is not None:
            return True
        with retry_later():
            return await get_or_none(self.kube, LOCAL_QUEUE, namespace, name) is not None


def _metadata_of(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return the metadata with a name in it. Raises `_RefusedError`."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise _RefusedError(RefusalReason.MALFORMED, f"{field}.metadata: must be an object")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise _RefusedError(RefusalReason.MALFORMED, f"{field}.metadata.name: must be a name")
    return metadata


def _check_copy(
    order: Dispatch, obj: Mapping[str, Any], metadata: Mapping[str, Any], field: str
) -> None:
    """Check what is the same for a job and a Workload that an order makes."""
    _check_namespace(order, metadata, field)
    for unknown in _unknown(obj, metadata):
        raise _RefusedError(RefusalReason.MALFORMED, f"{field}.{unknown}: no copy has this field")
    if metadata.get("finalizers", []) not in ([], [COPY_FINALIZER]):
        text = f"{field}.metadata.finalizers: only {COPY_FINALIZER} is allowed"
        raise _RefusedError(RefusalReason.MALFORMED, text)
    _check_mark(_strings(metadata, "labels", field), ORIGIN, None, f"{field}.metadata.labels")
    annotations = _strings(metadata, "annotations", field)
    mark = f"{order.cluster}/{order.number}"
    _check_mark(annotations, ORDER, mark, f"{field}.metadata.annotations")
    if LEASE in annotations and lease_seconds_of(obj) is None:
        text = f"{field}.metadata.annotations[{LEASE}]: {annotations[LEASE]!r}: must be seconds"
        raise _RefusedError(RefusalReason.MALFORMED, text)


def _check_namespace(order: Dispatch, metadata: Mapping[str, Any], field: str) -> None:
    namespace = metadata.get("namespace")
    if namespace != order.namespace:
        text = f"{field}.metadata.namespace: {namespace!r}: the order is for {order.namespace!r}"
        raise _RefusedError(RefusalReason.NAMESPACE, text)


def _check_mark(marks: Mapping[str, str], key: str, wanted: str | None, field: str) -> None:
    """Check that the mark is there; with `wanted`, that it is this one."""
    found = marks.get(key, "")
    if not found or (wanted is not None and found != wanted):
        text = f"{field}[{key}]: {found!r}: must be {'set' if wanted is None else repr(wanted)}"
        raise _RefusedError(RefusalReason.MARKS, text)


def _strings(metadata: Mapping[str, Any], name: str, field: str) -> dict[str, str]:
    value = metadata.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise _RefusedError(
            RefusalReason.MALFORMED, f"{field}.metadata.{name}: must be a map of strings"
        )
    return value


def _unknown(obj: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    yield from sorted(obj.keys() - _OBJECT_FIELDS)
    yield from (f"metadata.{name}" for name in sorted(metadata.keys() - _METADATA_FIELDS))
