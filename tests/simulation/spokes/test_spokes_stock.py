"""A spoke may run stock Kueue, and a stock Kueue hub may use a Sluicegate spoke, by the same objects."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.spokes.judge import PodObserver, left_behind
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.simulation import DURATION
from shared.integrations import JOB
from shared.kube.port import Kube
from shared.testing.waiting import eventually
from shared.testing.world.world import World
from tests.simulation.spokes.stock_kueue import (
    NAMESPACE,
    ORIGIN,
    StockHub,
    StockSpoke,
    conditions_of,
)

RULES = "queueName: main\n"
MANAGED = "kueue.x-k8s.io/multikueue"
ORDER = "sluicegate.dev/order"
LONG = 63 * "x"
"""A job's name. The name of its Workload is too long for a label."""


def a_job(name: str, *, seconds: int = 60, **spec: object) -> Object:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    annotations = {DURATION: f"{seconds}s"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    job = object_of(kinds.JOB, name, namespace=NAMESPACE, spec={"template": template, **spec})
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    return job


async def queues(kube: Kube, *, cpu: str, check: str | None = None) -> None:
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    flavors = [{"name": "any", "resources": resources}]
    spec: Object = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    }
    if check is not None:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    local = {"clusterQueue": "main"}
    for kind, obj in (
        (kinds.NAMESPACE, object_of(kinds.NAMESPACE, NAMESPACE)),
        (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "any", spec={})),
        (kinds.CLUSTER_QUEUE, object_of(kinds.CLUSTER_QUEUE, "main", spec=spec)),
        (kinds.LOCAL_QUEUE, object_of(kinds.LOCAL_QUEUE, "main", namespace=NAMESPACE, spec=local)),
    ):
        await kube.create(kind, obj)


until = partial(eventually, seconds=600.0, look_seconds=1.0)
"""In the time of the simulated clusters."""


# A spoke with a Kueue of its own ------------------------------------------------------------------


def with_stock_spoke(
    drive: Callable[[MultiClusterSystem, StockSpoke], Awaitable[None]],
    *,
    slots: int,
    besides: str = "",
) -> PodObserver:
    """A hub of ours, the spoke `stock` with Kueue; `besides`: a spoke of ours, too."""
    with World(1) as world:
        spokes = ("stock", *([besides] if besides else []))
        system = MultiClusterSystem(
            world, spokes, rules=RULES, dispatcher={}, beat_seconds=5, kueues=("stock",)
        )
        observer = PodObserver(system.apis, world.loop.time)
        kueue = StockSpoke(system.kubes["stock"], world.now, slots=slots)

        async def act() -> None:
            for cluster, kube in system.kubes.items():
                await queues(kube, cpu="8", check=CHECK if cluster == CLUSTER else None)
            await system.configure()
            system.serve()
            world.outside(kueue.live())
            await asyncio.sleep(30)
            await drive(system, kueue)

        world.run(act)
        assert world.failures == [], "\n".join(world.failures)
    assert observer.problems == [], "no job has two running copies"
    return observer


async def ended_at_home(system: MultiClusterSystem, *names: str) -> bool:
    jobs = [await system.hub.kube.get(kinds.JOB, NAMESPACE, name) for name in names]
    return all((finish := JOB.finish(job)) is not None and finish.success for job in jobs)


def test_kueue_spoke_gets_the_workload_first_and_the_job_after_admission() -> None:
    names = ("one", "two", LONG)

    async def drive(system: MultiClusterSystem, kueue: StockSpoke) -> None:
        for name in names:
            await system.hub.kube.create(kinds.JOB, a_job(name, managedBy=MANAGED))

        async def there() -> list[Object]:
            return (await kueue.kube.list(kinds.JOB, namespace=NAMESPACE)).items

        await until(there)
        [job, *_] = await there()
        workload = await kueue.get(kinds.WORKLOAD, kueue.workload_of(job))
        assert workload is not None
        for copy in (job, workload):
            assert copy["metadata"]["labels"][ORIGIN] == "multikueue"
            assert copy["metadata"]["annotations"][ORDER].startswith(f"{CLUSTER}/")
        assert "managedBy" not in job["spec"], "its own controller is to run it"
        await until(lambda: ended_at_home(system, *names))
        assert kueue.jobs_without == [], "no job comes before its Workload has quota"
        assert len(kueue.admitted) == len(set(kueue.admitted)) == len(names)
        await asyncio.sleep(60)
        assert await left_behind(dict(system.kubes)) == []
        left = (await kueue.kube.list(kinds.WORKLOAD, namespace=NAMESPACE)).items
        assert left == [], "the Workloads go with the jobs"

    observer = with_stock_spoke(drive, slots=1)
    assert {place for places in observer.ran.values() for place in places} == {"stock"}


