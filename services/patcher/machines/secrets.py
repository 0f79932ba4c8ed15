"""Creates the secret that tells a TaskRun where its machine is.

The TaskRun gets the labels, annotations and finalizer of the multi-platform controller, because
dashboards and tools read them. Events say what the TaskRun waits for, and why.

The patcher may not read Secrets, so it cannot look at one before it deletes it. It writes the uid of each
Secret that it makes into the TaskRun, and deletes that uid only.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

import orjson
import structlog

from services.patcher.cluster.errors import retry_later
from services.patcher.cluster.events import EventRecorder, EventType
from services.patcher.cluster.refusals import HostRule, refused
from services.patcher.cluster.writer import get_or_none
from services.patcher.machines.seal_key import SealKeyStore
from shared.bus.port import NeverError
from shared.contracts.kube.bodies import Body, annotations_of, status_of
from shared.contracts.kube.kinds import POD, SECRET, TASK_RUN
from shared.contracts.kube.names import HOST_SECRET, MACHINE_READY
from shared.contracts.messages.hosts import ALLOCATED, HostState
from shared.contracts.multi_platform import (
    ERROR_KEY,
    FAILED_HOSTS_ANNOTATION,
    FINALIZER,
    LABEL_PREFIX,
    SECRET_KEYS,
    mounts_secret,
    secret_name,
)
from shared.contracts.seal import SealError, host_context
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    KubeError,
    NotFoundError,
    RefusedError,
)

log = structlog.get_logger(__name__)

NOT_OPENED: Final = "the key of the machine was sealed to a patcher that is no more; start again"

_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

_EVENTS: Final[dict[str, tuple[str, EventType]]] = {
    "waiting": ("Pending", "Warning"),
    "launching": ("HostAllocating", "Normal"),
    "ready": ("HostAssigned", "Normal"),
    "failed": ("HostAllocationFailed", "Warning"),
    "released": ("HostReleased", "Normal"),
}
"""State of the host to reason and type of the event. `Pending` is the multi-platform controller's."""


def _secret_object(host: HostState, content: dict[str, str]) -> Body:
    """The secret that the build task mounts, with `content` as its data."""
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.kind,
        "metadata": {
            "name": secret_name(host.name),
            "namespace": host.namespace,
            "labels": {f"{LABEL_PREFIX}multi-platform-secret": "true"},
            "ownerReferences": [
                {
                    "apiVersion": TASK_RUN.api_version,
                    "kind": TASK_RUN.kind,
                    "name": host.name,
                    "uid": host.uid,
                }
            ],
        },
        "stringData": content,
        "type": "Opaque",
    }


