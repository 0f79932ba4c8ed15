"""Document 000: MultiKueue sends PipelineRuns to spoke clusters and distributes the load."""

import asyncio

from services.simulator.scenarios.spokes_judge import Overseer, left_behind
from services.simulator.scenarios.spokes_town import CHECK, SpokesTown, made
from services.simulator.scenarios.town import CLUSTER
from shared.contracts import kinds
from shared.contracts.kinds import Object
from shared.integrations import PIPELINE_RUN, TEKTON_SLOT
from shared.testing.world.world import World
from tests.conformance.seeds.says import says

SPOKES = ("spoke-1", "spoke-2")
NAMESPACE = "my-team-tenant"
QUEUE = "pipelines-queue"
RUNS = 8
SLOTS = 4
"""Of each spoke; the hub's queue has those of all together."""


async def furnish(town: SpokesTown) -> None:
    for cluster in (CLUSTER, *SPOKES):
        hub = cluster == CLUSTER
        resources = [
            {"name": TEKTON_SLOT, "nominalQuota": str(SLOTS * (len(SPOKES) if hub else 1))}
        ]
        flavors = [{"name": "default-flavor", "resources": resources}]
        spec: Object = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [TEKTON_SLOT], "flavors": flavors}],
        }
        if hub:
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK}]}
        local = {"clusterQueue": "cluster-pipeline-queue"}
        for kind, obj in (
            (kinds.NAMESPACE, made(kinds.NAMESPACE, NAMESPACE)),
            (kinds.RESOURCE_FLAVOR, made(kinds.RESOURCE_FLAVOR, "default-flavor", spec={})),
            (kinds.CLUSTER_QUEUE, made(kinds.CLUSTER_QUEUE, "cluster-pipeline-queue", spec=spec)),
            (kinds.LOCAL_QUEUE, made(kinds.LOCAL_QUEUE, QUEUE, namespace=NAMESPACE, spec=local)),
        ):
            await town.kubes[cluster].create(kind, obj)
    await town.configure()


def run(number: int) -> Object:
    task = {"name": "build", "taskSpec": {"steps": [{"name": "work", "image": "none"}]}}
    obj = made(
        kinds.PIPELINE_RUN,
        f"run-{number}",
        namespace=NAMESPACE,
        spec={"pipelineSpec": {"tasks": [task]}},
    )
    wishes = {"duration": "30s", "pods": "true"}
    obj["metadata"]["annotations"] = {f"simulator.sluicegate.dev/{k}": v for k, v in wishes.items()}
    return obj


@says("000:17", "000:21-30")
def test_multikueue_dispatches_pipeline_runs_to_spokes_and_distributes_load_across_them() -> None:
    with World(1) as world:
        rules = f"queueName: {QUEUE}\nmultiKueueOverride: true\n"
        town = SpokesTown(world, SPOKES, rules=rules, dispatcher={}, beat_seconds=5)
        overseer = Overseer(town.apis, world.loop.time)

        async def drive() -> list[Object]:
            await furnish(town)
            town.serve()
            await asyncio.sleep(60)
            for number in range(RUNS):
                await town.hub.kube.create(kinds.PIPELINE_RUN, run(number))
            await asyncio.sleep(300)
            assert await left_behind(dict(town.kubes)) == []
            return (await town.hub.kube.list(kinds.PIPELINE_RUN)).items

        runs = world.run(drive)
        assert world.failures == []
    assert overseer.problems == [], "no run has two running copies"
    finishes = [PIPELINE_RUN.finish(one) for one in runs]
    assert [f is not None and f.success for f in finishes] == [True] * RUNS
    assert all(one["status"]["childReferences"] for one in runs), "the status comes home whole"
    places = [place for found in overseer.ran.values() for place in found]
    assert sorted(set(places)) == list(SPOKES), "none at the hub, some on each spoke"
