"""PipelineRuns that are stopped and made anew, while everything else goes wrong too."""

import asyncio
from collections import Counter
from random import Random

import pytest

from services.simulator.scenarios.basic import faults_of
from services.simulator.scenarios.system import System
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.integrations import PIPELINE_RUN
from shared.testing.world.world import World
from tests.conformance.seeds.stage import Stage, pipeline_run, pool, priority

SLOT = "tekton.dev/pipelineruns"
END_SECONDS = 1500.0


def root(run: Object) -> str:
    """The run that its user created."""
    metadata = run["metadata"]
    return str((metadata.get("annotations") or {}).get(names.RECREATED_FIRST) or metadata["name"])


async def runs_of(stage: Stage) -> list[Object]:
    return (await stage.kube.list(kinds.PIPELINE_RUN, namespace="team-a")).items


async def submit(stage: Stage, random: Random) -> int:
    coming = sorted(
        (random.uniform(0, 60), class_, number)
        for class_, count in (("low", 5), ("middle", 3), ("high", 3))
        for number in range(count)
    )
    for at, class_, number in coming:
        await asyncio.sleep(max(0.0, at - stage.now()))
        labels = {names.PRIORITY_CLASS_LABEL: class_}
        seconds = random.randint(5, 40)
        await stage.kube.create(
            kinds.PIPELINE_RUN,
            pipeline_run(f"{class_}-{number}", labels=labels, seconds=seconds),
        )
    return len(coming)


async def watch_lineages(stage: Stage, problems: list[str]) -> None:
    """Of one lineage no two run at the same time, whatever happens."""
    while True:
        running = Counter(root(run) for run in await runs_of(stage) if PIPELINE_RUN.active(run))
        problems += [f"{name} runs {n} times at once" for name, n in running.items() if n > 1]
        await asyncio.sleep(0.2)


async def drive(stage: Stage, random: Random, problems: list[str]) -> int:
    queue = pool(
        "builds",
        {SLOT: 2},
        local="pipelines-queue",
        preemption={"withinClusterQueue": "LowerPriority"},
    )
    queue[-1]["metadata"]["annotations"] = {names.ON_PREEMPTION: names.STOP_AND_RECREATE}
    classes = [priority("low", 1), priority("middle", 50), priority("high", 100)]
    await stage.create(*queue, *classes)
    for service in ("watcher", "classifier", "quota", "patcher"):
        stage.system.serve(service)
    stage.system.start_faults()
    watching = asyncio.create_task(watch_lineages(stage, problems))
    created = await submit(stage, random)
    while stage.now() < END_SECONDS:
        runs = await runs_of(stage)
        if stage.system.world.calm and all(PIPELINE_RUN.finish(run) is not None for run in runs):
            break
        await asyncio.sleep(1.0)
    watching.cancel()
    await judge(stage, problems)
    return created


async def judge(stage: Stage, problems: list[str]) -> None:
    runs = await runs_of(stage)
    finishes = {run["metadata"]["name"]: PIPELINE_RUN.finish(run) for run in runs}
    problems += [f"{name} has not ended" for name, end in finishes.items() if end is None]
    ends = Counter(
        root(run)
        for run in runs
        if (end := finishes[run["metadata"]["name"]]) is not None and end.success
    )
    for name in sorted({root(run) for run in runs}):
        if ends[name] != 1:
            problems.append(f"{name} was done {ends[name]} times")
    sources = Counter(
        (run["metadata"].get("annotations") or {}).get(names.RECREATED_FROM) for run in runs
    )
    del sources[None]
    problems += [f"{source} has {n} copies" for source, n in sources.items() if n > 1]


@pytest.mark.parametrize("seed", range(1, 7))
def test_each_run_finishes_once_and_copies_never_run_concurrently(seed: int) -> None:
    random = Random(f"recreation/{seed}")
    problems: list[str] = []
    with World(seed, faults=faults_of(random)) as world:
        stage = Stage(System(world))
        created = world.run(lambda: drive(stage, random, problems))
        assert problems + world.failures == []
        assert created == 11
