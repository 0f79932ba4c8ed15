"""The priority of a copy follows the WorkloadPriorityClass of its job, also when that changes.

A job without a class keeps none. On a spoke whose quota this hub manages, the spoke's own class of that name
gives the value. A spoke with its own Kueue gets the hub's value, as MultiKueue does it.
"""

from dataclasses import dataclass

from services.dispatcher.store import Store
from shared.contracts.kube.bodies import labels_of
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.refs import WorkloadRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A WorkloadPriorityClass of the hub, and its value."""

    class_name: str
    value: int


def job_priority(store: Store, workload: WorkloadRef, uid: str) -> Priority | None:
    """The class that the job's label names; None without a label, or if the hub has no such class."""
    job = store.jobs.job(workload, uid)
    name = "" if job is None else labels_of(job.obj).get(PRIORITY_CLASS_LABEL) or ""
    value = store.configuration.priority_value(name)
    return None if value is None else Priority(class_name=name, value=value)


def changed_priority(store: Store, workload: WorkloadRef, order: Dispatch) -> Priority | None:
    """The job's priority if the order contains another one; None if the order is up to date."""
    priority = job_priority(store, workload, order.uid) if order.priority_class else None
    if priority is None:
        return None
    value = priority.value if order.workload is None else order.workload["spec"].get("priority")
    unchanged = (order.priority_class, value) == (priority.class_name, priority.value)
    return None if unchanged else priority
