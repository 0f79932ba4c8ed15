"""Judges the cluster's own history: which jobs ran at once, whatever the streams say about it.

A log can lose its tail and a message can lie; the API server has seen every start.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from services.simulator.cluster.api import Api
from services.simulator.cluster.storage.stored import Event
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import QUOTA_RESERVED, is_true
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import parse_quantity
from shared.integrations import SHIPPED, Integration, Integrations, controller_uid, queue_of

WINDOW: Final = timedelta(seconds=180)
"""How long after a quota became smaller an admission from before may still start its job."""

BILLION: Final = 10**9


class SharedQuota(NamedTuple):
    """What the jobs of some queues share."""

    name: str
    resource: str


class ClusterHistory:
    """Follows jobs and ClusterQueues from their creation; `problems` says what was wrong when."""

    def __init__(
        self,
        api: Api,
        *,
        now: Callable[[], datetime],
        pool_of: Callable[[Object], SharedQuota],
        pool_name: Callable[[str], str],
        integrations: Integrations = SHIPPED,
    ) -> None:
        """`pool_of`: what a job's queue draws from. `pool_name`: the pool of a ClusterQueue."""
        self.problems: list[str] = []
        self.starts: dict[str, int] = {}
        """Job's uid to the number of times that it was let go."""

        self._now = now
        self._pool_of = pool_of
        self._pool_name = pool_name
        self._running: dict[SharedQuota, dict[str, tuple[str, int]]] = {}
        """Uid to name and amount of the jobs that run or have pods."""

        self._nominal: dict[SharedQuota, dict[str, int]] = {}
        """By queue."""

        self._totals: dict[SharedQuota, list[tuple[datetime, int]]] = {}
        """Each total of a pool and since when it is so, oldest first."""

        self._reserved: dict[str, bool] = {}
        """Uid of each job, or namespace and name of each group, to whether its Workload says that it holds
        quota."""

        self._above: dict[str, str] = {}
        """Uid of a job to that of its controller."""

        self._let_go: set[str] = set()
        self._ended: set[str] = set()
        self._integrations = integrations
        for integration in integrations:
            kind = integration.kind
            served = api.kinds.find(kind.group, kind.version, kind.plural)
            if served is not None:
                api.store.subscribe(served, partial(self._on_job, integration))
        for kind, listener in (
            (kinds.CLUSTER_QUEUE, self._on_queue),
            (kinds.WORKLOAD, self._on_workload),
        ):
            served = api.kinds.find(kind.group, kind.version, kind.plural)
            assert served is not None
            api.store.subscribe(served, listener)

    def _on_workload(self, event: Event) -> None:
        workload = event.stored.obj
        path = f"{event.stored.namespace}/{event.stored.name}"
        self._reserved[path] = is_true(workload, QUOTA_RESERVED)
        for owner in workload["metadata"].get("ownerReferences") or []:
            self._reserved[owner["uid"]] = is_true(workload, QUOTA_RESERVED)

    def _on_queue(self, event: Event) -> None:
        queue = event.stored.obj
        name = queue["metadata"]["name"]
        pool_name = self._pool_name(name)
        for group in queue["spec"].get("resourceGroups") or []:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    pool = SharedQuota(pool_name, resource["name"])
                    amounts = self._nominal.setdefault(pool, {})
                    amounts[name] = parse_quantity(str(resource["nominalQuota"]))
                    total = sum(amounts.values())
                    self._totals.setdefault(pool, []).append((self._now(), total))

    def _on_job(self, integration: Integration, event: Event) -> None:
        job = event.stored.obj
        uid = job["metadata"]["uid"]
        if above := controller_uid(job):
            self._above[uid] = above
        if not queue_of(job) or self._integrations.runs_with_controller(job, integration):
            return
        if self._is_below_another(uid):
            return
        pool = self._pool_of(job)
        running = self._running.setdefault(pool, {})
        held, finish = integration.held(job), integration.finish(job)
        over = event.type == "DELETED" or finish is not None or _grace_is_over(job)
        if over or (held and not integration.active(job)):
            running.pop(uid, None)
        elif not held and uid not in running:
            name = f"{job['kind']} {job['metadata']['namespace']}/{job['metadata']['name']}"
            running[uid] = (name, _amount(integration, job, pool.resource))
            self._check(pool, name)
        elif not held and integration.reclaimable(job):
            name, _ = running[uid]
            running[uid] = (name, _amount(integration, job, pool.resource))
        if held:
            self._let_go.discard(uid)
        elif uid not in self._let_go and finish is None:
            self._let_go.add(uid)
            self.starts[uid] = self.starts.get(uid, 0) + 1
            if not self._reserved.get(_group(integration, job) or uid):
                name = f"{job['kind']} {job['metadata']['namespace']}/{job['metadata']['name']}"
                self.problems.append(f"{name} is started before its Workload says that it may run")
            if uid in self._ended:
                self.problems.append(f"{integration.kind.kind} {uid} ended and was started again")
        if finish is not None:
            self._ended.add(uid)

    def _is_below_another(self, uid: str) -> bool:
        """Whether the job was made by the controller of one that has a Workload: it runs on its quota."""
        seen = set[str]()  # Users may write circles.
        while (uid := self._above.get(uid, "")) and uid not in seen:
            if uid in self._reserved:
                return True
            seen.add(uid)
        return False

    def _check(self, pool: SharedQuota, started: str) -> None:
        now = self._now()
        used = sum(amount for _, amount in self._running[pool].values())
        totals = self._totals.get(pool, [])
        before = [total for since, total in totals if since < now - WINDOW]
        allowed = [total for since, total in totals if since >= now - WINDOW] + before[-1:]
        most = max(allowed, default=0)
        if used > most:
            self.problems.append(
                f"{started} starts at {now:%H:%M:%S} while {used / BILLION:g} {pool.resource} run in "
                f"{pool.name}, which had {most / BILLION:g} at most"
            )


def _group(integration: Integration, job: Object) -> str:
    """Namespace and name of the job's group; empty if it is by itself."""
    label = None if integration.group is None else integration.group.label
    name = (job["metadata"].get("labels") or {}).get(label)
    return f"{job['metadata']['namespace']}/{name}" if name else ""


def _grace_is_over(job: Object) -> bool:
    """Whether it is a pod that its kubelet has ended; a finalizer may keep it."""
    metadata = job["metadata"]
    ends = job["kind"] == kinds.POD.kind and "deletionTimestamp" in metadata
    return ends and not metadata.get("deletionGracePeriodSeconds")


def _amount(integration: Integration, job: Object, resource: str) -> int:
    """What those of its pods ask for that have not finished for good."""
    total = 0
    finished = integration.reclaimable(job)
    for pods in integration.pod_sets(job):
        left = pods["count"] - finished.get(pods["name"], 0)
        for container in pods["template"]["spec"]["containers"]:
            requests = (container.get("resources") or {}).get("requests") or {}
            total += left * parse_quantity(str(requests.get(resource, "0")))
    return total
