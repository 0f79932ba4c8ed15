"""Records what runs in a cluster, from its pods and PipelineRuns only.

Nothing here reads a label, an annotation or an ownerReference that a user can write later: the owner of a
pod is the one that its controller gave it at its creation, and what a PipelineRun needs follows from its
spec, which cannot change. So is the queue of a pod that waits by itself the one of its creation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from services.simulator.cluster.api import Api
from services.simulator.cluster.collector import FOREGROUND_DELETION, ORPHAN
from services.simulator.cluster.kinds.catalogue import JOB_SETS, JOBS, PIPELINERUNS, PODS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event
from shared.contracts.kube.conditions import SUCCEEDED, has_status, is_true
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.integrations import TEKTON_SLOT, queue_of

TASKS: Final = "tasks"
"""A resource of which every PipelineRun needs one for each of its tasks, by the rules of a scenario."""

Amounts = dict[str, int]
"""Resource to billionths."""

_OWN_QUEUE: Final = frozenset({"", "Deployment"})
"""Kinds of controllers whose pods wait by themselves; empty: none."""

_COLLECTED: Final = frozenset({FOREGROUND_DELETION, ORPHAN})
"""Finalizers that the garbage collector takes away."""

_MOMENT: Final = timedelta(seconds=0.1)
"""A Job that loses its controller sooner was nobody's for all who look: its tenant could have made it so."""

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_UNIT: Final = 10**9


