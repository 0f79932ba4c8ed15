"""What a scenario has: a namespace with queues of its own, a tenant, and the history of the API server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tests.controllers.judge.history import PATIENCE_SECONDS, Change, History
from tests.controllers.servers.client import Client, Json, RequestError
from tests.controllers.servers.node import Node

T = TypeVar("T")

LOOK_SECONDS: Final = 0.5
QUEUE: Final = "main"
CLASSES: Final = {"low": 100, "mid": 500, "high": 1000}
SLOTS: Final = "tekton.dev/pipelineruns"
FLAVOR: Final = "default"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
RUN_CLASS_LABEL: Final = "example.test/priority"
"""Read by the rules that these runs are classified by."""

PENDING: Final = "PipelineRunPending"


Kill = Callable[[], Awaitable[bool]]


@dataclass(slots=True, kw_only=True)
class Tools:
    """What few scenarios need: to break things, and to ask beyond the history."""

    victims: Callable[[], dict[str, Kill]] = dict
    """By name, how each process is killed: False if it does not run at the moment."""

    requests: Callable[[], Iterable[Json]] = tuple
    """What our services asked, by the API server's audit log."""

    surprises: Callable[[], list[str]] = list
    """Our processes that ended although nobody killed them."""

    doctor: Callable[[], Awaitable[list[str]]] | None = None
    """What `sluice doctor` finds wrong."""

    say: Callable[[str], None] = print


