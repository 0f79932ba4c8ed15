"""Whose a job or a Workload object is, by what is written into it. Pure."""

from datetime import datetime

from services.classifier.projection.owners.groups import is_of_group
from services.classifier.projection.workload_status import has_quota
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, OwnerReference, annotations_of, labels_of
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.workloads import JobRef, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integration, Integrations, controller_uid, queue_of


def asks_to_wait(job: Body, integration: Integration) -> bool:
    """Return whether the job names a queue, or carries the mark of our hold.

    A kind that rules classify is held whatever its label says: an empty one waits for a queue.
    """
    if queue_of(job) or names.USER_PENDING in annotations_of(job):
        return True
    return integration.classify and names.QUEUE in labels_of(job)


def may_claim(job: Body, workload: Body, *, kind: str) -> bool:
    """Return whether a Workload of the name that a copy asks for is that copy's.

    It is if the copy controls it, or an earlier copy of its name. Nobody controls one that a hub with
    Kueue mirrored: that one has the copy's origin.
    """
    metadata = job["metadata"]
    for owner in workload["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            named = (owner.get("kind"), owner.get("name"))
            return owner.get("uid") == metadata["uid"] or named == (kind, metadata["name"])
    return labels_of(workload).get(ORIGIN) == labels_of(job).get(ORIGIN, "")


def was_of_a_job(last: WorkloadState | None, workload: Body) -> bool:
    """Return whether the Workload is that of the job of `last`, which may be gone.

    The name with the job's uid can be nobody else's, whatever its user writes into it. The name of a copy's
    Workload comes from its hub: the label counts.
    """
    if last is None or last.owner is None:
        return False
    owner = last.owner
    own = names.workload_name(kind=owner.kind, group=owner.group, name=owner.name, uid=owner.uid)
    return last.name == own or labels_of(workload).get(names.JOB_UID_LABEL) == owner.uid


def _is_orphan(workload: Body) -> bool:
    """Return whether the Workload was a job's that is gone: its label names one, and nothing controls it.

    Source: isOrphanedWorkload of kubernetes-sigs/kueue pkg/controller/core/workload_controller.go. An owner
    that is no controller is its user's. A Workload that a hub with Kueue mirrored waits for its job. One that
    has neither our finalizer nor quota is new: its user wrote the label.
    """
    labels = labels_of(workload)
    if not labels.get(names.JOB_UID_LABEL) or ORIGIN in labels or controller_uid(workload):
        return False
    finalizers = workload["metadata"].get("finalizers") or []
    return names.RESOURCE_IN_USE in finalizers or has_quota(workload)


def is_of_a_job(last: WorkloadState | None, workload: Body, integrations: Integrations) -> bool:
    """Return whether the Workload is or was a job's, so that it holds nothing without that job."""
    return (
        job_owner(workload, integrations) is not None
        or is_of_group(workload)
        or was_of_a_job(last, workload)
        or _is_orphan(workload)
    )


def was_external(last: WorkloadState | None, workload: Body) -> bool:
    """Return whether the Workload started without a job: a job that claims it later changes nothing."""
    return last is not None and last.owner is None and last.uid == workload["metadata"]["uid"]


def job_owner(
    workload: Body, integrations: Integrations
) -> tuple[OwnerReference, Integration] | None:
    """Return the job that controls the Workload, and its kind; the job may be deleted already."""
    for owner in workload["metadata"].get("ownerReferences") or []:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        found = integrations.find(group=group, kind=owner.get("kind"))
        if found and (owner.get("controller") or (found.group and is_of_group(workload))):
            return owner, found
    return None


def left_behind(
    ref: WorkloadRef, workload: Body, integrations: Integrations
) -> WorkloadState | None:
    """Return a tombstone for a Workload that is deleted and kept by our finalizer; None for another one.

    1. A replica of the patcher that is behind has not seen the end of a job. Another one has handled it.
    2. The one that is behind creates the job's Workload. The garbage collector deletes it.
    3. Nobody removes our finalizer, because the end of the job has been handled: it is said once more.
    """
    metadata = workload["metadata"]
    kept = names.RESOURCE_IN_USE in (metadata.get("finalizers") or [])
    found = job_owner(workload, integrations)
    if "deletionTimestamp" not in metadata or not kept or found is None:
        return None
    owner, integration = found
    return WorkloadState(
        cluster=ref.cluster,
        namespace=ref.namespace,
        name=ref.name,
        uid=owner["uid"],
        owner=JobRef(
            api_version=owner["apiVersion"],
            kind=owner["kind"],
            plural=integration.kind.plural,
            name=owner["name"],
            uid=owner["uid"],
        ),
        phase="gone",
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
    )
