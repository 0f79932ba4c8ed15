"""Pods that wait and are preempted, while services are killed and the API server and the bus fail.

`test_kinds` plays such worlds in `make test`.
"""

import asyncio
from random import Random

import pytest

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from tests.conformance.seeds.stage import Stage
from tests.simulation.kinds.pods import pod
from tests.simulation.kinds.pods_under_faults import (
    begin,
    play,
    pods_of,
    quota_problems,
    wait_for_the_end,
)
from tests.simulation.long import long


async def drive(stage: Stage, random: Random, problems: list[str]) -> None:
    watching = await begin(stage, problems)
    for number in range(10):
        class_ = random.choice(("low", "high"))
        labels = {PRIORITY_CLASS_LABEL: class_}
        await stage.create(pod(f"{class_}-{number}", labels=labels, seconds=random.randint(5, 60)))
        await asyncio.sleep(random.uniform(0, 10))

    async def all_ended() -> bool:
        return all(has_ended(one) for one in await pods_of(stage))

    await wait_for_the_end(stage, all_ended, [watching])
    left = [one for one in await pods_of(stage) if not has_ended(one)]
    problems += [f"{one['metadata']['name']} has not ended" for one in left]
    problems += await quota_problems(stage)


def has_ended(one: Object) -> bool:
    ended = one["status"].get("phase") in {"Succeeded", "Failed"}
    return ended and not one["metadata"].get("finalizers")


SEEDS = [long(seed) for seed in range(1, 21)]


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_keep_within_quota_and_all_end(seed: int) -> None:
    assert play("pods", seed, drive) == []
