"""Seeds of trouble: whatever happens in between, everybody is told and nothing is left running."""

import asyncio
from collections import Counter
from random import Random

import pytest

from services.provisioner.providers.port import ProviderBusyError, ProviderError
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.effects import HostState, PlatformState
from shared.testing.world.world import Faults
from tests.unit.provisioner.stage import Stage, task_run

FAULTS = Faults(
    until_seconds=240,
    crash=0.03,
    delay=0.05,
    lost_request=0.01,
    lost_answer=0.01,
    kill_every_seconds=40,
    partition_every_seconds=60,
    bus_restart_every_seconds=120,
    skew_seconds=1,
)
PLATFORMS = ("linux/arm64", "linux/arm64", "linux/s390x", "linux/ppc64le", "local", "linux/none")
MAXIMUM = 2
PLACES = 2
TASK_RUNS = 24
SEEDS = 6


class Life:
    """One TaskRun: it comes, waits for its secret, builds, and ends; some are taken away early."""

    def __init__(self, stage: Stage, dice: Random, number: int) -> None:
        self._stage = stage
        self.name = f"b{number:02}"
        platform = dice.choice(PLATFORMS)
        self._obj: Object = task_run(self.name, platform, created=number)
        self._begins = dice.uniform(0, 150)
        self._builds = dice.uniform(1, 40)
        self._impatient = dice.random() < 0.2
        self.told: HostState | None = None

    async def run(self) -> None:
        await asyncio.sleep(self._begins)
        await self._stage.run_task(self._obj)
        if self._impatient:
            await asyncio.sleep(self._builds)
        else:
            self.told = await self._stage.until(
                self.name, "ready", "failed", seconds=3000, look_seconds=1
            )
            await asyncio.sleep(self._builds)
        await self._stage.finish(self._obj)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_every_seed_everybody_is_told_no_limit_breaks_and_nothing_is_left(seed: int) -> None:
    with Stage(seed=seed, faults=FAULTS) as stage:
        stage.cloud.broken_rate = 0.1
        dice = Random(f"provisioner/{seed}")

        async def trouble() -> None:
            for action in ("launch", "find", "terminate", "list") * 4:
                await asyncio.sleep(dice.uniform(0, 30))
                kind = dice.choice([ProviderError, ProviderBusyError])
                stage.cloud.fail_next(
                    action, kind("fake", action, "m", "x"), after=dice.random() < 0.5
                )
                if dice.random() < 0.3 and stage.alive():
                    stage.cloud.lose(dice.choice(stage.alive()))

        async def judge() -> None:
            while True:
                by_platform = Counter(
                    stage.cloud.machines[name].order.platform for name in stage.alive()
                )
                assert all(count <= MAXIMUM for count in by_platform.values()), by_platform
                for platform in ("linux/s390x", "linux/ppc64le"):
                    record = stage.server.latest("HOSTS", stage.record_subject(platform))
                    if record is not None:
                        seats = PlatformState.decode(record.data).seats
                        taken = Counter(seat.host for seat in seats)
                        assert all(count <= PLACES for count in taken.values()), taken
                await asyncio.sleep(0.5)

        async def drive() -> None:
            stage.world.start_faults(bus_restart=stage.server.restart)
            lives = [Life(stage, dice, number) for number in range(TASK_RUNS)]
            judging = asyncio.create_task(judge())
            async with asyncio.TaskGroup() as group:
                group.create_task(trouble())
                for life in lives:
                    group.create_task(life.run())
            # One sweep, and the age of the pool's machines.
            await asyncio.sleep(15 * 60)
            assert not judging.done(), judging.result()
            judging.cancel()
            assert stage.alive() == []
            for life in lives:
                if life.told is not None:
                    assert life.told.secret, "a secret or an error"
                last = await stage.host(life.name)
                assert last is None or last.state == "released", last
            for platform in ("linux/arm64", "linux/s390x", "linux/ppc64le"):
                record = await stage.record(platform)
                if record is not None:
                    assert (record.seats, record.machines) == ([], [])

        stage.play(drive)
