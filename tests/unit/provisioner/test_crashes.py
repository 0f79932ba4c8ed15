"""Random faults: every TaskRun gets a result, no limit is exceeded, nothing is left running."""

import asyncio
from collections import Counter
from random import Random

import pytest

from services.provisioner.providers.port import ProviderBusyError, ProviderError
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.hosts import HostState, PlatformState
from shared.testing.world.world import Faults
from tests.unit.provisioner.harness import ProvisionerHarness, task_run

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


class TaskRunLife:
    """One TaskRun from creation to end. Some end before they have a host."""

    def __init__(self, harness: ProvisionerHarness, dice: Random, number: int) -> None:
        self._harness = harness
        self.name = f"b{number:02}"
        platform = dice.choice(PLATFORMS)
        self._obj: Object = task_run(self.name, platform, created=number)
        self._starts_after = dice.uniform(0, 150)
        self._build_seconds = dice.uniform(1, 40)
        self._ends_early = dice.random() < 0.2
        self.final_state: HostState | None = None

    async def run(self) -> None:
        await asyncio.sleep(self._starts_after)
        await self._harness.observe_task_run(self._obj)
        if self._ends_early:
            await asyncio.sleep(self._build_seconds)
        else:
            self.final_state = await self._harness.wait_for(
                self.name, "ready", "failed", seconds=3000, look_seconds=1
            )
            await asyncio.sleep(self._build_seconds)
        await self._harness.finish_task_run(self._obj)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_break_no_limit_lose_no_result_and_leave_no_machine(seed: int) -> None:
    with ProvisionerHarness(seed=seed, faults=FAULTS) as harness:
        harness.cloud.broken_rate = 0.1
        dice = Random(f"provisioner/{seed}")

        async def inject_faults() -> None:
            for action in ("launch", "find", "terminate", "list") * 4:
                await asyncio.sleep(dice.uniform(0, 30))
                kind = dice.choice([ProviderError, ProviderBusyError])
                harness.cloud.fail_next(
                    action, kind("fake", action, "m", "x"), after=dice.random() < 0.5
                )
                if dice.random() < 0.3 and harness.living_machines():
                    harness.cloud.lose(dice.choice(harness.living_machines()))

        async def judge() -> None:
            while True:
                by_platform = Counter(
                    harness.cloud.machines[name].order.platform
                    for name in harness.living_machines()
                )
                assert all(count <= MAXIMUM for count in by_platform.values()), by_platform
                for platform in ("linux/s390x", "linux/ppc64le"):
                    record = harness.server.latest("HOSTS", harness.record_subject(platform))
                    if record is not None:
                        seats = PlatformState.decode(record.data).seats
                        taken = Counter(seat.host for seat in seats)
                        assert all(count <= PLACES for count in taken.values()), taken
                await asyncio.sleep(0.5)

        async def scenario() -> None:
            harness.world.start_faults(bus_restart=harness.server.restart)
            lives = [TaskRunLife(harness, dice, number) for number in range(TASK_RUNS)]
            judging = asyncio.create_task(judge())
            async with asyncio.TaskGroup() as group:
                group.create_task(inject_faults())
                for life in lives:
                    group.create_task(life.run())
            # One sweep, and the age of the pool's machines.
            await asyncio.sleep(15 * 60)
            assert not judging.done(), judging.result()
            judging.cancel()
            assert harness.living_machines() == []
            for life in lives:
                if life.final_state is not None:
                    assert life.final_state.secret, "a secret or an error"
                last = await harness.published_state(life.name)
                assert last is None or last.state == "released", last
            for platform in ("linux/arm64", "linux/s390x", "linux/ppc64le"):
                record = await harness.platform_record(platform)
                if record is not None:
                    assert (record.seats, record.machines) == ([], [])

        harness.run(scenario)