def test_hub_leaves_admission_to_the_kueue_of_the_spoke() -> None:
    async def drive(system: MultiClusterSystem, kueue: StockSpoke) -> None:
        await system.hub.kube.create(kinds.JOB, a_job("one", managedBy=MANAGED))

        async def mirrored() -> list[Object]:
            return (await kueue.kube.list(kinds.WORKLOAD, namespace=NAMESPACE)).items

        await until(mirrored)
        await asyncio.sleep(120)
        [workload] = await mirrored()
        assert not (workload.get("status") or {}).get("conditions"), "only its Kueue writes there"
        queue = await kueue.kube.get(kinds.CLUSTER_QUEUE, None, "main")
        assert "status" not in queue, "of queues, too"
        assert await kueue.get(kinds.JOB, "one") is None
        kueue.slots = 1
        await until(lambda: ended_at_home(system, "one"))

    with_stock_spoke(drive, slots=0)


def test_workload_evicted_by_a_kueue_spoke_runs_once_on_another_spoke() -> None:
    async def drive(system: MultiClusterSystem, kueue: StockSpoke) -> None:
        await system.hub.kube.create(kinds.JOB, a_job(LONG, seconds=300, managedBy=MANAGED))

        async def runs() -> bool:
            job = await kueue.get(kinds.JOB, LONG)
            return job is not None and JOB.active(job)

        await until(runs)
        await kueue.evict(kueue.admitted[0])
        await until(lambda: ended_at_home(system, LONG))

    observer = with_stock_spoke(drive, slots=1, besides="ours")
    assert observer.ran[NAMESPACE, LONG] == ["stock", "ours"]


# A hub with stock Kueue ---------------------------------------------------------------------------

POD_SETS: list[Object] = [{"name": "main", "count": 1, "template": a_job("x")["spec"]["template"]}]


def with_stock_hub(
    drive: Callable[[System, StockHub], Awaitable[None]], *, cpu: str, names_in: str = "labels"
) -> None:
    """A cluster that Sluicegate admits on; somebody's Kueue sends it work through the API server."""
    with World(1) as world:
        system = System(world, rules=RULES)
        manager = StockHub(system.kube, world.now, names_in=names_in)

        async def act() -> None:
            await queues(system.kube, cpu=cpu)
            for service in ("watcher", "classifier", "quota", "patcher"):
                system.serve(service)
            await asyncio.sleep(30)
            await drive(system, manager)

        world.run(act)
        assert world.failures == [], "\n".join(world.failures)


async def shows(manager: StockHub, name: str, **wanted: str) -> bool:
    workload = await manager.get(kinds.WORKLOAD, name)
    return workload is not None and wanted.items() <= conditions_of(workload).items()


@pytest.mark.parametrize(
    ("name", "names_in"),
    [
        pytest.param("job-one-1234", "labels", id="by a label"),
        pytest.param("job-one-1234", "annotations", id="by an annotation"),
        pytest.param("job-one-" + 245 * "a", "annotations", id="too long for a label"),
    ],
)
def test_kueue_hub_sees_admission_starts_the_job_and_sees_its_end(name: str, names_in: str) -> None:
    async def drive(system: System, manager: StockHub) -> None:
        await manager.mirror(name, POD_SETS, queue="main")
        await until(lambda: shows(manager, name, QuotaReserved="True", Admitted="True"))
        remote = await manager.get(kinds.WORKLOAD, name)
        assert remote is not None
        [assignment] = remote["status"]["admission"]["podSetAssignments"]
        assert (assignment["name"], assignment["flavors"]) == ("main", {"cpu": "any"})

        await manager.start(name, a_job("one", suspend=True))

        async def ended() -> bool:
            job = await manager.get(kinds.JOB, "one")
            return job is not None and (f := JOB.finish(job)) is not None and f.success

        await until(ended)
        await until(lambda: shows(manager, name, Finished="True"))
        workloads = (await system.kube.list(kinds.WORKLOAD, namespace=NAMESPACE)).items
        assert [one["metadata"]["name"] for one in workloads] == [name], "no second one"

        await manager.clean_up(name, "one")

        async def gone() -> bool:
            job, workload = (
                await manager.get(kinds.JOB, "one"),
                await manager.get(kinds.WORKLOAD, name),
            )
            return job is None and workload is None

        await until(gone)

    with_stock_hub(drive, cpu="1", names_in=names_in)


def test_second_workload_of_a_kueue_hub_waits_for_quota_of_the_first() -> None:
    async def drive(system: System, manager: StockHub) -> None:
        del system
        await manager.mirror("job-one-1", POD_SETS, queue="main")
        await until(lambda: shows(manager, "job-one-1", Admitted="True"))
        await manager.mirror("job-two-2", POD_SETS, queue="main")
        await asyncio.sleep(60)
        assert not await shows(manager, "job-two-2", QuotaReserved="True")
        await manager.clean_up("job-one-1", "one")
        await until(lambda: shows(manager, "job-two-2", Admitted="True"))

    with_stock_hub(drive, cpu="1")
