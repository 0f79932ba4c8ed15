"""Makes and removes the copies of jobs that a hub sends to this cluster.

A copy is started by no order but `chosen`, asked for on the log at that moment; it is removed only when
it was withdrawn, and said to be gone only when its pods are (ADR 40).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal, Protocol

import structlog

from services.patcher.cluster.writer import may_pass
from services.patcher.multikueue.priority import Ranks
from services.patcher.workloads.manifest import finalizer_patch
from shared.bus.port import Bus, BusError, LaterError
from shared.contracts import subjects
from shared.contracts.kube.kinds import WORKLOAD, Kind, Object
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import Dispatch
from shared.contracts.messages.spokes import (
    COPY_FINALIZER,
    LEASE,
    ORDER,
    ORIGIN,
    PREBUILT_WORKLOAD,
    CopyState,
)
from shared.integrations import Integrations
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["ORIGIN", "Spokes"]

log = structlog.get_logger(__name__)

FOREGROUND: Final = "foregroundDeletion"
"""Kubernetes' own finalizer: what the object owns is not gone yet."""

LOOKS_MAX: Final = 3
"""How often a copy is looked at before the message is given back: often it goes at once."""

ENDING_SECONDS: Final = 0.5

RENEWING_SECONDS: Final = 1.0
"""Until a chosen copy is asked about again whose lease ran out: it is renewed, or the copy stopped."""


class Renewed(Protocol):
    """Whether leases are alive."""

    def seconds_left(self, lease_seconds: float) -> float:
        """Until copies with such a lease have to be stopped."""


