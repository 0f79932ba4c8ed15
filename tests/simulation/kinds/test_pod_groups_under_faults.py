"""Groups whose pods fail and are preempted, and whose user makes up for them, while services are killed.

`test_kinds` plays such worlds in `make test`.
"""

import asyncio
from random import Random

import pytest

from shared.contracts.kube.conditions import is_true
from shared.contracts.kube.kinds import WORKLOAD, Object
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL
from shared.contracts.simulation import OUTCOME
from shared.kube.port import KubeError
from tests.conformance.seeds.stage import Stage
from tests.simulation.kinds.pods import GROUP, is_gated, member
from tests.simulation.kinds.pods_under_faults import (
    begin,
    play,
    pods_of,
    quota_problems,
    wait_for_the_end,
)
from tests.simulation.long import long

SIZES = {"a": 2, "b": 3, "c": 1, "d": 2}


class User:
    """Makes the pods of each group, and another one for each that is lost."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage, self._random = stage, random
        self._made = 0

    async def begin(self, group: str) -> None:
        for _ in range(SIZES[group]):
            await self._make(group)

    async def _make(self, group: str) -> None:
        self._made += 1
        fails = {OUTCOME: "fail"} if self._made % 4 == 0 else {}
        obj = member(
            f"{group}-{self._made}",
            SIZES[group],
            group=group,
            seconds=self._random.randint(5, 40),
            annotations=fails,
            labels={PRIORITY_CLASS_LABEL: "high" if group in "bd" else "low"},
        )
        await self._stage.create(obj)

    async def look_after(self) -> None:
        """Replace what failed or was deleted, in groups that have not ended."""
        while True:
            await asyncio.sleep(5.0)
            try:
                ended = await self._ended()
                found = await pods_of(self._stage)
            except KubeError:
                continue
            for group, size in SIZES.items():
                here = [one for one in found if one["metadata"]["labels"].get(GROUP) == group]
                missing = size - sum(map(_counts, here))
                if here and missing > 0 and group not in ended:
                    await self._make(group)

    async def _ended(self) -> set[str]:
        found = (await self._stage.kube.list(WORKLOAD, namespace="team-a")).items
        return {one["metadata"]["name"] for one in found if is_true(one, "Finished")}

    async def all_ended(self) -> bool:
        return await self._ended() == SIZES.keys()


def _counts(pod: Object) -> bool:
    if pod["status"].get("phase") == "Succeeded":
        return True
    return pod["status"].get("phase") != "Failed" and "deletionTimestamp" not in pod["metadata"]


def _is_left(pod: Object) -> bool:
    return is_gated(pod) or bool(pod["metadata"].get("finalizers"))


async def drive(stage: Stage, random: Random, problems: list[str]) -> None:
    tasks = [await begin(stage, problems)]
    user = User(stage, random)
    for group in SIZES:
        await user.begin(group)
        await asyncio.sleep(random.uniform(0, 20))
    tasks.append(asyncio.create_task(user.look_after()))
    await wait_for_the_end(stage, user.all_ended, tasks)
    if not await user.all_ended():
        problems.append("a group has not ended")
    problems += [
        f"{one['metadata']['name']} is left" for one in await pods_of(stage) if _is_left(one)
    ]
    problems += await quota_problems(stage)


SEEDS = [long(seed) for seed in range(1, 41)]


@pytest.mark.parametrize("seed", SEEDS)
def test_groups_keep_within_quota_and_all_end(seed: int) -> None:
    assert play("groups", seed, drive) == []
