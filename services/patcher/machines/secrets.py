"""Gives a TaskRun what it waits for: the secret that says where its machine is.

The TaskRun itself carries the labels, annotations and the finalizer that the reference sets and
people's dashboards read (`research/tekton.md` 2.3); events say what it waits for, and why.
"""

import json
import re
from typing import Any, Final

import structlog

from services.patcher.cluster.events import Events
from services.patcher.machines.seal_key import SealKeeper
from shared.bus.port import LaterError
from shared.contracts.kube.kinds import POD, SECRET, TASK_RUN, Object
from shared.contracts.messages.effects import HostState
from shared.contracts.multi_platform import FINALIZER, secret_name
from shared.contracts.seal import SealError, host_context
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    KubeError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["FINALIZER", "Machines", "marked", "secret_for"]

log = structlog.get_logger(__name__)

PREFIX: Final = "build.appstudio.redhat.com/"
NUDGE: Final = "sluicegate.dev/machine-ready"
"""Annotation on the pod: a change makes the kubelet look for the secret at once."""

NOT_OPENED: Final = "the key of the machine was sealed to a patcher that is no more; start again"

_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

_EVENTS: Final = {
    "waiting": ("Pending", "Warning"),
    "launching": ("HostAllocating", "Normal"),
    "ready": ("HostAssigned", "Normal"),
    "failed": ("HostAllocationFailed", "Warning"),
    "released": ("HostReleased", "Normal"),
}
"""State to reason and type; `Pending` is the reference's."""


def secret_for(host: HostState, more: dict[str, str] | None = None) -> Object:
    """The secret by which the build task finds its machine (`research/tekton.md` 2.2)."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": secret_name(host.name),
            "namespace": host.namespace,
            "labels": {f"{PREFIX}multi-platform-secret": "true"},
            "ownerReferences": [
                {
                    "apiVersion": TASK_RUN.api_version,
                    "kind": TASK_RUN.kind,
                    "name": host.name,
                    "uid": host.uid,
                }
            ],
        },
        "stringData": {**(host.secret or {}), **(more or {})},
        "type": "Opaque",
    }


def marked(task_run: Object, host: HostState) -> dict[str, Any] | None:
    """The merge patch that makes the TaskRun say how it stands with its host; None: it says so."""
    metadata = task_run["metadata"]
    patch: dict[str, Any] = {}
    for field, wanted in (("labels", _labels(host)), ("annotations", _annotations(host))):
        present = metadata.get(field) or {}
        changed = {key: value for key, value in wanted.items() if present.get(key) != value}
        if changed:
            patch[field] = changed
    finalizers = list(metadata.get("finalizers") or [])
    held = host.state in {"launching", "ready"}
    if held and FINALIZER not in finalizers and not metadata.get("deletionTimestamp"):
        patch["finalizers"] = [*finalizers, FINALIZER]
    elif not held and host.state != "waiting" and FINALIZER in finalizers:
        patch["finalizers"] = [name for name in finalizers if name != FINALIZER]
    if not patch:
        return None
    # As it was read: finalizers are a list, and a merge patch replaces it.
    patch |= {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return {"metadata": patch}


def _labels(host: HostState) -> dict[str, str | None]:
    assigned = host.host if host.state in {"launching", "ready"} and _seated(host) else None
    platform = host.platform.replace("/", "-")
    wanted = {
        "assigned-host": assigned,
        "waiting-for-platform": platform if host.state == "waiting" else None,
        "cloud-dynamic-platform": platform if _on_machine(host) else None,
        # It stays: user interfaces tell the builds of one run apart by it, also when they are over.
        "target-platform": platform,
    }
    return {
        PREFIX + key: value if value is None or _LABEL_VALUE.fullmatch(value) else None
        for key, value in wanted.items()
    }


def _annotations(host: HostState) -> dict[str, str | None]:
    machine, ordered_at = _on_machine(host), host.ordered_at
    wanted: dict[str, str | None] = {
        "cloud-instance-id": host.host if machine else None,
        "cloud-address": (host.address or None) if machine else None,
        "allocation-start-time": (
            str(int(ordered_at.timestamp())) if machine and ordered_at is not None else None
        ),
    }
    if host.failed_hosts:
        wanted["failed-hosts"] = ",".join(host.failed_hosts)
    return {PREFIX + key: value for key, value in wanted.items()}


def _on_machine(host: HostState) -> bool:
    return host.state in {"launching", "ready"} and bool(host.provider)


def _seated(host: HostState) -> bool:
    return host.state == "ready" or bool(host.address)


class Machines:
    """Carries out what the provisioner says about machines in one cluster."""

    def __init__(self, *, kube: Kube, events: Events, keeper: SealKeeper) -> None:
        self._kube = kube
        self._events = events
        self._keeper = keeper

    async def apply(self, host: HostState) -> None:
        """Create the secret, or delete it when the machine was given back. May be repeated."""
        try:
            if host.state == "released":
                await self._delete(host)
            elif host.secret is not None:
                await self._create(host)
            await self._mark(host)
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error

    async def _create(self, host: HostState) -> None:
        try:
            await self._kube.create(SECRET, self._secret(host))
        except AlreadyExistsError:
            # An earlier attempt of ours, or an error that was already told. It is not read: we may not.
            return
        except NotFoundError:
            return  # The namespace is gone, and the TaskRun with it.

    def _secret(self, host: HostState) -> Object:
        if host.sealed is None:
            return secret_for(host)
        context = host_context(
            cluster=host.cluster, namespace=host.namespace, name=host.name, uid=host.uid
        )
        try:
            more = json.loads(self._keeper.open(host.sealed, context=context))
        except SealError:
            return secret_for(host.model_copy(update={"secret": {"error": NOT_OPENED}}))
        return secret_for(host, more)

    async def _mark(self, host: HostState) -> None:
        try:
            task_run = await self._kube.get(TASK_RUN, host.namespace, host.name)
            if task_run["metadata"]["uid"] != host.uid:
                return  # Another one has the name now.
            patch = marked(task_run, host)
            if patch is not None:
                await self._kube.patch(TASK_RUN, host.namespace, host.name, patch)
        except NotFoundError:
            return  # It is gone, and what it had with it.
        except RefusedError as error:
            # The secret is what counts: a label that the cluster does not take must not hold it up.
            log.warning("TaskRun not marked", name=host.name, error=str(error))
            return
        reason, type_ = _EVENTS[host.state]
        said = host.message or (f"host {host.host}" if host.host else host.platform)
        self._events.say(
            TASK_RUN, task_run, reason, said, type_="Warning" if type_ == "Warning" else "Normal"
        )
        if host.secret is not None:
            await self._nudge(task_run)

    async def _nudge(self, task_run: Object) -> None:
        pod = (task_run.get("status") or {}).get("podName")
        if not pod:
            return
        try:
            await self._kube.patch(
                POD, task_run["metadata"]["namespace"], pod, {"metadata": {"annotations": {NUDGE: "true"}}}
            )  # fmt: skip
        except KubeError as error:
            log.debug("pod not nudged; the kubelet will look by itself", error=str(error))

    async def _delete(self, host: HostState) -> None:
        name = secret_name(host.name)
        try:
            await self._kube.delete(SECRET, host.namespace, name)
        except NotFoundError:
            return  # The garbage collector was faster.
