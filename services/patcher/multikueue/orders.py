"""Which orders of a hub this cluster carries out (ADR 73).

Whoever may publish `sluice.dispatch.>` can ask any patcher for anything. So the patcher compares each
order with what it knows by itself: its own name and its hub's, the kinds and LocalQueues of its cluster,
and the namespaces that an operator excluded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.errors import retry_later
from services.patcher.cluster.writer import get_or_none
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body, annotations_of, labels_of
from shared.contracts.kube.kinds import LOCAL_QUEUE, WORKLOAD, Kind
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import (
    COPY_FINALIZER,
    LEASE,
    ORDER,
    lease_seconds_of,
    prebuilt_workload_of,
)
from shared.integrations import Integration, queue_of
from shared.kube.port import Kube
from shared.telemetry.refusals import MessageRule

_OBJECT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})
_METADATA_FIELDS: Final = frozenset({"name", "namespace", "labels", "annotations", "finalizers"})
"""Fields of the metadata of a copy. With `ownerReferences` it would pass for a part of another job."""


_FORGED: Final = "No correct dispatcher sends this: find out who has its key, and rotate it."
_HUB: Final = (
    "Upgrade the hub, if it is older or newer; otherwise as for a forged order: rotate its key."
)


class OrderRule(MessageRule):
    """An order of a hub to this cluster's patcher. The hub sends the workload elsewhere."""

    OTHER_CLUSTER = (
        "addressee",
        "spoke: {spoke!r}: this is the patcher of {cluster!r}",
        _FORGED,
    )
    HUB_ITSELF = (
        "addressee",
        "spoke: {spoke!r} is the hub itself: its patcher makes no copies",
        _FORGED,
    )
    OTHER_HUB = (
        "addressee",
        "cluster: {given!r}: this cluster carries out orders of {hub!r} only; SLUICE_HUB names its hub",
        "Set `SLUICE_HUB` of the spoke's patcher to the name of its hub.",
    )
    MALFORMED = ("malformed", "{field}: {problem}", _HUB)
    OTHER_OBJECT = ("marks", "{field}: {found!r}: must be {wanted}", _FORGED)
    NAMESPACE = (
        "namespace",
        "{field}.metadata.namespace: {found!r}: the order is for {wanted!r}",
        _FORGED,
    )
    NOT_HELD = (
        "not-held",
        "job.spec: a copy must be created held, and this {kind} is not",
        _FORGED,
    )
    KIND = (
        "kind",
        "{kind} of {group} cannot wait on this cluster: no Integration here is for it",
        "Create the hub's Integration of that kind on the spoke, or install the kind there.",
    )
    VERSION = (
        "kind",
        "{field}: {found!r}: must be {wanted!r}",
        "Give hub and spoke the same Integration of that kind.",
    )
    NO_KUEUE = (
        "kind",
        "workload: this cluster has no Kueue of its own that would admit it",
        "Set `SLUICE_SPOKE_QUOTA=kueue` for the patcher of the spoke if a Kueue runs there.",
    )
    EXCLUDED = (
        "excluded",
        "namespace: {namespace}: excluded on cluster {cluster} (SLUICE_EXCLUDED_NAMESPACES)",
        "Use another namespace, or take it out of `SLUICE_EXCLUDED_NAMESPACES` of the spoke's patcher.",
    )
    NO_QUEUE_NAMED = ("queue", "{field}: names no LocalQueue", _FORGED)
    NO_QUEUE = (
        "queue",
        "{field}: LocalQueue {namespace}/{queue} does not exist on cluster {cluster}: create it there",
        "Create the LocalQueue on the spoke.",
    )
    NOT_ITS_COPY = ("change", "{name} is not the copy that this order is about", _FORGED)
    NO_END = (
        "change",
        "wish: {fields}: does not end the copy",
        "Delete the hub's job and create it anew: a copy that runs is only stopped or cancelled.",
    )

    def __init__(self, label: str, text: str, remedy: str) -> None:
        super().__init__("dispatch", label, text, remedy)