@dataclass(slots=True, kw_only=True)
class Job:
    """A job of a kind that can wait, as the cluster had it."""

    uid: str
    kind: str
    namespace: str
    name: str
    created_at: datetime
    managed_at: datetime | None = None
    """When it first named a queue. A PipelineRun does from its creation: the rules give each one a queue."""

    root: str = ""
    """Uid of the managed JobSet that it named at its creation, for whose quota it is made; empty: none."""

    finished: bool = False
    terminating: bool = False
    """True once it is being deleted: the controller of its kind leaves its pods alone from then on."""

    def is_managed(self, at: datetime) -> bool:
        """Whether it had named a queue by then."""
        return self.managed_at is not None and self.managed_at <= at


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one job runs from a moment on."""

    at: datetime
    uid: str
    steady: Amounts
    """Requests of its pods that nobody has told to end, or of a PipelineRun that runs."""

    ending: Amounts
    """Requests of its pods within their grace period."""


@dataclass(slots=True)
class _Pod:
    owner: str
    requests: Amounts
    waits: bool
    """It waits by itself, at its gate."""


@dataclass(slots=True)
class _Running:
    steady: dict[str, Amounts] = field(default_factory=dict)
    ending: dict[str, Amounts] = field(default_factory=dict)
    """Requests by uid of the pod, or of the run."""


class RunningWork:
    """Follows all pods, Jobs and PipelineRuns of a cluster from their creation."""

    def __init__(self, api: Api, now: Callable[[], datetime], *, pods_wait: bool = False) -> None:
        """`pods_wait`: pods that name a queue are jobs of their own."""
        self.jobs: dict[str, Job] = {}
        """Every Job, JobSet and PipelineRun that there was, by uid, and every pod that waits by itself."""

        self.changes: list[Change] = []
        """In the order of time."""

        self._now = now
        self._pods_wait = pods_wait
        self._pods: dict[str, _Pod] = {}
        self._running: dict[str, _Running] = {}
        api.store.subscribe(JOB_SETS, self._on_job)
        api.store.subscribe(JOBS, self._on_job)
        api.store.subscribe(PIPELINERUNS, self._on_run)
        api.store.subscribe(PODS, self._on_pod)

    def _on_job(self, event: Event) -> None:
        obj = event.stored.obj
        job = self._job(obj)
        if job.managed_at is None and queue_of(obj):
            job.managed_at = self._now()
        job.finished = job.finished or is_true(obj, "Complete", "Completed", "Failed")

    def _on_run(self, event: Event) -> None:
        obj = event.stored.obj
        run = self._job(obj)
        run.managed_at = run.created_at
        run.finished = run.finished or has_status(obj, SUCCEEDED, "True", "False")
        runs = bool((obj.get("status") or {}).get("startTime")) and not run.finished
        requests = _requests_of_run(obj) if runs and event.type != "DELETED" else {}
        self._set(run.uid, run.uid, steady=requests, ending={})

    def _job(self, obj: Obj) -> Job:
        metadata = obj["metadata"]
        uid = str(metadata["uid"])
        if uid not in self.jobs:
            self.jobs[uid] = Job(
                uid=uid,
                kind=obj["kind"],
                namespace=metadata["namespace"],
                name=metadata["name"],
                created_at=self._now(),
                root=self._root(obj),
            )
        job = self.jobs[uid]
        if job.root and not _controller(obj) and self._now() - job.created_at < _MOMENT:
            job.root = ""
        job.terminating |= "deletionTimestamp" in metadata
        if (
            job.root
            and job.terminating
            and not _COLLECTED.issuperset(metadata.get("finalizers") or ())
        ):
            # Nobody can stop what its tenant keeps from going, so nor what its quota is for.
            self.jobs[job.root].terminating = True
        return job

    def root_of(self, uid: str) -> str:
        """Uid of the job for whose quota another one is made; its own if it is unknown."""
        job = self.jobs.get(uid)
        return uid if job is None else job.root or uid

    def _root(self, obj: Obj) -> str:
        controller = _controller(obj)
        owner = self.jobs.get(str(controller.get("uid")))
        made_for_it = (
            owner is not None
            and owner.kind == controller.get("kind") == "JobSet"
            and owner.name == controller.get("name")
            and owner.managed_at is not None
        )
        return owner.uid if owner is not None and made_for_it else ""

    def _on_pod(self, event: Event) -> None:
        obj, uid = event.stored.obj, event.stored.uid
        if event.before is None and event.type != "DELETED":
            self._on_new_pod(obj)
        pod = self._pods.get(uid)
        if pod is None:
            return
        has_ended = (obj.get("status") or {}).get("phase") in _ENDED
        ended = event.type == "DELETED" or has_ended
        is_ending = "deletionTimestamp" in obj["metadata"]
        # A pod whose grace is over runs no more; finalizers may keep the object.
        ended = ended or (is_ending and not obj["metadata"].get("deletionGracePeriodSeconds"))
        runs = {} if ended else pod.requests
        if pod.waits:
            self.jobs[uid].finished |= has_ended
            if obj["spec"].get("schedulingGates"):
                runs = {}
        if is_ending:
            self._set(pod.owner, uid, steady={}, ending=runs)
        else:
            self._set(pod.owner, uid, steady=runs, ending={})

    def _on_new_pod(self, obj: Obj) -> None:
        """Follow a pod of a Job, or one that waits by itself; not that of a TaskRun, whose run is counted."""
        uid = str(obj["metadata"]["uid"])
        controller = _controller(obj)
        owner = self.jobs.get(str(controller.get("uid")))
        if owner is not None:
            self._pods[uid] = _Pod(
                owner=owner.root or owner.uid, requests=_requests_of_pod(obj), waits=False
            )
        elif self._pods_wait and queue_of(obj) and controller.get("kind", "") in _OWN_QUEUE:
            self._job(obj).managed_at = self._now()
            self._pods[uid] = _Pod(owner=uid, requests=_requests_of_pod(obj), waits=True)

    def _set(self, job: str, part: str, *, steady: Amounts, ending: Amounts) -> None:
        running = self._running.setdefault(job, _Running())
        before = (running.steady.pop(part, {}), running.ending.pop(part, {}))
        if steady:
            running.steady[part] = steady
        if ending:
            running.ending[part] = ending
        if before != (steady, ending):
            self.changes.append(
                Change(
                    at=self._now(),
                    uid=job,
                    steady=_sum(running.steady.values()),
                    ending=_sum(running.ending.values()),
                )
            )


def _controller(obj: Obj) -> Obj:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((one for one in owners if one.get("controller")), {})


def _requests_of_run(run: Obj) -> Amounts:
    tasks = (run["spec"].get("pipelineSpec") or {}).get("tasks") or []
    amounts = {TEKTON_SLOT: _UNIT, TASKS: len(tasks) * _UNIT}
    return {resource: amount for resource, amount in amounts.items() if amount}


def _requests_of_pod(pod: Obj) -> Amounts:
    """Return the requests of a pod's containers; what cannot be read counts as nothing."""
    total: Amounts = {}
    for container in pod["spec"].get("containers") or []:
        for resource, text in ((container.get("resources") or {}).get("requests") or {}).items():
            try:
                total[resource] = total.get(resource, 0) + parse_quantity(str(text))
            except QuantityError:
                continue
    # A pod without requests runs, too: its job is found although it needs no quota.
    return total or {"pods": _UNIT}


def _sum(amounts: Any) -> Amounts:
    total: Amounts = {}
    for one in amounts:
        for resource, amount in one.items():
            total[resource] = total.get(resource, 0) + amount
    return total
