"""Document 000: machines outside of the cluster are slots of the queue, and runs wait until one is free."""

from pathlib import Path

import pytest

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, pipeline_run, pool, priority, story
from tests.simulation.machines.machine_park import SERVICES, Park, dynamic

RULES = Path("deploy/examples/konflux/classifier/config.yaml").read_text()
"""The production configuration of the document, unchanged."""

QUEUE = "pipelines-queue"
SLOTS = {
    "tekton.dev/pipelineruns": 200,
    "linux-arm64": 1,
    "linux-s390x": 1,
    "linux-x86-64": 9,
    "aws-ip": 9,
}
CONFIG = {
    "dynamic-platforms": "linux/arm64,linux/s390x",
    "local-platforms": "linux/x86_64,local,localhost",
    **dynamic("linux/arm64", 1),
    **dynamic("linux/s390x", 1),
}
LISTED = "in a parameter of the run"
BY_TASK = "by its tasks"


def build(name: str, *platforms: str, named: str = LISTED) -> Object:
    """A multi-platform build."""
    steps = {"steps": [{"name": "build", "image": "builder"}]}
    matrix = {"params": [{"name": "PLATFORM", "value": "$(params.build-platforms[*])"}]}
    tasks: list[Object] = [{"name": "build", "taskSpec": steps, "matrix": matrix}]
    params = [{"name": "build-platforms", "value": list(platforms)}]
    if named == BY_TASK:
        params = []
        tasks = [
            {
                "name": f"build-{number}",
                "taskSpec": steps,
                "params": [{"name": "PLATFORM", "value": one}],
            }
            for number, one in enumerate(platforms)
        ]
    return pipeline_run(name, seconds=60, params=params, pipelineSpec={"tasks": tasks})


async def task_runs(stage: Stage, run: Object) -> list[Object]:
    found = await stage.kube.list(kinds.TASK_RUN, namespace="team-a")
    return [
        one for one in found.items if one["metadata"]["name"].startswith(run["metadata"]["name"])
    ]


@pytest.mark.parametrize("named", [LISTED, BY_TASK])
@says("000:15", "000:293-295")
@story(rules=RULES, services=SERVICES)
async def test_run_waits_in_the_queue_until_a_machine_of_its_platform_is_free(
    stage: Stage, named: str
) -> None:
    park = Park(stage.system)
    await park.open(CONFIG)
    await stage.create(priority("konflux-default", 400), *pool("builds", SLOTS, local=QUEUE))
    first = await stage.create(build("first", "linux/arm64", named=named))
    await stage.until_admitted(first)
    second = await stage.create(build("second", "linux/arm64", named=named))
    other = await stage.create(build("other", "linux/s390x", "linux/x86_64", named=named))

    waits = await stage.until_waits(second)
    assert "linux-arm64" in waits
    assert await task_runs(stage, second) == [], "it does not compete for the machine: it waits"
    await stage.until_admitted(other)
    await stage.settle(20)
    assert park.alive() == ["linux/arm64", "linux/s390x"]

    await stage.until_admitted(second)
    await stage.until_finished(first, second, other)
    await stage.until(lambda: _nothing(park))
    assert dict(park.most) == {"linux/arm64": 1, "linux/s390x": 1}


async def _nothing(park: Park) -> bool:
    return not park.alive()