_SETUP: Final = frozenset({"kind", "excluded", "queue"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderRefusal:
    """Why an order is not carried out."""

    rule: OrderRule
    text: str

    @property
    def by_setup(self) -> bool:
        """True if a correct hub may send such an order, because the two clusters are set up differently."""
        return self.rule.label in _SETUP

    @property
    def tells_hub(self) -> bool:
        """True if the hub is told, so that it sends the workload elsewhere."""
        return self.rule.label != "addressee"


class _RefusedError(Exception):
    def __init__(self, rule: OrderRule, **values: object) -> None:
        super().__init__(rule.says(**values))
        self.rule = rule


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
            return OrderRefusal(rule=error.rule, text=str(error))
        return None

    def _check_addressee(self, order: Dispatch) -> None:
        if order.spoke != self.cluster:
            raise _RefusedError(OrderRule.OTHER_CLUSTER, spoke=order.spoke, cluster=self.cluster)
        if self.cluster in {self.hub, order.cluster}:
            raise _RefusedError(OrderRule.HUB_ITSELF, spoke=order.spoke)
        if order.cluster != self.hub:
            raise _RefusedError(OrderRule.OTHER_HUB, given=order.cluster, hub=self.hub)

    def _check_reference(self, order: Dispatch) -> None:
        """Check what a withdrawn order deletes: a copy of this hub, of this workload."""
        if order.job is None:
            return
        job = order.job
        metadata = _metadata_of(job, "job")
        self._integration_of(job)
        _check_namespace(order, metadata, "job")
        labels = _strings(metadata, "labels", "job")
        mark = _strings(metadata, "annotations", "job").get(ORDER, "")
        _check_mark(labels, ORIGIN, None, "job.metadata.labels")
        _check_workload_name(job, order.name)
        if mark.rpartition("/")[0] != self.hub:
            field = f"job.metadata.annotations[{ORDER}]"
            raise _RefusedError(
                OrderRule.OTHER_OBJECT, field=field, found=mark, wanted=f"an order of {self.hub!r}"
            )

    def _check_contents(self, order: Dispatch) -> None:
        """Check what the order makes or changes."""
        if any(fnmatchcase(order.namespace, pattern) for pattern in self.excluded):
            raise _RefusedError(OrderRule.EXCLUDED, namespace=order.namespace, cluster=self.cluster)
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
        _check_workload_name(job, order.name)
        if not isinstance(job.get("spec"), dict):
            raise _malformed("job.spec", "must be an object")
        problems = integration.problems(job)
        if problems:
            raise _malformed("job", f"cannot be read: {'; '.join(problems)}")
        if not integration.held(job) or not integration.matches(job):
            raise _RefusedError(OrderRule.NOT_HELD, kind=integration.kind.kind)

    def _check_workload(self, order: Dispatch, workload: dict[str, Any]) -> None:
        if not self.own_kueue:
            raise _RefusedError(OrderRule.NO_KUEUE)
        metadata = _metadata_of(workload, "workload")
        found = f"{workload.get('apiVersion')} {workload.get('kind')}"
        wanted = f"{WORKLOAD.api_version} {WORKLOAD.kind}"
        if found != wanted:
            raise _RefusedError(OrderRule.VERSION, field="workload", found=found, wanted=wanted)
        _check_copy(order, workload, metadata, "workload")
        if metadata["name"] != order.name:
            raise _other_object("workload.metadata.name", metadata["name"], order.name)
        spec = workload.get("spec")
        if not isinstance(spec, dict) or not isinstance(spec.get("priority"), int):
            raise _malformed("workload.spec.priority", "must be a number")
        if order.reranked and not isinstance(spec.get("priorityClassRef"), dict):
            raise _malformed("workload.spec.priorityClassRef", "must be an object")

    def _check_target(self, order: Dispatch) -> None:
        """Check that the job to change is the one that the order made."""
        target, job = order.target, order.job
        assert target is not None
        if job is not None and job["metadata"]["name"] != target.name:
            raise _other_object("target.name", target.name, job["metadata"]["name"])
        found = self._find(target.group, target.kind)
        if found.kind.plural != target.plural:
            raise _RefusedError(
                OrderRule.VERSION,
                field="target.plural",
                found=target.plural,
                wanted=found.kind.plural,
            )

    def _integration_of(self, job: Mapping[str, Any]) -> Integration:
        version = str(job.get("apiVersion") or "")
        found = self._find(version.rpartition("/")[0], str(job.get("kind") or ""))
        if found.kind.api_version != version:
            wanted = found.kind.api_version
            raise _RefusedError(
                OrderRule.VERSION, field="job.apiVersion", found=version, wanted=wanted
            )
        return found

    def _find(self, group: str, kind: str) -> Integration:
        found = self.cache.integrations.find(group=group, kind=kind)
        if found is not None:
            return found
        if (unsynced := self.cache.not_synced()) is not None:
            raise LaterError(unsynced)
        raise _RefusedError(OrderRule.KIND, kind=kind, group=group or "the core group")

    async def _check_queues(self, order: Dispatch) -> None:
        """Check that each LocalQueue exists here: in a queue that nobody made, nothing is ever decided."""
        queues: dict[str, str] = {}
        if order.job is not None:
            queues["job.metadata.labels"] = queue_of(order.job)
        if order.workload is not None:
            queues["workload.spec.queueName"] = str(order.workload["spec"].get("queueName") or "")
        for field, queue in queues.items():
            if not queue:
                raise _RefusedError(OrderRule.NO_QUEUE_NAMED, field=field)
            if not await self._queue_exists(order.namespace, queue):
                raise _RefusedError(
                    OrderRule.NO_QUEUE,
                    field=field,
                    namespace=order.namespace,
                    queue=queue,
                    cluster=self.cluster,
                )

    async def _queue_exists(self, namespace: str, name: str) -> bool:
        if self.cache.object(LOCAL_QUEUE, namespace, name) is not None:
            return True
        with retry_later():
            return await get_or_none(self.kube, LOCAL_QUEUE, namespace, name) is not None


def is_copy_of_order(kind: Kind, found: Body, order: Dispatch) -> bool:
    """True if this order made the object. Everything else is left alone, whatever the order names."""
    metadata = found["metadata"]
    named = metadata["name"] if kind == WORKLOAD else prebuilt_workload_of(found)
    return (
        bool(labels_of(found).get(ORIGIN))
        and named == order.name
        and annotations_of(found).get(ORDER) == f"{order.cluster}/{order.number}"
    )


def _malformed(field: str, problem: str) -> _RefusedError:
    return _RefusedError(OrderRule.MALFORMED, field=field, problem=problem)


def _other_object(field: str, found: str, wanted: str | None) -> _RefusedError:
    """`wanted`: None if any value but an empty one would do."""
    text = "set" if wanted is None else repr(wanted)
    return _RefusedError(OrderRule.OTHER_OBJECT, field=field, found=found, wanted=text)


def _metadata_of(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return the metadata with a name in it. Raises `_RefusedError`."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise _malformed(f"{field}.metadata", "must be an object")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise _malformed(f"{field}.metadata.name", "must be a name")
    return metadata


def _check_copy(
    order: Dispatch, obj: Mapping[str, Any], metadata: Mapping[str, Any], field: str
) -> None:
    """Check what is the same for a job and a Workload that an order makes."""
    _check_namespace(order, metadata, field)
    for unknown in _unknown(obj, metadata):
        raise _malformed(f"{field}.{unknown}", "no copy has this field")
    if metadata.get("finalizers", []) not in ([], [COPY_FINALIZER]):
        raise _malformed(f"{field}.metadata.finalizers", f"only {COPY_FINALIZER} is allowed")
    _check_mark(_strings(metadata, "labels", field), ORIGIN, None, f"{field}.metadata.labels")
    annotations = _strings(metadata, "annotations", field)
    mark = f"{order.cluster}/{order.number}"
    _check_mark(annotations, ORDER, mark, f"{field}.metadata.annotations")
    if LEASE in annotations and lease_seconds_of(obj) is None:
        where = f"{field}.metadata.annotations[{LEASE}]"
        raise _malformed(where, f"{annotations[LEASE]!r}: must be seconds")


def _check_namespace(order: Dispatch, metadata: Mapping[str, Any], field: str) -> None:
    namespace = metadata.get("namespace")
    if namespace != order.namespace:
        raise _RefusedError(
            OrderRule.NAMESPACE, field=field, found=namespace, wanted=order.namespace
        )


def _check_mark(marks: Mapping[str, str], key: str, wanted: str | None, field: str) -> None:
    """Check that the mark is there; with `wanted`, that it is this one."""
    found = marks.get(key, "")
    if not found or (wanted is not None and found != wanted):
        raise _other_object(f"{field}[{key}]", found, wanted)


def _check_workload_name(job: Mapping[str, Any], wanted: str) -> None:
    """Check that the job names the Workload of the order. Its labels and annotations are strings."""
    found = prebuilt_workload_of(job) or ""
    if found != wanted:
        raise _other_object(f"job.metadata.labels[{PREBUILT_WORKLOAD}]", found, wanted)


def _strings(metadata: Mapping[str, Any], name: str, field: str) -> dict[str, str]:
    value = metadata.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise _malformed(f"{field}.metadata.{name}", "must be a map of strings")
    return value


def _unknown(obj: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    yield from sorted(obj.keys() - _OBJECT_FIELDS)
    yield from (f"metadata.{name}" for name in sorted(metadata.keys() - _METADATA_FIELDS))