@dataclass(slots=True, kw_only=True)
class Place:
    """A namespace, and whoever acts in it."""

    namespace: str
    tenant: Client
    """With the role `edit`."""

    admin: Client
    history: History
    node: Node
    tools: Tools
    amounts: dict[str, dict[str, int]] = field(default_factory=dict)
    """LocalQueue to what its ClusterQueue has."""

    async def furnish(self) -> None:
        """Make the namespace."""
        await self.admin.create("Namespace", {"metadata": {"name": self.namespace}})

    async def queue(
        self,
        amounts: dict[str, int],
        name: str = QUEUE,
        *,
        preempts: bool = False,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Make a LocalQueue with a ClusterQueue of its own, and wait until it is active."""
        cluster_queue = self.cluster_queue(name)
        resources = [{"name": one, "nominalQuota": many} for one, many in amounts.items()]
        group = {
            "coveredResources": list(amounts),
            "flavors": [{"name": FLAVOR, "resources": resources}],
        }
        within = "LowerPriority" if preempts else "Never"
        await self.admin.create(
            "ClusterQueue",
            {
                "metadata": {"name": cluster_queue},
                "spec": {
                    "queueingStrategy": "BestEffortFIFO",
                    "namespaceSelector": {},
                    "preemption": {"withinClusterQueue": within, "reclaimWithinCohort": "Never"},
                    "resourceGroups": [group],
                },
            },
        )
        metadata = {"name": name, "namespace": self.namespace, "annotations": annotations or {}}
        await self.admin.create(
            "LocalQueue", {"metadata": metadata, "spec": {"clusterQueue": cluster_queue}}
        )
        self.amounts[name] = amounts

        def active() -> bool:
            found = self.history.now("ClusterQueue", "", cluster_queue)
            return condition(found, "Active") == "True"

        await self.until(active)

    def cluster_queue(self, name: str = QUEUE) -> str:
        """The ClusterQueue behind a LocalQueue."""
        return f"{self.namespace}-{name}"

    async def job(
        self,
        name: str,
        *arguments: str,
        pods: int = 1,
        queue: str | None = QUEUE,
        priority: str | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """Create a Job of pods with one CPU each; `arguments` say what their containers do."""
        labels = {QUEUE_LABEL: queue, CLASS_LABEL: priority}
        resources = {"requests": {"cpu": "1"}}
        container = {
            "name": "c", "image": "example.test/c", "args": list(arguments), "resources": resources,
        }  # fmt: skip
        pod = {
            "restartPolicy": "Never",
            "containers": [container],
            "terminationGracePeriodSeconds": 600,
        }
        return await self.tenant.create(
            "Job",
            {
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": {key: value for key, value in labels.items() if value},
                    "annotations": annotations or {},
                },
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "template": {"spec": pod},
                    **spec,
                },
            },
        )

    async def run(
        self,
        name: str,
        *tasks: Json,
        priority: str | None = None,
        labels: dict[str, str] | None = None,
        lastly: tuple[Json, ...] = (),
        **spec: Json,
    ) -> Json:
        """Create a PipelineRun; without tasks `spec` names its pipeline."""
        if tasks:
            spec["pipelineSpec"] = {"tasks": list(tasks), "finally": list(lastly)}
        given = {**({RUN_CLASS_LABEL: priority} if priority else {}), **(labels or {})}
        metadata = {"name": name, "namespace": self.namespace, "labels": given}
        return await self.tenant.create("PipelineRun", {"metadata": metadata, "spec": spec})

    async def patch(self, kind: str, name: str, patch: Json) -> Json:
        """Change an object, as the tenant."""
        return await self.tenant.patch(kind, self.namespace, name, patch)

    async def refused(self, kind: str, name: str, patch: Json) -> str:
        """Why a change of the tenant's is refused; empty if it is not."""
        try:
            await self.patch(kind, name, patch)
        except RequestError as error:
            return str(error)
        return ""

    async def delete(self, kind: str, name: str, propagation: str = "Background") -> None:
        """Delete an object, as the tenant."""
        await self.tenant.delete(kind, self.namespace, name, propagation=propagation)

    async def gone(self, kind: str, name: str) -> None:
        """Until a cluster-wide object is gone. Raises TimeoutError with what it says."""
        status: Json = None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    status = (await self.admin.get(kind, None, name)).get("status")
                    await asyncio.sleep(LOOK_SECONDS)
        except RequestError as error:
            if error.status != 404:
                raise
        except TimeoutError as error:
            raise TimeoutError(f"{kind} {name} is left: {status}") from error

    async def until(self, found: Callable[[], T]) -> T:
        """The first result of `found()` that is true, asked anew after each change of the cluster."""
        return await self.history.until(found, self.situation)

    def situation(self) -> str:
        """What the namespace has, for a scenario that waits in vain."""
        parts = [
            f"{kind} {obj['metadata']['name']} {_short(kind, obj)}"
            for kind in ("Job", "PipelineRun", "Workload", "Pod")
            for obj in self.history.all_now(kind, self.namespace)
        ]
        return "; ".join(parts)[:1500]

    # --- questions ---

    def job_now(self, name: str) -> Json:
        """The Job as it was seen last; empty if there is none."""
        return self.history.now("Job", self.namespace, name) or {}

    def run_now(self, name: str) -> Json:
        """The PipelineRun as it was seen last; empty if there is none."""
        return self.history.now("PipelineRun", self.namespace, name) or {}

    def workload_now(self, name: str) -> Json:
        """The Workload of that name as it was seen last; empty if there is none."""
        return self.history.now("Workload", self.namespace, name) or {}

    def changes(self, kind: str, name: str) -> list[Change]:
        """All that was seen of an object."""
        return self.history.of(kind, self.namespace, name)

    def workloads(self, owner: Json) -> list[Json]:
        """The Workloads of a Job or PipelineRun that there are."""
        return [
            one
            for one in self.history.all_now("Workload", self.namespace)
            if owned_by(one, owner["metadata"]["uid"])
        ]

    def pods(self, owner: str) -> list[Json]:
        """The pods of a Job or PipelineRun that there are, also those that have ended."""
        found = self.history.all_now("Pod", self.namespace)
        return [one for one in found if owner_of(one) == owner]

    def running(self, owner: str) -> int:
        """How many pods of a Job or PipelineRun run."""
        return sum(one["status"].get("phase") == "Running" for one in self.pods(owner))

    def usage(self, name: str = QUEUE) -> dict[str, str]:
        """What the ClusterQueue of a queue says is reserved."""
        found = self.history.now("ClusterQueue", "", self.cluster_queue(name)) or {}
        flavors = (found.get("status") or {}).get("flavorsReservation") or []
        return {
            resource["name"]: resource["total"]
            for flavor in flavors
            for resource in flavor["resources"]
        }

    def is_free(self, name: str = QUEUE) -> bool:
        """Whether the queue says that nothing is reserved and nothing waits."""
        found = self.history.now("ClusterQueue", "", self.cluster_queue(name)) or {}
        status = found.get("status") or {}
        none_waits = not status.get("pendingWorkloads") and not status.get("reservingWorkloads")
        return none_waits and set(self.usage(name).values()) <= {"0"}

    # --- what they wait for ---

    async def job_runs(self, name: str, pods: int = 1) -> None:
        """Until so many pods of a Job run."""
        await self.until(lambda: self.running(name) >= pods)

    async def run_runs(self, name: str) -> None:
        """Until a pod of a PipelineRun runs."""
        await self.until(lambda: self.running(name) > 0)

    async def job_ends(self, name: str) -> Json:
        """Until a Job is complete or has failed; the Job."""
        return await self.until(lambda: ended(self.job_now(name)) and self.job_now(name))

    async def run_ends(self, name: str) -> Json:
        """Until a PipelineRun has ended; the run."""
        return await self.until(lambda: ended(self.run_now(name)) and self.run_now(name))

    async def waits(self, kind: str, name: str) -> None:
        """Until the Workload of a job says that there is no quota for it."""

        def told() -> bool:
            owner = self.history.now(kind, self.namespace, name)
            found = self.workloads(owner) if owner else []
            return any(condition(one, "QuotaReserved") == "False" for one in found)

        await self.until(told)

    async def is_released(self, kind: str, name: str) -> None:
        """Until nothing holds a job back."""

        def let_go() -> bool:
            found = self.history.now(kind, self.namespace, name)
            return found is not None and not held(found)

        await self.until(let_go)


def task(name: str, *arguments: str, **spec: Json) -> Json:
    """A task of one step; `arguments` say what its container does."""
    step = {"name": "s", "image": "example.test/c", "command": ["play"], "args": list(arguments)}
    inner = {"steps": [step], **spec.pop("taskSpec", {})}
    return {"name": name, "taskSpec": inner, **spec}


def condition(obj: Json | None, type_: str) -> str:
    """Status of a condition; empty if it is not there."""
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((str(one["status"]) for one in conditions if one["type"] == type_), "")


def reason(obj: Json, type_: str) -> str:
    """Reason of a condition; empty if it is not there."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((str(one.get("reason")) for one in conditions if one["type"] == type_), "")


def ended(obj: Json) -> bool:
    """Whether a Job is complete or has failed, or a PipelineRun has succeeded or not."""
    return (
        condition(obj, "Complete") == "True"
        or condition(obj, "Failed") == "True"
        or condition(obj, "Succeeded") in {"True", "False"}
    )


def held(obj: Json) -> bool:
    """Whether a Job is suspended, or a PipelineRun is pending."""
    spec = obj.get("spec") or {}
    return bool(spec.get("suspend")) or spec.get("status") == PENDING


def owned_by(obj: Json, uid: str) -> bool:
    """Whether an ownerReference names the uid."""
    return any(one["uid"] == uid for one in obj["metadata"].get("ownerReferences") or ())


def owner_of(pod: Json) -> str:
    """Job or PipelineRun of a pod, by the labels that their controllers give it."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("tekton.dev/pipelineRun") or labels.get("job-name") or "")


def _short(kind: str, obj: Json) -> str:
    status = obj.get("status") or {}
    if kind == "Pod":
        return str(status.get("phase"))
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    return f"{'held ' if held(obj) else ''}{conditions}"
