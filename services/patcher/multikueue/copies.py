"""Creates and removes the copies of jobs that a hub sends to this cluster (ADR 40).

1. A copy is created suspended. It starts only while the latest order on the log is `chosen`.
2. A copy is removed only after its order was withdrawn, or it was stopped because its lease expired.
3. It is reported as gone only after its pods are gone.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

import orjson
import structlog

from services.patcher.cluster.errors import is_transient_refusal, retry_later
from services.patcher.cluster.patches import if_unchanged, remove_finalizer
from services.patcher.cluster.writer import get_or_none
from services.patcher.multikueue.orders import OrderRule, is_copy_of_order
from services.patcher.multikueue.priority import PriorityUpdater
from shared.bus.follow import read
from shared.bus.port import Bus, BusError, Entry, LaterError
from shared.contracts import subjects
from shared.contracts.kube.bodies import Body, Metadata, spec_of
from shared.contracts.kube.kinds import WORKLOAD, Kind
from shared.contracts.kube.names import FOREGROUND_DELETION, ORIGIN, RESOURCE_IN_USE
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.spokes import (
    COPY_FINALIZER,
    ORDER,
    CopyState,
    lease_seconds_of,
    prebuilt_workload_of,
)
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream
from shared.integrations import Integrations
from shared.kube.port import AlreadyExistsError, Kube, NotFoundError, RefusedError
from shared.telemetry import probes

log = structlog.get_logger(__name__)

ATTEMPTS_MAX: Final = 3
"""Reads of a copy that is removed before the message is delivered again later: often it goes at once."""

ENDING_SECONDS: Final = 0.5
CHANGED_SECONDS: Final = 0.1
"""Delay after an object changed between two requests."""

LEASE_EXPIRED_SECONDS: Final = 1.0
"""Delay before a chosen copy with an expired lease is tried again: it is renewed or stopped by then."""


class CopyReconciler:
    """Carries out the hub's orders on the cluster of this patcher."""

    def __init__(
        self,
        *,
        kube: Kube,
        bus: Bus,
        cluster: str,
        now: Callable[[], datetime],
        lease_seconds_left: Callable[[float], float],
        integrations: Integrations,
        not_synced: Callable[[], str | None],
        own_kueue: bool = False,
    ) -> None:
        """`lease_seconds_left`: seconds until a lease of that length expires.

        `integrations`: of this cluster; `not_synced`: what is to be read before they are complete, or
        None. `own_kueue`: this cluster has a Kueue of its own, which admits the copies.
        """
        self._kube = kube
        self._bus = bus
        self._cluster = cluster
        self._now = now
        self._lease_seconds_left = lease_seconds_left
        self._integrations = integrations
        self._not_synced = not_synced
        self._own_kueue = own_kueue
        self._priority = PriorityUpdater(kube=kube, bus=bus, integrations=integrations)
        self._deleted: set[str] = set()
        """Uids that this process deleted with foreground propagation."""

        self._deleted_again: set[str] = set()
        """Uids that this process deleted so once more, when only our finalizer was left."""

    async def apply(self, dispatch: Dispatch) -> None:
        """Create, keep or remove the copy. Can be repeated. Raises `LaterError` until it is done."""
        job = dispatch.job
        if dispatch.spoke != self._cluster:
            return  # An order for another cluster under our subject: not from our hub.
        with retry_later():
            try:
                if dispatch.state == "withdrawn":
                    await self._withdraw(dispatch)
                elif dispatch.workload is not None:
                    await self._create(WORKLOAD, dispatch.workload, dispatch)
                    if dispatch.state == "chosen" and job is not None:
                        await self._create(self._kind(job), job, dispatch)
                elif dispatch.state == "offered" and job is not None:
                    await self._create(self._kind(job), job, dispatch)
                if dispatch.state == "chosen" and dispatch.wish:
                    await self._change_spec(dispatch, dispatch.wish)
                if dispatch.state != "withdrawn" and dispatch.reranked:
                    await self._priority.update(dispatch)
            except _NoIntegrationError as error:
                if (unsynced := self._not_synced()) is not None:
                    raise LaterError(unsynced) from error
                await self._report(dispatch, "refused", str(error))

    async def report_unreadable(self, entry: Entry, why: str) -> None:
        """Tell the hub that an order cannot be read, as far as the order says who gave it."""
        try:
            body = orjson.loads(entry.data)
            report = CopyState(
                **{
                    field: body[field]
                    for field in ("cluster", "namespace", "name", "uid", "number")
                },
                spoke=self._cluster,
                state="refused",
                message=f"its order (DISPATCHES {entry.sequence}) cannot be read: {why}",
                at=self._now(),
            )
        except (ValueError, TypeError, KeyError) as error:
            log.warning(
                "an order cannot be read and names no workload",
                subject=entry.subject,
                error=repr(error),
            )
            return
        if report.ref == self._ref_in(entry.subject, report.cluster):
            await self._bus.publish(report)

    def _ref_in(self, subject: str, hub: str) -> WorkloadRef | None:
        """The workload of the hub that the subject of an order to this spoke names."""
        tokens = subject.split(".")
        known = subjects.join("dispatch", self._cluster, *map(subjects.decode, tokens[3:5]))
        if known != subject:
            return None
        namespace, name = map(subjects.decode, tokens[3:5])
        return WorkloadRef(hub, namespace or "", name or "")

    async def may_start(self, job: Body) -> bool:
        """True unless `job` is a copy that the hub does not want to run here now.

        Reads the latest order from the log, because a cached one may be outdated. Raises `LaterError`.
        """
        metadata = job["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        order = annotations.get(ORDER)
        if ORIGIN not in labels or order is None:
            return True  # Not a copy, or one of a hub that starts and stops it itself.
        if metadata.get("deletionTimestamp"):
            return False  # Stopped, or deleted by a user: only our finalizer keeps it.
        subject = subjects.join(
            "dispatch", self._cluster, metadata["namespace"], prebuilt_workload_of(job)
        )
        try:
            dispatch = read(await self._bus.latest(Stream.DISPATCHES, subject), Dispatch)
        except BusError as error:
            raise LaterError(f"cannot ask for the order: {error}") from error
        chosen = dispatch if dispatch is not None and dispatch.state == "chosen" else None
        if chosen is None or f"{chosen.cluster}/{chosen.number}" != order:
            probes.START_NOT_ORDERED.fired += 1
            return False
        lease = lease_seconds_of(job)
        if lease is not None and self._lease_seconds_left(lease) <= 0:
            # After an outage of the bus the order may arrive before a heartbeat renews the lease. If
            # the copy is not stopped meanwhile, no other message starts it: so try again.
            raise LaterError("its lease has run out", delay_seconds=LEASE_EXPIRED_SECONDS)
        return True

    def _kind(self, job: dict[str, Any]) -> Kind:
        group = str(job.get("apiVersion", "")).rpartition("/")[0]
        integration = self._integrations.find(group=group, kind=job.get("kind"))
        if integration is None:
            raise _NoIntegrationError(
                f"{job.get('kind')} cannot wait on this cluster: no Integration here is for it"
            )
        return integration.kind

    # --- creating ----------------------------------------------------------------------------------

    async def _create(self, kind: Kind, obj: Any, dispatch: Dispatch) -> None:
        try:
            await self._kube.create(kind, obj)
        except AlreadyExistsError:
            await self._check_existing(kind, obj, dispatch)
        except NotFoundError as error:
            await self._report(dispatch, "refused", str(error))
        except RefusedError as error:
            if is_transient_refusal(error):
                raise LaterError(str(error)) from error
            await self._report(dispatch, "refused", str(error))

    async def _check_existing(self, kind: Kind, obj: Body, dispatch: Dispatch) -> None:
        """Keep this copy, remove an earlier copy, or report that another object has the name."""
        wanted = obj["metadata"]
        found = await get_or_none(self._kube, kind, dispatch.namespace, wanted["name"])
        if found is None:
            raise LaterError("it was deleted meanwhile", delay_seconds=CHANGED_SECONDS)
        metadata = found["metadata"]
        if not _is_copy_of_hub(metadata, wanted):
            text = f"{kind.kind} {dispatch.namespace}/{wanted['name']} is there already"
            await self._report(dispatch, "taken", text)
            return
        same_workload = _workload_name(metadata) == _workload_name(wanted)
        if same_workload and _order(metadata) == _order(wanted):
            return
        probes.EARLIER_COPY.fired += 1
        if same_workload and await self._remove_step(kind, found):
            raise LaterError("an earlier copy was in its place", delay_seconds=CHANGED_SECONDS)
        raise LaterError("an earlier copy is not gone yet", delay_seconds=ENDING_SECONDS)

    # --- removing ----------------------------------------------------------------------------------

    async def _withdraw(self, dispatch: Dispatch) -> None:
        job = dispatch.job
        if job is not None:
            await self._remove(self._kind(job), job["metadata"], dispatch)
        if self._own_kueue:
            # The Workload has an owner only after the job was created, so it is removed on its own.
            metadata: Any = {**((job or {}).get("metadata") or {}), "name": dispatch.name}
            await self._remove(WORKLOAD, metadata, dispatch)
        if not await self._end_is_reported(dispatch):
            await self._report(dispatch, "gone", "")

    async def _remove(self, kind: Kind, wanted: Metadata, dispatch: Dispatch) -> None:
        """Remove the copy with this metadata; return when it is gone. Raises `LaterError` before."""
        for _ in range(ATTEMPTS_MAX):
            found = await get_or_none(self._kube, kind, dispatch.namespace, wanted["name"])
            if found is None:
                return
            metadata = found["metadata"]
            if not _is_copy_of_hub(metadata, wanted):
                return  # Another object of that name.
            if kind != WORKLOAD and _workload_name(metadata) != _workload_name(wanted):
                return  # The copy of another workload of the hub, with an order of its own.
            if _order_number(metadata) > dispatch.number:
                return  # Created by a later order, which this patcher gets next.
            if metadata["uid"] in self._deleted_again and _only_our_finalizer_left(metadata):
                await self._report_end(kind, found, dispatch)
            if await self._remove_step(kind, found):
                await self._release_workload(dispatch, metadata["uid"])
            await asyncio.sleep(0)
        raise LaterError(f"{kind.kind} {wanted['name']} ends", delay_seconds=ENDING_SECONDS)

    async def _report_end(self, kind: Kind, found: Body, dispatch: Dispatch) -> None:
        """Report a copy that succeeded after its order was withdrawn: it must not run again.

        This is the last moment: the status is lost once the copy is gone.
        """
        integration = self._integrations.find(group=kind.group, plural=kind.plural)
        finish = None if integration is None else integration.finish(found)
        if finish is not None and finish.success:
            await self._report(dispatch, "gone", "", ended=found["status"])

    async def _end_is_reported(self, dispatch: Dispatch) -> bool:
        """True if the log has the end of this copy. An earlier process may have reported it."""
        subject = subjects.join("copy", self._cluster, dispatch.namespace, dispatch.name)
        try:
            last = read(await self._bus.latest(Stream.DISPATCHES, subject, current=True), CopyState)
        except BusError as error:
            raise LaterError(f"cannot ask what was reported: {error}") from error
        return last is not None and last.number == dispatch.number and last.ended is not None

    async def _remove_step(self, kind: Kind, found: Body) -> bool:
        """Delete the copy, or remove our finalizer once what it owns is gone.

        Returns True if something else must happen before the next step.
        """
        metadata = found["metadata"]
        uid, name, namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        try:
            if uid not in self._deleted:
                await self._delete(kind, found)
                return True
            if _only_our_finalizer_left(metadata):
                if uid not in self._deleted_again:
                    # What it owns is gone, or a user's deletion in the background took that finalizer away.
                    await self._delete(kind, found)
                    self._deleted_again.add(uid)
                    return True
                remaining = [one for one in metadata["finalizers"] if one != COPY_FINALIZER]
                patch = if_unchanged(
                    found, {"op": "replace", "path": "/metadata/finalizers", "value": remaining}
                )
                await self._kube.patch(kind, namespace, name, patch)
                self._forget(uid)
                return False
        except NotFoundError:
            self._forget(uid)
            return False
        return True

    def _forget(self, uid: str) -> None:
        self._deleted.discard(uid)
        self._deleted_again.discard(uid)

    async def _delete(self, kind: Kind, found: Body) -> None:
        """Delete the copy with foreground propagation, so that what it owns goes first.

        Each process does it once, also for a copy that is being deleted already: a user may have
        deleted it with background propagation, and then our finalizer keeps what it owns alive.
        """
        metadata = found["metadata"]
        uid, name, namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        await self._kube.delete(kind, namespace, name, uid=uid, dependants_first=True)
        self._deleted.add(uid)

    async def _release_workload(self, dispatch: Dispatch, owner_uid: str) -> None:
        """Delete the Workload that a deleted copy owns: otherwise each waits for the other."""
        where = (WORKLOAD, dispatch.namespace, dispatch.name)
        with suppress(NotFoundError):
            workload: Body = await self._kube.get(*where)
            metadata = workload["metadata"]
            owners = metadata.get("ownerReferences") or []
            if all(owner.get("uid") != owner_uid for owner in owners):
                return
            if not metadata.get("deletionTimestamp"):
                await self._kube.delete(*where, uid=metadata["uid"])
            patch = remove_finalizer(workload, RESOURCE_IN_USE)
            if patch is not None:
                await self._kube.patch(*where, patch)

    # --- the rest ----------------------------------------------------------------------------------

    async def stop(self, kind: Kind, found: Body) -> None:
        """Delete a copy whose lease has expired. Our finalizer keeps it until its order is withdrawn."""
        if found["metadata"]["uid"] in self._deleted:
            return
        probes.COPY_STOPPED.fired += 1
        log.warning("a copy is stopped: its lease ran out", name=found["metadata"]["name"])
        with suppress(NotFoundError):
            await self._delete(kind, found)

    async def _change_spec(self, dispatch: Dispatch, changes: dict[str, Any]) -> None:
        """Change the copy's spec as its user changed the spec of the hub's job, to stop or cancel it."""
        target = dispatch.target
        if target is None:
            return
        integration = self._integrations.find(group=target.group, plural=target.plural)
        if integration is None:
            return
        try:
            found: Body = await self._kube.get(integration.kind, dispatch.namespace, target.name)
            if not is_copy_of_order(integration.kind, found, dispatch):
                self._refuse_change(dispatch, OrderRule.NOT_ITS_COPY, name=target.name)
                return
            allowed = integration.ending_changes(found, changes)
            if refused := sorted(changes.keys() - allowed.keys()):
                self._refuse_change(dispatch, OrderRule.NO_END, fields=", ".join(refused))
            spec = spec_of(found)
            changed = {name: value for name, value in allowed.items() if spec.get(name) != value}
            if not changed or integration.finish(found) is not None:
                return
            patch = [
                {"op": "test", "path": "/metadata/uid", "value": found["metadata"]["uid"]},
                *(
                    {"op": "add", "path": f"/spec/{name}", "value": value}
                    for name, value in changed.items()
                ),
            ]
            await self._kube.patch(integration.kind, dispatch.namespace, target.name, patch)
        except NotFoundError:
            return
        except RefusedError as error:
            log.warning("the cluster refuses a spec change", name=target.name, error=str(error))

    def _refuse_change(self, dispatch: Dispatch, rule: OrderRule, **values: str) -> None:
        rule.count()
        text = rule.says(**values)
        log.warning("a spec change is refused", workload=dispatch.ref.path, error=text)

    async def refuse(self, dispatch: Dispatch, why: str) -> None:
        """Tell the hub that the order is not carried out. Raises `LaterError`."""
        await self._report(dispatch, "refused", why)

    async def _report(
        self,
        dispatch: Dispatch,
        state: Literal["gone", "taken", "refused"],
        message: str,
        *,
        ended: dict[str, Any] | None = None,
    ) -> None:
        """Publish the state of the copy. `ended`: its status, if it succeeded. Raises `LaterError`."""
        log.info(
            "reporting the state of a copy", workload=dispatch.name, state=state, message=message
        )
        try:
            await self._bus.publish(
                CopyState(
                    spoke=self._cluster,
                    cluster=dispatch.cluster,
                    namespace=dispatch.namespace,
                    name=dispatch.name,
                    uid=dispatch.uid,
                    number=dispatch.number,
                    state=state,
                    ended=ended,
                    message=message,
                    at=self._now(),
                    traceparent=dispatch.traceparent,
                )
            )
        except BusError as error:
            raise LaterError(f"cannot report: {error}") from error


class _NoIntegrationError(Exception):
    """No Integration of this cluster has the kind of the job."""


def _is_copy_of_hub(metadata: Metadata, wanted: Metadata) -> bool:
    """True if both have the same origin label and an order, and the orders name the same hub.

    A copy without an order is a stock Kueue hub's: whatever its origin, it is not ours to touch.
    """
    origin = (wanted.get("labels") or {}).get(ORIGIN)
    if origin is None or (metadata.get("labels") or {}).get(ORIGIN) != origin:
        return False
    hub, wanted_hub = _order(metadata).rpartition("/")[0], _order(wanted).rpartition("/")[0]
    return bool(hub) and hub == wanted_hub


def _only_our_finalizer_left(metadata: Metadata) -> bool:
    """True if what the copy owns is gone, so that our finalizer may be removed."""
    finalizers = metadata.get("finalizers") or []
    return COPY_FINALIZER in finalizers and FOREGROUND_DELETION not in finalizers


def _workload_name(metadata: Metadata) -> str | None:
    return prebuilt_workload_of({"metadata": metadata})


def _order(metadata: Metadata) -> str:
    """`<hub>/<number>` of the order that created the copy; empty for a stock hub's copy."""
    return (metadata.get("annotations") or {}).get(ORDER, "")


def _order_number(metadata: Metadata) -> int:
    return whole_number(_order(metadata).rpartition("/")[2]) or 0
