"""A cluster moves from a real Kueue to Sluicegate, and back, while jobs run, hold quota and wait."""

from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.kube.client import HttpKube
from shared.testing.waiting import eventually
from tests.kueue.beside.clusters import Cluster, cluster, given_assets
from tests.kueue.beside.manager import Kueue
from tests.kueue.beside.objects import (
    NAMESPACE,
    conditions_of,
    create,
    get,
    is_complete,
    job,
    listed,
    queues,
    usage,
    workload_of,
)
from tests.kueue.beside.sluicegate import Sluicegate

pytestmark = [pytest.mark.kueue, pytest.mark.timeout(3600)]

BUDGET = "budget"
CHECKED = "checked"
CONTROLLER = "example.com/budget"

until = partial(eventually, seconds=240.0, look_seconds=0.5)


async def checked_queue(kube: HttpKube) -> None:
    """A queue whose workloads need an answer of another controller, which the test plays."""
    await create(kube, kinds.ADMISSION_CHECK, BUDGET, {"controllerName": CONTROLLER})
    active: Object = {
        "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": now(),
    }  # fmt: skip
    patch = {"status": {"conditions": [active]}}
    await kube.patch(kinds.ADMISSION_CHECK, None, BUDGET, patch, subresource="status")
    resources = [{"name": "cpu", "nominalQuota": "2"}]
    flavors = [{"name": "any", "resources": resources}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": BUDGET}]},
    }
    await create(kube, kinds.CLUSTER_QUEUE, CHECKED, spec)
    await create(kube, kinds.LOCAL_QUEUE, CHECKED, {"clusterQueue": CHECKED})


def checked_job(name: str) -> Object:
    made = job(name, seconds=None)
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = CHECKED
    return made


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def answer(kube: HttpKube, name: str) -> None:
    """The other controller says that the check of the job's workload is ready."""
    workload = await workload_of(kube, name)
    assert workload is not None
    state = {
        "name": BUDGET, "state": "Ready", "message": "paid", "lastTransitionTime": now(),
    }  # fmt: skip
    patch = {"status": {"admissionChecks": [state]}}
    where = (kinds.WORKLOAD, NAMESPACE, workload["metadata"]["name"])
    await kube.patch(*where, patch, subresource="status")


async def has(kube: HttpKube, name: str, **wanted: str) -> bool:
    """Whether the Workload of the job has these conditions."""
    found = conditions_of(await workload_of(kube, name))
    return wanted.items() <= found.items()


async def holds(kube: HttpKube, expected: tuple[int, str]) -> bool:
    return await usage(kube) == expected


async def delete_webhooks(kube: HttpKube) -> None:
    """As the guide says: while they exist without their program, nobody can create a job."""
    for kind in (kinds.MUTATING_WEBHOOK, kinds.VALIDATING_WEBHOOK):
        for found in (await kube.list(kind)).items:
            await kube.delete(kind, None, found["metadata"]["name"])


async def take_definitions(kube: HttpKube) -> None:
    """As `kubectl apply --force-conflicts` does: the definitions are Sluicegate's from now on."""
    for found in (await kube.list(kinds.CUSTOM_RESOURCE_DEFINITION)).items:
        patch = {
            "metadata": {"labels": {"app.kubernetes.io/managed-by": "sluice-dev"}},
            "spec": {"conversion": {"strategy": "None", "webhook": None}},
        }
        where = (kinds.CUSTOM_RESOURCE_DEFINITION, None, found["metadata"]["name"])
        await kube.patch(*where, patch)


async def starts(at: Cluster) -> Counter[str]:
    """How often pods of each job began to run."""
    return Counter(name for _, name in at.pods.started)


async def end(kube: HttpKube, name: str) -> None:
    """Delete the job, in the background as clients do."""
    await kube.delete(kinds.JOB, NAMESPACE, name)


async def is_running(at: Cluster, name: str, *, times: int = 1) -> bool:
    return (await starts(at))[name] >= times


async def test_cluster_moves_over_and_back_and_nothing_starts_twice(tmp_path: Path) -> None:
    assets = given_assets()
    async with cluster(assets, tmp_path, "one") as at:
        kube = at.kube
        kueue, sluicegate = Kueue(assets, at), Sluicegate(at)
        await kueue.install()
        with kueue.process():
            await kueue.ready()
            await queues(kube, cpu="2")
            await checked_queue(kube)
            for name in ("run-1", "run-2"):
                await kube.create(kinds.JOB, job(name, seconds=None))
            for name in ("run-1", "run-2"):
                await until(partial(is_running, at, name), kueue.log)
            for name in ("wait-1", "wait-2", "wait-3"):
                await kube.create(kinds.JOB, job(name, seconds=None))
                await until(partial(workload_of, kube, name), kueue.log)
            for name in ("paid", "unpaid"):
                await kube.create(kinds.JOB, checked_job(name))
                await until(partial(has, kube, name, QuotaReserved="True"), kueue.log)
            await answer(kube, "paid")
            await until(partial(is_running, at, "paid"), kueue.log)
            await until(partial(holds, kube, (2, "2")))
        await delete_webhooks(kube)
        await take_definitions(kube)
        before = await starts(at)
        assert before == {"run-1": 1, "run-2": 1, "paid": 1}

        with sluicegate.process():
            await sluicegate.ready()
            await until(partial(holds, kube, (2, "2")), sluicegate.log)
            for name in ("wait-1", "wait-2", "wait-3"):
                await until(partial(has, kube, name, QuotaReserved="False"), sluicegate.log)
            assert await has(kube, "unpaid", QuotaReserved="True", Admitted="False")
            assert await starts(at) == before
            await end(kube, "run-1")
            await until(partial(is_running, at, "wait-1"), sluicegate.log)
            await answer(kube, "unpaid")
            await until(partial(is_running, at, "unpaid"), sluicegate.log)
            await kube.create(kinds.JOB, job("quick", seconds=2, priority="high"))
            await until(partial(is_complete, kube, "quick"), sluicegate.log)
            await until(partial(is_running, at, "wait-1", times=2), sluicegate.log)
            await until(partial(holds, kube, (2, "2")), sluicegate.log)
        before = await starts(at)
        once = dict.fromkeys(("run-1", "run-2", "paid", "unpaid", "quick"), 1)
        assert before == {**once, "wait-1": 2}, "only what a job of higher priority preempted"

        with kueue.process():
            await kueue.ready()
            await until(partial(holds, kube, (2, "2")), kueue.log)
            assert await starts(at) == before
            for name in ("run-2", "wait-1", "wait-2", "wait-3", "paid", "unpaid", "quick"):
                if await get(kube, kinds.JOB, name) is not None:
                    await end(kube, name)
            await until(partial(nothing_waits, kube), kueue.log)
            await until(partial(holds, kube, (0, "0")), kueue.log)


async def nothing_waits(kube: HttpKube) -> bool:
    left = [*await listed(kube, kinds.JOB), *await listed(kube, kinds.WORKLOAD)]
    return not left
