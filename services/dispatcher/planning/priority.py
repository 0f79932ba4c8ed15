"""Who goes first on a spoke: a copy has the priority class of its job at the hub, also when that changes.

As at the hub only one WorkloadPriorityClass takes the place of another. Where this hub admits, the spoke's
own class of that name says what it is worth; a Kueue of its own is told the value, as MultiKueue tells it.
"""

from dataclasses import dataclass

from services.dispatcher.store import Key, Knowledge
from shared.contracts.kube.kinds import WORKLOAD_PRIORITY_CLASS
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.messages.effects import Dispatch

__all__ = ["Rank", "new_rank", "rank_of", "with_rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A WorkloadPriorityClass of the hub, and what it is worth there."""

    name: str
    value: int


def rank_of(knowledge: Knowledge, key: Key, uid: str) -> Rank | None:
    """What a job's label says; None: it has none, or the hub knows no such class."""
    job = knowledge.hub.job(key, uid)
    labels = {} if job is None else job.obj["metadata"].get("labels") or {}
    name = str(labels.get(PRIORITY_CLASS_LABEL) or "")
    value = knowledge.configuration.priority(name)
    return None if value is None else Rank(name=name, value=value)


def new_rank(knowledge: Knowledge, key: Key, order: Dispatch) -> Rank | None:
    """What its job has now, if the spoke was told otherwise; None: it need not be told."""
    rank = rank_of(knowledge, key, order.uid) if order.priority_class else None
    if rank is None:
        return None
    worth = rank.value if order.workload is None else order.workload["spec"].get("priority")
    return None if (order.priority_class, worth) == (rank.name, rank.value) else rank


def with_rank(order: Dispatch, rank: Rank, *, reranked: bool = True) -> Dispatch:
    """The same order for a copy of that rank; `reranked`: also for one that is there."""
    changes: dict[str, object] = {"priority_class": rank.name, "reranked": reranked}
    if order.job is not None:
        metadata = order.job["metadata"]
        labels = {**(metadata.get("labels") or {}), PRIORITY_CLASS_LABEL: rank.name}
        changes["job"] = {**order.job, "metadata": {**metadata, "labels": labels}}
    if order.workload is not None:
        kind = WORKLOAD_PRIORITY_CLASS
        reference = {"group": kind.group, "kind": kind.kind, "name": rank.name}
        said = {"priority": rank.value, "priorityClassRef": reference}
        spec = {**order.workload["spec"], **said}
        changes["workload"] = {**order.workload, "spec": spec}
    return order.model_copy(update=changes)