def task_run_patch(task_run: Body, host: HostState) -> dict[str, Any] | None:
    """A merge patch with labels, annotations and finalizer for the host's state; None if they match."""
    metadata = task_run["metadata"]
    patch: dict[str, Any] = {}
    for part, wanted, present in (
        ("labels", _labels(host), metadata.get("labels") or {}),
        ("annotations", _annotations(host), metadata.get("annotations") or {}),
    ):
        changed = {key: value for key, value in wanted.items() if present.get(key) != value}
        if changed:
            patch[part] = changed
    finalizers = list(metadata.get("finalizers") or [])
    held = host.state in ALLOCATED
    if held and FINALIZER not in finalizers and not metadata.get("deletionTimestamp"):
        patch["finalizers"] = [*finalizers, FINALIZER]
    elif not held and host.state != "waiting" and FINALIZER in finalizers:
        patch["finalizers"] = [name for name in finalizers if name != FINALIZER]
    if not patch:
        return None
    # A merge patch replaces the list of finalizers, so it applies only to the version that was read.
    patch |= {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return {"metadata": patch}


def _labels(host: HostState) -> dict[str, str | None]:
    has_host = host.state == "ready" or (host.state == "launching" and bool(host.address))
    platform = host.platform.replace("/", "-")
    wanted = {
        "assigned-host": host.host if has_host else None,
        "waiting-for-platform": platform if host.state == "waiting" else None,
        "cloud-dynamic-platform": platform if _uses_machine(host) else None,
        # Stays after the end: user interfaces distinguish the builds of one run by it.
        "target-platform": platform,
    }
    return {
        LABEL_PREFIX + key: value if value is None or _LABEL_VALUE.fullmatch(value) else None
        for key, value in wanted.items()
    }


def _annotations(host: HostState) -> dict[str, str | None]:
    machine, ordered_at = _uses_machine(host), host.ordered_at
    wanted: dict[str, str | None] = {
        "cloud-instance-id": host.host if machine else None,
        "cloud-address": (host.address or None) if machine else None,
        "allocation-start-time": (
            str(int(ordered_at.timestamp())) if machine and ordered_at is not None else None
        ),
    }
    annotations = {LABEL_PREFIX + key: value for key, value in wanted.items()}
    if host.failed_hosts:
        annotations[FAILED_HOSTS_ANNOTATION] = ",".join(host.failed_hosts)
    return annotations


def _uses_machine(host: HostState) -> bool:
    """True while the host is a machine of a provider, not a static host."""
    return host.state in ALLOCATED and bool(host.provider)


def _is_build(task_run: Body, host: HostState) -> bool:
    """Whether the TaskRun waits for this host, or has our finalizer on it and is to be rid of it."""
    finalizers = task_run["metadata"].get("finalizers") or []
    is_left = host.state == "released" and FINALIZER in finalizers
    return is_left or mounts_secret(task_run, host.name)


def _refused(host: HostState, rule: HostRule, **values: str) -> NeverError:
    return refused(rule, of=f"{host.namespace}/{host.name}", **values)


def _strings(box: bytes) -> dict[str, str] | None:
    """The map of strings in JSON; None if it is something else."""
    try:
        found = orjson.loads(box)
    except ValueError:
        return None
    is_map = isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
    return found if is_map else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSecrets:
    """Writes what follows from the host states of one cluster."""

    kube: Kube
    events: EventRecorder
    seal_keys: SealKeyStore
    excluded: tuple[str, ...]
    """Patterns of namespaces in which nothing is made, changed or deleted."""

    made: dict[str, str] = field(default_factory=dict)
    """Uid of a TaskRun to that of its Secret, until the TaskRun names it."""

    async def apply(self, host: HostState) -> None:
        """Create the secret, or delete it with the release of the host. Can be repeated.

        Raises `LaterError`; `NeverError` for what no build waits for.
        """
        if any(fnmatchcase(host.namespace, pattern) for pattern in self.excluded):
            raise _refused(host, HostRule.EXCLUDED)
        content = self._content(host) if host.secret is not None else {}
        if unknown := sorted(content.keys() - SECRET_KEYS):
            raise _refused(host, HostRule.SECRET, keys=", ".join(unknown))
        with retry_later():
            task_run = await get_or_none(self.kube, TASK_RUN, host.namespace, host.name)
            if task_run is not None and task_run["metadata"]["uid"] != host.uid:
                return  # Another TaskRun of that name, with a secret of its own.
            if task_run is not None and not _is_build(task_run, host):
                secret = secret_name(host.name)
                raise _refused(host, HostRule.NO_BUILD, secret=secret)
            if task_run is None:
                self.made.pop(host.uid, None)
                return  # The garbage collector deletes its secret: one that is left is somebody else's.
            if host.state == "released":
                await self._delete(host, task_run)
            elif content:
                await self._create(host, content)
            await self._update_task_run(host, await self._with_record(host, task_run))

    async def _create(self, host: HostState, content: dict[str, str]) -> None:
        # It exists if an earlier attempt created it, or somebody else did; the patcher has no permission
        # to read it. The namespace may be gone, and the TaskRun with it.
        with suppress(AlreadyExistsError, NotFoundError):
            created = await self.kube.create(SECRET, _secret_object(host, content))
            self.made[host.uid] = created["metadata"]["uid"]

    async def _with_record(self, host: HostState, task_run: Body) -> Body:
        """The TaskRun with the uid of the Secret that was made for it.

        Between the two writes the patcher may end: then the Secret stays until the TaskRun is deleted.
        """
        uid = self.made.get(host.uid)
        if host.state == "released" or uid is None:
            return task_run
        patch = {"metadata": {"uid": host.uid, "annotations": {HOST_SECRET: uid}}}
        with suppress(NotFoundError, RefusedError):
            task_run = await self.kube.patch(TASK_RUN, host.namespace, host.name, patch)
        self.made.pop(host.uid, None)
        return task_run

    def _content(self, host: HostState) -> dict[str, str]:
        content = host.secret or {}
        if host.sealed is None:
            return content
        context = host_context(
            cluster=host.cluster, namespace=host.namespace, name=host.name, uid=host.uid
        )
        try:
            box = self.seal_keys.open(host.sealed, context=context)
        except SealError:
            return {ERROR_KEY: NOT_OPENED}
        if (opened := _strings(box)) is None:
            raise _refused(host, HostRule.SEALED)
        return content | opened

    async def _update_task_run(self, host: HostState, task_run: Body) -> None:
        try:
            patch = task_run_patch(task_run, host)
            if patch is not None:
                await self.kube.patch(TASK_RUN, host.namespace, host.name, patch)
        except NotFoundError:
            return
        except RefusedError as error:
            # The build needs only the secret: a refused label must not block it.
            log.warning("cannot mark a TaskRun", name=host.name, error=str(error))
            return
        reason, type_ = _EVENTS[host.state]
        message = host.message or (f"host {host.host}" if host.host else host.platform)
        self.events.record(TASK_RUN, task_run, reason, message, type_=type_)
        if host.secret is not None:
            await self._annotate_pod(task_run)

    async def _annotate_pod(self, task_run: Body) -> None:
        """Make the kubelet mount the secret now instead of at its next sync."""
        pod = status_of(task_run).get("podName")
        if not pod:
            return
        patch = {"metadata": {"annotations": {MACHINE_READY: "true"}}}
        try:
            await self.kube.patch(POD, task_run["metadata"]["namespace"], pod, patch)
        except KubeError as error:
            log.debug("pod not annotated; the kubelet syncs by itself", error=str(error))

    async def _delete(self, host: HostState, task_run: Body) -> None:
        uid = annotations_of(task_run).get(HOST_SECRET) or self.made.pop(host.uid, None)
        if uid is None:
            return  # No Secret of ours is known: one of that name goes with its owner.
        with suppress(NotFoundError, ConflictError):  # It is gone, or another Secret has its name.
            await self.kube.delete(SECRET, host.namespace, secret_name(host.name), uid=uid)
