"""Document 000: MultiKueue sends PipelineRuns to spoke clusters and distributes the load."""

import asyncio

from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.spokes.judge import PodObserver, left_behind
from services.simulator.scenarios.system import CLUSTER
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.contracts.simulation import PREFIX
from shared.integrations import PIPELINE_RUN, TEKTON_SLOT
from shared.testing.world.world import World
from tests.conformance.seeds.says import says

SPOKES = ("spoke-1", "spoke-2")
NAMESPACE = "my-team-tenant"
QUEUE = "pipelines-queue"
RUNS = 8
SLOTS = 4
"""Of each spoke; the hub's queue has those of all together."""


async def furnish(system: MultiClusterSystem, *more: str) -> None:
    """Queues on every cluster, with quota of slots and of `more`."""
    for cluster in (CLUSTER, *SPOKES):
        hub = cluster == CLUSTER
        quota = str(SLOTS * (len(SPOKES) if hub else 1))
        resources = [{"name": name, "nominalQuota": quota} for name in (TEKTON_SLOT, *more)]
        flavors = [{"name": "default-flavor", "resources": resources}]
        spec: Object = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [TEKTON_SLOT, *more], "flavors": flavors}],
        }
        if hub:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
        local = {"clusterQueue": "cluster-pipeline-queue"}
        for kind, obj in (
            (kinds.NAMESPACE, object_of(kinds.NAMESPACE, NAMESPACE)),
            (kinds.RESOURCE_FLAVOR, object_of(kinds.RESOURCE_FLAVOR, "default-flavor", spec={})),
            (
                kinds.CLUSTER_QUEUE,
                object_of(kinds.CLUSTER_QUEUE, "cluster-pipeline-queue", spec=spec),
            ),
            (
                kinds.LOCAL_QUEUE,
                object_of(kinds.LOCAL_QUEUE, QUEUE, namespace=NAMESPACE, spec=local),
            ),
        ):
            await system.kubes[cluster].create(kind, obj)
    await system.configure()


def run(number: int) -> Object:
    task = {"name": "build", "taskSpec": {"steps": [{"name": "work", "image": "none"}]}}
    obj = object_of(
        kinds.PIPELINE_RUN,
        f"run-{number}",
        namespace=NAMESPACE,
        spec={"pipelineSpec": {"tasks": [task]}},
    )
    wishes = {"duration": "30s", "pods": "true"}
    obj["metadata"]["annotations"] = {PREFIX + k: v for k, v in wishes.items()}
    return obj


@says("000:17", "000:21-30")
def test_multikueue_dispatches_pipeline_runs_to_spokes_and_distributes_load_across_them() -> None:
    with World(1) as world:
        rules = f"queueName: {QUEUE}\nmultiKueueOverride: true\n"
        system = MultiClusterSystem(world, SPOKES, rules=rules, dispatcher={}, beat_seconds=5)
        observer = PodObserver(system.apis, world.loop.time)

        async def drive() -> list[Object]:
            await furnish(system)
            system.serve()
            await asyncio.sleep(60)
            for number in range(RUNS):
                await system.hub.kube.create(kinds.PIPELINE_RUN, run(number))
            await asyncio.sleep(300)
            assert await left_behind(dict(system.kubes)) == []
            return (await system.hub.kube.list(kinds.PIPELINE_RUN)).items

        runs = world.run(drive)
        assert world.failures == []
    assert observer.problems == [], "no run has two running copies"
    finishes = [PIPELINE_RUN.finish(one) for one in runs]
    assert [f is not None and f.success for f in finishes] == [True] * RUNS
    assert all(one["status"]["childReferences"] for one in runs), "the status comes home whole"
    places = [place for found in observer.ran.values() for place in found]
    assert sorted(set(places)) == list(SPOKES), "none at the hub, some on each spoke"


STEPS = f"""
queueName: {QUEUE}
multiKueueOverride: true
cel:
  expressions:
  - priority("release")
  - resource("linux-arm64", 2)
"""


@says("000:32")
def test_where_multikueue_is_enabled_the_workload_is_dispatched_instead_of_started_here() -> None:
    with World(1) as world:
        system = MultiClusterSystem(world, SPOKES, rules=STEPS, dispatcher={}, beat_seconds=5)

        async def drive() -> tuple[Object, Object, dict[str, list[Object]]]:
            await furnish(system, "linux-arm64")
            for kube in system.kubes.values():
                await kube.create(
                    kinds.WORKLOAD_PRIORITY_CLASS,
                    object_of(kinds.WORKLOAD_PRIORITY_CLASS, "release", value=900),
                )
            system.serve()
            await asyncio.sleep(60)
            held = await system.hub.kube.create(kinds.PIPELINE_RUN, run(1))
            await asyncio.sleep(20)
            [workload] = (await system.hub.kube.list(kinds.WORKLOAD)).items
            runs = {
                place: (await kube.list(kinds.PIPELINE_RUN)).items
                for place, kube in system.kubes.items()
            }
            return held, workload, runs

        held, workload, runs = world.run(drive)
        assert world.failures == []

    assert held["spec"]["status"] == "PipelineRunPending"
    labels, annotations = held["metadata"]["labels"], held["metadata"]["annotations"]
    assert (labels[names.QUEUE], labels[names.PRIORITY_CLASS_LABEL]) == (QUEUE, "release")
    assert annotations[f"{names.REQUESTS_PREFIX}linux-arm64"] == "2"

    assert workload["spec"]["priority"] == 900
    [assignment] = workload["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"] == {TEKTON_SLOT: "1", "linux-arm64": "2"}

    [spoke] = [place for place in SPOKES if runs[place]]
    assert workload["status"]["clusterName"] == spoke
    [copy], [here] = runs[spoke], runs[CLUSTER]
    assert "status" not in copy["spec"], "it is un-paused where it was sent"
    assert here["spec"]["status"] == "PipelineRunPending", "and not here"
