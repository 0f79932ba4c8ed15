"""From TaskRuns to requests for a host.

The rules which TaskRuns ask for one are those of konflux-ci/multi-platform-controller@c28c4a01.
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from shared.contracts.kube.bodies import (
    Body,
    Metadata,
    annotations_of,
    labels_of,
    spec_of,
)
from shared.contracts.kube.conditions import SUCCEEDED, find_condition, has_status
from shared.contracts.kube.kinds import PIPELINE_RUN
from shared.contracts.kube.moments import UNIX_EPOCH
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION
from shared.contracts.multi_platform import (
    FAILED_HOSTS_ANNOTATION,
    FINALIZER,
    PLATFORM_PARAMETER,
    TASK_TYPE_LABEL,
    mounts_secret,
)

_POD_FAILED: Final = frozenset({"Failed"})
"""Reasons of a TaskRun that failed because its pod did: tektoncd/pipeline@v1.0.0
pkg/apis/pipeline/v1/taskrun_types.go, `TaskRunReasonFailed`."""

PLATFORM_CHARS_MAX: Final = 128
"""One more than a platform's name may have: what is cut off here is none, as it was before."""

FAILED_HOSTS_MAX: Final = 64
HOST_CHARS_MAX: Final = 253
"""Of a host's name in the annotation. Longer ones name no host."""

_TRACEPARENT_CHARS: Final = 55


class TaskRunRef(NamedTuple):
    """A TaskRun of the provisioner's cluster."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """A TaskRun whose pod waits for its secret, or a slot that is reserved for a run."""

    uid: str
    namespace: str
    name: str
    platform: str
    """As the user wrote it, not validated, up to `PLATFORM_CHARS_MAX`."""

    created_at: datetime
    failed_hosts: tuple[str, ...] = ()
    """The first `FAILED_HOSTS_MAX` of the annotation."""

    traceparent: str | None = None
    run_uid: str = ""
    """Of the PipelineRun that the TaskRun names as its owner. Tenants write it: it proves nothing."""

    workload: str = ""
    """Workload of the admitted PipelineRun that the TaskRun belongs to. Empty if it belongs to none."""

    reserved: bool = False
    """True for a slot that is reserved for a run: there is no TaskRun yet."""

    existing_only: bool = False
    """True if the request keeps what it has, and gets nothing new."""

    @property
    def ref(self) -> TaskRunRef:
        """Namespace and name of the TaskRun."""
        return TaskRunRef(self.namespace, self.name)

    @property
    def run(self) -> str:
        """See `run_key`. Without meaning if it belongs to no run."""
        return run_key(self.namespace, self.workload)

    @property
    def queue_key(self) -> tuple[datetime, str, str]:
        """Sort key of waiting requests: the oldest first, names break ties."""
        return (self.created_at, self.namespace, self.name)


def run_key(namespace: str, workload: str) -> str:
    """The name of a run in records and counts: `<namespace>:<workload>`."""
    return f"{namespace}:{workload}"


def to_host_request(task_run: Body) -> HostRequest | None:
    """The request of `task_run`; None if it is no multi-platform build.

    It is one if it has a parameter PLATFORM, and if the task that Tekton resolved (`status.taskSpec`)
    mounts the secret: only then does a pod wait for it.
    """
    metadata = task_run["metadata"]
    if TASK_TYPE_LABEL in labels_of(task_run) or not mounts_secret(task_run):
        return None
    params = spec_of(task_run).get("params") or []
    platform = next(
        (param.get("value") for param in params if param.get("name") == PLATFORM_PARAMETER), None
    )
    if platform is None:
        return None
    trace = annotations_of(task_run).get(TRACEPARENT_ANNOTATION) or ""
    created = metadata.get("creationTimestamp")
    return HostRequest(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        platform=platform[:PLATFORM_CHARS_MAX] if isinstance(platform, str) else "",
        created_at=datetime.fromisoformat(created) if created else UNIX_EPOCH,
        failed_hosts=_failed_hosts(task_run),
        traceparent=trace if 0 < len(trace) <= _TRACEPARENT_CHARS else None,
        run_uid=_run_uid(metadata),
    )


def _failed_hosts(task_run: Body) -> tuple[str, ...]:
    text = annotations_of(task_run).get(FAILED_HOSTS_ANNOTATION) or ""
    names = (name.strip() for name in text.split(","))
    named = dict.fromkeys(name for name in names if 0 < len(name) <= HOST_CHARS_MAX)
    return tuple(sorted(islice(named, FAILED_HOSTS_MAX)))


def has_ended(task_run: Body) -> bool:
    """Whether the TaskRun is done or being deleted, so that it needs its host no more."""
    deleted = bool(task_run["metadata"].get("deletionTimestamp"))
    return deleted or has_status(task_run, SUCCEEDED, "True", "False")


def has_completed(task_run: Body) -> bool:
    """Whether the pod of the TaskRun has ended, too, by the word of Tekton.

    Tekton deletes the pod of one that is cancelled or timed out, and its user says how long it may end. The
    pod of one that is being deleted may run on.
    """
    if task_run["metadata"].get("deletionTimestamp"):
        return False
    condition = find_condition(task_run, SUCCEEDED)
    if condition is None or condition.get("status") not in {"True", "False"}:
        return False
    return condition.get("status") == "True" or condition.get("reason") in _POD_FAILED


def has_finalizer(task_run: Body) -> bool:
    """Whether the TaskRun can be deleted only after its host is released."""
    return FINALIZER in (task_run["metadata"].get("finalizers") or [])


def _run_uid(metadata: Metadata) -> str:
    """Uid of the PipelineRun that the TaskRun names as its owner; empty if it names none."""
    for owner in metadata.get("ownerReferences") or []:
        group = owner["apiVersion"].rpartition("/")[0]
        if (group, owner["kind"]) == (PIPELINE_RUN.group, PIPELINE_RUN.kind):
            return owner["uid"]
    return ""