class Spokes:
    """Carries out dispatches on the cluster of this patcher."""

    def __init__(
        self,
        *,
        kube: Kube,
        bus: Bus,
        cluster: str,
        now: Callable[[], datetime],
        renewed: Renewed,
        integrations: Integrations,
        reading: Callable[[], str | None],
        own_kueue: bool = False,
    ) -> None:
        """`integrations`: of this cluster; `reading`: what has to be read before they are known."""
        self._kube = kube
        self._bus = bus
        self._cluster = cluster
        self._now = now
        self._renewed = renewed
        self._integrations = integrations
        self._reading = reading
        self._own_kueue = own_kueue
        self._ranks = Ranks(kube=kube, bus=bus, integrations=integrations)
        self._removing: dict[str, None] = {}
        """Uids whose deletion this process asked for with what they own first."""

    async def apply(self, dispatch: Dispatch) -> None:
        """Make, keep or remove the copy. May be repeated. Raises `LaterError` while it goes on."""
        job = dispatch.job
        if dispatch.spoke != self._cluster:
            return  # Another cluster's order under our subject: nobody of ours wrote that.
        try:
            if dispatch.state == "withdrawn":
                await self._withdraw(dispatch)
            elif dispatch.workload is not None:
                await self._make(WORKLOAD, dispatch.workload, dispatch)
                if dispatch.state == "chosen" and job is not None:
                    await self._make(self._kind(job), job, dispatch)
            elif dispatch.state == "offered" and job is not None:
                await self._make(self._kind(job), job, dispatch)
            if dispatch.state == "chosen" and dispatch.wish:
                await self._grant(dispatch, dispatch.wish)
            if dispatch.state != "withdrawn" and dispatch.reranked:
                await self._ranks.follow(dispatch)
        except _NoIntegrationError as error:
            if (reading := self._reading()) is not None:
                raise LaterError(reading) from error
            await self._report(dispatch, "refused", str(error))
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error

    async def may_start(self, job: Object) -> bool:
        """Whether a job that has quota may run: a copy only while the hub wants it to run here.

        Asked of the log itself, not of what was read some time ago. Raises `LaterError`.
        """
        metadata = job["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        order = annotations.get(ORDER)
        if ORIGIN not in labels or order is None:
            return True  # No copy, or one of a hub that starts and stops it by itself.
        if metadata.get("deletionTimestamp"):
            return False  # It was stopped, or somebody deletes it: it stays only for its end.
        subject = subjects.join(
            "dispatch", self._cluster, metadata["namespace"], labels.get(PREBUILT_WORKLOAD)
        )
        try:
            entry = await self._bus.latest("DISPATCHES", subject)
            if entry is None:
                return False
            dispatch = entry.read(Dispatch)
        except BusError as error:
            raise LaterError(f"cannot ask for the order: {error}") from error
        except UndecodableError as error:
            log.warning("an order that cannot be read starts nothing", error=str(error))
            return False
        of = f"{dispatch.cluster}/{dispatch.number}"
        if dispatch.state != "chosen" or of != order:
            return False
        lease = annotations.get(LEASE)
        if lease is not None and self._renewed.seconds_left(float(lease)) <= 0:
            # An order may overtake the beats that waited for the same bus: if one of them renews the
            # lease before the copy is stopped, nothing else would start it.
            raise LaterError("its lease has run out", delay_seconds=RENEWING_SECONDS)
        return True

    def _kind(self, job: Object) -> Kind:
        group = str(job.get("apiVersion", "")).rpartition("/")[0]
        integration = self._integrations.find(group=group, kind=job.get("kind"))
        if integration is None:
            raise _NoIntegrationError(f"{job.get('kind')} is nothing that can wait here")
        return integration.kind

    # --- making ---

    async def _make(self, kind: Kind, obj: Object, dispatch: Dispatch) -> None:
        try:
            await self._kube.create(kind, obj)
        except AlreadyExistsError:
            await self._meet(kind, obj, dispatch)
        except NotFoundError as error:
            await self._report(dispatch, "refused", str(error))
        except RefusedError as error:
            if may_pass(error):
                raise LaterError(str(error)) from error
            await self._report(dispatch, "refused", str(error))

    async def _meet(self, kind: Kind, obj: Object, dispatch: Dispatch) -> None:
        """Something of that name is there: this copy, an earlier one, or somebody else's."""
        wanted = obj["metadata"]
        try:
            found = await self._kube.get(kind, dispatch.namespace, wanted["name"])
        except NotFoundError as error:
            raise LaterError("it went while it was looked at", delay_seconds=0.1) from error
        metadata = found["metadata"]
        if not _is_copy(metadata, wanted):
            text = f"{kind.kind} {dispatch.namespace}/{wanted['name']} is there already"
            await self._report(dispatch, "taken", text)
            return
        if _label(metadata) == _label(wanted) and _order(metadata) == _order(wanted):
            return
        if _label(metadata) == _label(wanted) and await self._remove(kind, found):
            raise LaterError("an earlier copy was in its place", delay_seconds=0.1)
        raise LaterError("an earlier copy is not gone yet", delay_seconds=ENDING_SECONDS)

    # --- removing ---

    async def _withdraw(self, dispatch: Dispatch) -> None:
        job = dispatch.job
        if job is not None:
            await self._until_gone(self._kind(job), job, dispatch)
        if self._own_kueue:
            # It has an owner only once there was a job.
            metadata = (job or {}).get("metadata") or {}
            named = {"metadata": {**metadata, "name": dispatch.name}}
            await self._until_gone(WORKLOAD, named, dispatch)
        if not await self._said_how_it_ended(dispatch):
            await self._report(dispatch, "gone", "")

    async def _until_gone(self, kind: Kind, obj: Object, dispatch: Dispatch) -> None:
        wanted = obj["metadata"]
        for _ in range(LOOKS_MAX):
            try:
                found = await self._kube.get(kind, dispatch.namespace, wanted["name"])
            except NotFoundError:
                return
            if not _is_copy(found["metadata"], wanted):
                return  # Somebody else's of that name.
            if kind != WORKLOAD and _label(found["metadata"]) != _label(wanted):
                return  # The copy of another workload of that hub: it has an order of its own.
            if _number(found["metadata"]) > dispatch.number:
                return  # Made by a later order, which is on its way to us.
            if _as_good_as_gone(found["metadata"]):
                await self._say_how_it_ended(kind, found, dispatch)
            if await self._remove(kind, found):
                await self._let_workload_go(dispatch, found["metadata"]["uid"])
            await asyncio.sleep(0)
        raise LaterError(f"{kind.kind} {wanted['name']} ends", delay_seconds=ENDING_SECONDS)

    async def _say_how_it_ended(self, kind: Kind, found: Object, dispatch: Dispatch) -> None:
        """What came to its end after it was withdrawn is not run again: afterwards nobody could tell."""
        integration = self._integrations.find(group=kind.group, plural=kind.plural)
        finish = None if integration is None else integration.finish(found)
        if finish is not None and finish.success:
            await self._report(dispatch, "gone", "", ended=found["status"])

    async def _said_how_it_ended(self, dispatch: Dispatch) -> bool:
        """Asked of the log: we may have died since."""
        subject = subjects.join("copy", self._cluster, dispatch.namespace, dispatch.name)
        try:
            entry = await self._bus.latest("DISPATCHES", subject)
            said = None if entry is None else entry.read(CopyState)
        except BusError as error:
            raise LaterError(f"cannot ask what was reported: {error}") from error
        except UndecodableError:
            return False
        return said is not None and said.number == dispatch.number and said.ended is not None

    async def _remove(self, kind: Kind, found: Object) -> bool:
        """One step towards its end; whether somebody else has to do something before the next."""
        metadata = found["metadata"]
        uid, name, namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        try:
            if uid not in self._removing:
                await self._delete(kind, found)
                return True
            finalizers: list[str] = metadata.get("finalizers") or []
            if _is_next(finalizers):
                left = [one for one in finalizers if one != COPY_FINALIZER]
                version = metadata["resourceVersion"]
                patch = [
                    {"op": "test", "path": "/metadata/uid", "value": uid},
                    {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                    {"op": "replace", "path": "/metadata/finalizers", "value": left},
                ]
                await self._kube.patch(kind, namespace, name, patch)
                self._removing.pop(uid, None)
                return False
        except NotFoundError:
            self._removing.pop(uid, None)
            return False
        return True

    async def _delete(self, kind: Kind, found: Object) -> None:
        """Ask for its end, and for what it owns to go first.

        Once by each process, also where it is being deleted: by somebody who did not ask for that, and
        then what it owns stays as long as our finalizer keeps it.
        """
        metadata = found["metadata"]
        uid, name, namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        await self._kube.delete(kind, namespace, name, uid=uid, dependants_first=True)
        self._removing[uid] = None

    async def _let_workload_go(self, dispatch: Dispatch, uid: str) -> None:
        """The copy waits for what it owns, and its Workload for us; or it was made only now."""
        try:
            workload = await self._kube.get(WORKLOAD, dispatch.namespace, dispatch.name)
            metadata = workload["metadata"]
            if all(owner.get("uid") != uid for owner in metadata.get("ownerReferences") or []):
                return
            if not metadata.get("deletionTimestamp"):
                await self._kube.delete(
                    WORKLOAD, dispatch.namespace, dispatch.name, uid=metadata["uid"]
                )
            patch = finalizer_patch(workload)
            if patch is not None:
                await self._kube.patch(WORKLOAD, dispatch.namespace, dispatch.name, patch)
        except NotFoundError:
            return

    # --- the rest ---

    async def stop(self, kind: Kind, found: Object) -> None:
        """Delete a copy that may not run any more; its finalizer keeps it until it is withdrawn."""
        if found["metadata"]["uid"] in self._removing:
            return
        log.warning("a copy is stopped: its lease ran out", name=found["metadata"]["name"])
        with suppress(NotFoundError):
            await self._delete(kind, found)

    async def _grant(self, dispatch: Dispatch, wish: Object) -> None:
        """Change the copy's spec as its user changed the original's."""
        target = dispatch.target
        if target is None:
            return
        group = target.api_version.rpartition("/")[0]
        integration = self._integrations.find(group=group, plural=target.plural)
        if integration is None:
            return
        try:
            found = await self._kube.get(integration.kind, dispatch.namespace, target.name)
            spec = found.get("spec") or {}
            changed = {name: value for name, value in wish.items() if spec.get(name) != value}
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
            log.warning("the cluster does not take a wish", name=target.name, error=str(error))

    async def _report(
        self,
        dispatch: Dispatch,
        state: Literal["gone", "taken", "refused"],
        message: str,
        *,
        ended: Object | None = None,
    ) -> None:
        log.info("copy", workload=dispatch.name, state=state, message=message)
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
    """A kind of which nobody in this cluster knows how it waits."""


def _is_copy(metadata: Object, wanted: Object) -> bool:
    """Whether it is a copy of the same hub: by its origin, and by the hub that its order names."""
    labels, ours = metadata.get("labels") or {}, wanted.get("labels") or {}
    origin = ours.get(ORIGIN)
    if origin is None or labels.get(ORIGIN) != origin:
        return False
    hub, here = _order(metadata).rpartition("/")[0], _order(wanted).rpartition("/")[0]
    return not hub or not here or hub == here


def _as_good_as_gone(metadata: Object) -> bool:
    """Whether it is as good as gone: what it owned is, and our finalizer comes off next."""
    finalizers = metadata.get("finalizers") or []
    return bool(metadata.get("deletionTimestamp")) and _is_next(finalizers)


def _is_next(finalizers: list[str]) -> bool:
    """Whether our finalizer may come off; those of others come off when they like."""
    return COPY_FINALIZER in finalizers and FOREGROUND not in finalizers


def _label(metadata: Object) -> str | None:
    return (metadata.get("labels") or {}).get(PREBUILT_WORKLOAD)


def _order(metadata: Object) -> str:
    return str((metadata.get("annotations") or {}).get(ORDER, ""))


def _number(metadata: Object) -> int:
    number = _order(metadata).rpartition("/")[2]
    return int(number) if number.isascii() and number.isdigit() else 0
