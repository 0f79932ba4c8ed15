"""Which TaskRuns want a machine, and whether they still do (`research/tekton.md` 2.1, 2.8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from services.provisioner.task_runs.ssh_secret import VOLUME_PREFIX
from shared.contracts.kube.kinds import PIPELINE_RUN, Object
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION, workload_name

__all__ = ["Request", "has_ended", "is_marked", "to_request"]

TASK_TYPE: Final = "build.appstudio.redhat.com/task-type"
"""Label of the helpers' own TaskRuns: they never ask for a machine."""

FAILED_HOSTS: Final = "build.appstudio.redhat.com/failed-hosts"
"""Annotation: hosts, separated by commas, that this TaskRun must not be given again."""

PLATFORM: Final = "PLATFORM"

FINALIZER: Final = "appstudio.io/multi-platform-finalizer"
"""On a TaskRun that has, or may have, a host; the patcher sets and removes it."""

_EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One TaskRun whose pod waits for the secret that says where to build, or a place kept for one."""

    uid: str
    namespace: str
    name: str
    platform: str
    """As the user wrote it: not checked yet."""

    created_at: datetime
    failed_hosts: tuple[str, ...] = ()
    traceparent: str | None = None
    workload: str = ""
    """Workload of the run that it is a part of; empty: it was created alone."""

    reserved: bool = False
    """There is no TaskRun yet: a place is kept until it comes."""

    keeps_only: bool = False
    """It keeps what it has; nothing new is given."""

    @property
    def turn(self) -> tuple[datetime, str, str]:
        """Sorts waiters: the oldest first, names break ties."""
        return (self.created_at, self.namespace, self.name)


def to_request(task_run: Object) -> Request | None:
    """What `task_run` asks for; None if it is no multi-platform build.

    The volume counts as Tekton resolved it (`status.taskSpec`): only then does a pod wait for the
    secret. A parameter named PLATFORM alone says nothing.
    """
    metadata = task_run.get("metadata") or {}
    if TASK_TYPE in (metadata.get("labels") or {}) or not _waits_for_secret(task_run):
        return None
    params = (task_run.get("spec") or {}).get("params") or []
    platform = next((param.get("value") for param in params if param.get("name") == PLATFORM), None)
    if platform is None:
        return None
    annotations = metadata.get("annotations") or {}
    failed = str(annotations.get(FAILED_HOSTS) or "").split(",")
    return Request(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        platform=platform if isinstance(platform, str) else "",
        created_at=_created_at(metadata),
        failed_hosts=tuple(sorted({host.strip() for host in failed} - {""})),
        traceparent=annotations.get(TRACEPARENT_ANNOTATION),
        workload=_workload(metadata),
    )


def has_ended(task_run: Object) -> bool:
    """Whether it needs its machine no more: it is done, or somebody deletes it."""
    if (task_run.get("metadata") or {}).get("deletionTimestamp"):
        return True
    conditions = (task_run.get("status") or {}).get("conditions") or []
    return any(
        c.get("type") == "Succeeded" and c.get("status") in {"True", "False"} for c in conditions
    )


def is_marked(task_run: Object) -> bool:
    """Whether it cannot be deleted before it is told that its host was given back."""
    return FINALIZER in ((task_run.get("metadata") or {}).get("finalizers") or [])


def _waits_for_secret(task_run: Object) -> bool:
    spec = (task_run.get("status") or {}).get("taskSpec") or {}
    volumes: list[Mapping[str, Any]] = spec.get("volumes") or []
    return any(
        str((volume.get("secret") or {}).get("secretName") or "").startswith(VOLUME_PREFIX)
        for volume in volumes
    )


def _workload(metadata: Mapping[str, Any]) -> str:
    """The Workload of the PipelineRun that owns it."""
    for owner in metadata.get("ownerReferences") or []:
        group = str(owner.get("apiVersion") or "").rpartition("/")[0]
        if (group, owner.get("kind")) == (PIPELINE_RUN.group, PIPELINE_RUN.kind):
            name, uid = str(owner.get("name") or ""), str(owner.get("uid") or "")
            return workload_name(kind=PIPELINE_RUN.kind, group=group, name=name, uid=uid)
    return ""


def _created_at(metadata: Mapping[str, Any]) -> datetime:
    value = metadata.get("creationTimestamp")
    return datetime.fromisoformat(value) if isinstance(value, str) else _EPOCH
