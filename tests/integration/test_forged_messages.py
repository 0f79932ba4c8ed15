"""Forged messages of every sort to the patcher of a hub: real bus, simulated cluster."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from services.patcher.cluster.writer import get_or_none
from shared.contracts.controllers import MACHINES, MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.base import Message
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.spokes import CheckCondition, HubStatus, SpokeState
from shared.contracts.messages.workloads import JobRef, PodSet, WorkloadState
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.attacks.forgery import HUB, TENANT, Cluster, Forgery, forgery
from tests.clock import now

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB_SPEC: Object = {
    "suspend": True,
    "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}},
}
DONE: Object = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}


class Hub:
    """What is in the hub's cluster before anybody forges anything."""

    def __init__(self, stage: Forgery) -> None:
        self.stage = stage
        self.cluster: Cluster = stage.hub
        self.uids: dict[str, str] = {}

    async def furnish(self) -> None:
        """A job that runs here, one that is held, a build, and checks of ours and of somebody else."""
        for name, suspend in (("runs", False), ("held", True)):
            made = await self.make(
                kinds.JOB, name, namespace=TENANT, spec={**JOB_SPEC, "suspend": suspend}
            )
            self.uids[name] = made["metadata"]["uid"]
        for name in ("kube-job", "kube-build"):
            kind = kinds.JOB if name == "kube-job" else kinds.TASK_RUN
            made = await self.make(kind, name, namespace="kube-system", spec=JOB_SPEC)
            self.uids[name] = made["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "runs", "controller": True}
        metadata = {"ownerReferences": [{**owner, "uid": self.uids["runs"]}]}
        await self.make(
            kinds.WORKLOAD, "job-runs", namespace=TENANT, metadata=metadata, spec={"podSets": []}
        )
        for name, mounted in (("build", "multi-platform-ssh-build"), ("plain", "ssh-keys")):
            made = await self.make(kinds.TASK_RUN, name, namespace=TENANT, spec={"taskSpec": {}})
            self.uids[name] = made["metadata"]["uid"]
            volume = {"name": "ssh", "secret": {"secretName": mounted}}
            status = {"status": {"taskSpec": {"volumes": [volume]}}}
            await self.cluster.kube.patch(
                kinds.TASK_RUN, TENANT, name, status, subresource="status"
            )
        theirs = {"controllerName": "example.com/scanner"}
        await self.make(kinds.ADMISSION_CHECK, "theirs", spec=theirs)
        await self.make(kinds.ADMISSION_CHECK, "ours", spec={"controllerName": MULTIKUEUE})
        await self.make(kinds.ADMISSION_CHECK, "machines", spec={"controllerName": MACHINES})
        await self.make(kinds.MULTIKUEUE_CLUSTER, "west")
        for name, flavor in (("main", "small"), ("rich", "gpu")):
            group = {
                "coveredResources": ["cpu"],
                "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "9"}]}],
            }
            spec = {"namespaceSelector": {}, "resourceGroups": [group]}
            await self.make(kinds.CLUSTER_QUEUE, name, spec=spec)
            if name == "main":
                # The watcher has not shown these yet.
                await self.cluster.make(kinds.CLUSTER_QUEUE, "unseen", spec=spec)
        for name, leads_to in (("early", "main"), ("unseen", "unseen")):
            of = {"clusterQueue": leads_to}
            await self.cluster.make(kinds.LOCAL_QUEUE, name, namespace=TENANT, spec=of)
        queue = await self.cluster.kube.get(kinds.LOCAL_QUEUE, TENANT, "main")
        await self.stage.bus.publish(observed_object(kinds.LOCAL_QUEUE, queue))
        await self.cluster.observes(kinds.LOCAL_QUEUE, TENANT, "main")

    async def make(self, kind: Kind, name: str, **more: Any) -> Object:
        """Create an object, and observe it as the watcher does."""
        made = await self.cluster.make(kind, name, **more)
        await self.stage.bus.publish(observed_object(kind, made))
        return made

    def target(self, name: str) -> JobRef:
        return JobRef(
            api_version="batch/v1", kind="Job", plural="jobs", name=name, uid=self.uids[name]
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub() -> AsyncIterator[Hub]:
    async with forgery() as stage:
        found = Hub(stage)
        await found.furnish()
        yield found


def host(hub: Hub, name: str = "build", *, namespace: str = TENANT, **more: Any) -> HostState:
    usual = {
        "cluster": HUB, "namespace": namespace, "name": name, "uid": hub.uids.get(name, "forged"),
        "platform": "linux/arm64", "state": "ready", "host": "m", "secret": {"host": "u@evil"},
        "at": now(),
    }  # fmt: skip
    return HostState(**{**usual, **more})


def home(hub: Hub, job: str, **more: Any) -> HubStatus:
    usual = {
        "cluster": HUB, "namespace": TENANT, "name": "job-runs", "uid": hub.uids[job],
        "target": hub.target(job), "nominated": None, "at": now(),
    }  # fmt: skip
    return HubStatus(**{**usual, **more})


def spoke(**more: Any) -> SpokeState:
    usual = {"spoke": "west", "active": True, "reason": "Active", "message": ""}
    return SpokeState(cluster=HUB, at=now(), **{**usual, **more})


def check(**more: Any) -> CheckCondition:
    usual = {"check": "theirs", "active": False, "reason": "Evil", "message": ""}
    return CheckCondition(cluster=HUB, at=now(), **{**usual, **more})


REFUSALS: dict[str, tuple[Any, str]] = {
    "a build's secret has a key that no build reads": (
        lambda hub: host(hub, secret={"host": "u@h", ".dockerconfigjson": "{}"}), "no build reads"),
    "a TaskRun that waits for no host has one": (
        lambda hub: host(hub, "plain"), "does not mount Secret multi-platform-ssh-plain"),
    "a TaskRun that waits for no host is released": (
        lambda hub: host(hub, "plain", state="released", secret=None), "does not mount"),
    "a TaskRun in kube-system has a host": (
        lambda hub: host(hub, "kube-build", namespace="kube-system"), "excluded here"),
    "a secret in kube-system is deleted": (
        lambda hub: host(hub, "made-up", namespace="kube-system", state="released", secret=None),
        "excluded here"),
    "a job that runs here has succeeded on a spoke": (
        lambda hub: home(hub, "runs", status=DONE), "runs here"),
    "somebody else's Workload runs on a spoke": (
        lambda hub: home(hub, "held", spoke="west"), "another job controls"),
    "another controller's check is inactive": (lambda _: check(), "example.com/scanner"),
    "the provisioner's check is inactive": (lambda _: check(check="machines"), MACHINES),
    "our check has a reason that is none": (
        lambda _: check(check="ours", reason="no reason!"), "reason"),
    "a spoke has a reason that is none": (lambda _: spoke(reason=""), "reason"),
}  # fmt: skip


@pytest.mark.parametrize(("forged", "why"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_forged_message_becomes_a_dead_letter_and_changes_nothing(
    hub: Hub, forged: Any, why: str
) -> None:
    before = await hub.cluster.contents()
    assert why in await hub.stage.why_refused(forged(hub))
    assert await hub.cluster.contents() == before
    assert hub.cluster.works


IGNORED: dict[str, Any] = {
    "the secret of a TaskRun that does not exist": lambda hub: host(hub, "made-up"),
    "the secret of a TaskRun of another uid": lambda hub: host(hub, uid="another"),
    "the release of a TaskRun of another uid": lambda hub: host(hub, uid="another", state="released"),
    "a job of another uid has succeeded": lambda hub: home(
        hub, "runs", target=hub.target("runs").model_copy(update={"uid": "other"}), status=DONE,
        name="job-made-up"),
    "the status of a Workload that does not exist": lambda hub: home(hub, "held", name="job-none"),
    "a spoke that does not exist": lambda _: spoke(spoke="made-up"),
    "a check that does not exist": lambda _: check(check="made-up"),
}  # fmt: skip


@pytest.mark.parametrize("forged", IGNORED.values(), ids=IGNORED.keys())
async def test_message_about_what_does_not_exist_changes_nothing(hub: Hub, forged: Any) -> None:
    """A refused message after it, on the same subject, shows that it was handled."""
    before = await hub.cluster.contents()
    message: Message = forged(hub)
    await hub.stage.bus.publish(message)
    await handled(hub, message)
    assert await hub.cluster.contents() == before


async def handled(hub: Hub, message: Message) -> None:
    """Wait until no message on this subject is to be handled: a later one that nobody can read is refused."""
    await hub.stage.until_unreadable_is_refused(message.subject)


def state_of(hub: Hub, job: str = "held", **more: Any) -> WorkloadState:
    usual = {
        "cluster": HUB, "namespace": TENANT, "name": f"job-{job}", "uid": hub.uids[job],
        "owner": hub.target(job), "queue": "main", "phase": "waiting", "held": True,
        "created_at": now(), "pod_sets": [PodSet(name="main", count=1, requests={"cpu": "1"})],
    }  # fmt: skip
    return WorkloadState(**{**usual, **more})


def decision(state: WorkloadState, **more: Any) -> Admission:
    assigned = PodSetAssignment(name="main", count=1, flavors={"cpu": "small"}, usage={"cpu": "1"})
    usual = {
        "cluster": HUB, "namespace": TENANT, "name": state.name, "uid": state.uid,
        "state": "admitted", "term": 1, "number": 1, "decided_at": now(),
        "cluster_queue": "main", "pod_sets": [assigned],
    }  # fmt: skip
    return Admission(**{**usual, **more})


def assigned(**more: Any) -> list[PodSetAssignment]:
    usual = {"name": "main", "count": 1, "flavors": {"cpu": "small"}, "usage": {"cpu": "1"}}
    return [PodSetAssignment(**{**usual, **more})]


DECISIONS: dict[str, dict[str, Any]] = {
    "in a queue to which its LocalQueue does not lead": {"cluster_queue": "rich"},
    "on a flavor that its queue does not have": {"pod_sets": assigned(flavors={"cpu": "gpu"})},
    "for more pods than it has": {"pod_sets": assigned(count=1_000)},
    "for less than no pods": {"pod_sets": assigned(count=-1)},
    "for a pod set that it does not have": {"pod_sets": assigned(name="other")},
    "in a queue to which a LocalQueue does not lead that the watcher has not shown": {
        "queue": "early", "cluster_queue": "rich", "pod_sets": assigned(flavors={"cpu": "gpu"})},
    "on a flavor that a queue does not have that the watcher has not shown": {
        "queue": "unseen", "cluster_queue": "unseen", "pod_sets": assigned(flavors={"cpu": "gpu"})},
}  # fmt: skip


@pytest.mark.parametrize("changes", DECISIONS.values(), ids=DECISIONS.keys())
async def test_decision_that_the_cluster_contradicts_starts_nothing(
    hub: Hub, changes: dict[str, Any]
) -> None:
    queue = changes.get("queue", "main")
    changes = {name: value for name, value in changes.items() if name != "queue"}
    state = state_of(hub, queue=queue)
    await hub.stage.bus.publish(state)
    named = partial(get_or_none, hub.cluster.kube, kinds.WORKLOAD, TENANT, state.name)

    async def names_its_queue() -> bool:
        found = await named()
        return found is not None and found["spec"].get("queueName") == queue

    await eventually(names_its_queue)
    await handled(hub, state)  # With it the decision before is looked at once more.
    before, said = await hub.cluster.contents(), contradictions()
    await hub.stage.bus.publish(decision(state, number=1 + int(said), **changes))
    await eventually(lambda: contradictions() == said + 1)
    assert await hub.cluster.contents() == before


async def test_contradicted_decision_is_not_written_into_a_foreign_workload(hub: Hub) -> None:
    """A Workload that its user made, and whose job another controller starts."""
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    spec = {"queueName": "main", "podSets": [pod_set]}
    made = await hub.make(kinds.WORKLOAD, "theirs", namespace=TENANT, spec=spec)
    await hub.cluster.observes(kinds.WORKLOAD, TENANT, "theirs")
    state = state_of(hub, owner=None, name="theirs", uid=made["metadata"]["uid"])
    await hub.stage.bus.publish(state)
    await handled(hub, state)
    before, said = await hub.cluster.contents(), contradictions()
    await hub.stage.bus.publish(decision(state, number=1 + int(said), cluster_queue="rich"))
    await eventually(lambda: contradictions() == said + 1)
    assert await hub.cluster.contents() == before


def contradictions() -> float:
    labels = {"message": "admission", "reason": "contradiction"}
    return REGISTRY.get_sample_value("sluicegate_refused_messages_total", labels) or 0.0


async def test_status_of_a_queue_that_does_not_exist_changes_no_object(hub: Hub) -> None:
    forged = QueueStatus(
        cluster=HUB, kind="LocalQueue", namespace="kube-system", name="made-up", pending=-1,
        reserving=0, admitted=0, active=True, reason="", message="", at=now(),
    )  # fmt: skip
    before = await hub.cluster.contents()
    await hub.stage.bus.publish(forged)
    real = forged.model_copy(
        update={"namespace": TENANT, "name": "main", "reason": "Ready", "pending": 7}
    )
    await hub.stage.bus.publish(real)

    async def written() -> bool:
        queue = await hub.cluster.kube.get(kinds.LOCAL_QUEUE, TENANT, "main")
        return bool((queue.get("status") or {}).get("pendingWorkloads") == 7)

    await eventually(written)
    after = await hub.cluster.contents()
    assert {name for name in after if after[name] != before.get(name)} == {
        f"LocalQueue {TENANT}/main"
    }
