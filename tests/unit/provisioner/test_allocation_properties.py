"""Invariants of allocation, checked on random histories of TaskRuns and machines."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from services.provisioner.allocation.ledger import AllocationLedger
from services.provisioner.allocation.results import (
    AllocationOutcome,
    Failed,
    Launching,
    LaunchRefused,
    MachineBroken,
    MachineGone,
    MachineObservation,
    MachineUp,
    Placed,
    Waiting,
)
from services.provisioner.config.host_config import (
    DynamicPlatform,
    PlatformConfig,
    PoolPlatform,
    StaticPlatform,
)
from services.provisioner.task_runs.requests import HostRequest
from tests.unit.provisioner.builders import NOON, dynamic, ledger, pool, request, round_, static

Action = tuple[str, int]

CONFIGS: list[PlatformConfig] = [
    static(x=1),
    static(x=2, y=1),
    dynamic(1, timeout=100),
    dynamic(3, timeout=100),
    pool(1, concurrency=2, max_age=120),
    pool(3, concurrency=1, max_age=120),
]
ACTIONS = (
    "arrive", "arrive with a failed host", "end", "up", "broken", "refused", "gone", "vanish", "tick",
    "repeat",
)  # fmt: skip

histories = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 20)), max_size=60)


class Model:
    """One platform with random events. `step` runs a round and checks the invariants."""

    def __init__(self, config: PlatformConfig) -> None:
        self.config = config
        self.ledger: AllocationLedger = ledger()
        self.active: dict[str, HostRequest] = {}
        self.told: dict[str, Placed | Failed] = {}
        """The final result of each TaskRun."""

        self.now = NOON
        self._count = 0

    def act(self, action: Action) -> None:
        what, which = action
        machines = [m for m in self.ledger.machines.values() if self._fits(m.state, what)]
        name = machines[which % len(machines)].name if machines else ""
        match what:
            case "arrive" | "arrive with a failed host":
                self._arrive(which, failed=what != "arrive")
                self.step({})
            case "end":
                if self.active:
                    del self.active[sorted(self.active)[which % len(self.active)]]
                self.step({})
            case "tick":
                self.now += timedelta(seconds=which * 5)
                self.step({})
            case "repeat":
                self.step({})
            case _:
                self.step({name: OBSERVATIONS[what]} if name else {})

    @staticmethod
    def _fits(state: str, what: str) -> bool:
        if what in {"up", "broken", "refused"}:
            return state == "launching"
        return (state == "terminating") == (what == "gone")

    def _arrive(self, age: int, *, failed: bool) -> None:
        self._count += 1
        # Some are older than the TaskRuns that wait already.
        new = request(f"t{self._count:03}", created=age, failed=["x"] if failed else [])
        self.active[new.uid] = new

    def step(self, observations: Mapping[str, MachineObservation]) -> AllocationOutcome:
        before = self.ledger
        outcome = round_(
            config=self.config,
            asking=self.active.values(),
            before=before,
            settled=self.told,
            observations=observations,
            now=self.now,
        )
        self.ledger = outcome.ledger
        self._check_limits()
        self._check_turns(before, outcome)
        for uid in self.active.keys() - self.told.keys():
            assert uid in outcome.results, "every TaskRun has a result"
        for uid, result in outcome.results.items():
            if isinstance(result, Placed | Failed):
                assert uid not in self.told or self.told[uid] == result, (
                    "a final result does not change"
                )
                self.told[uid] = result
        return outcome

    def _check_limits(self) -> None:
        assert self.ledger.slots.keys() <= self.active.keys()
        taken = Counter(slot.host for slot in self.ledger.slots.values())
        match self.config:
            case StaticPlatform(hosts=hosts):
                places = {host.name: host.concurrency for host in hosts}
                assert not self.ledger.machines
            case DynamicPlatform(machines=spec):
                places = dict.fromkeys(self.ledger.machines, 1)
                assert len(self.ledger.machines) <= spec.max_instances
            case PoolPlatform(machines=spec, concurrency=concurrency):
                places = dict.fromkeys(self.ledger.machines, concurrency)
                assert len(self.ledger.machines) <= spec.max_instances
            case _:
                raise AssertionError(self.config)
        assert all(taken[host] <= places.get(host, 0) for host in taken)

    def _check_turns(self, before: AllocationLedger, outcome: AllocationOutcome) -> None:
        """No TaskRun gets a host while an older one waits that could use the same host."""
        waiting = [self.active[uid] for uid, v in outcome.results.items() if isinstance(v, Waiting)]
        ordered_before = {machine.holder for machine in before.machines.values()}
        for uid, result in outcome.results.items():
            served = isinstance(result, Placed) and uid not in before.slots
            # A machine of a pool goes to the oldest TaskRun at the time when it is up.
            served |= isinstance(result, Launching) and isinstance(self.config, DynamicPlatform)
            if uid in ordered_before or not served:
                continue
            for other in waiting:
                if other.queue_key < self.active[uid].queue_key:
                    assert isinstance(result, Placed)
                    assert result.host in other.failed_hosts


OBSERVATIONS: Mapping[str, MachineObservation] = {
    "up": MachineUp(address="10.0.0.1"),
    "broken": MachineBroken(reason="x"),
    "refused": LaunchRefused(reason="x"),
    "gone": MachineGone(),
    "vanish": MachineGone(),
}


@settings(max_examples=300)
@given(st.sampled_from(CONFIGS), histories)
def test_limits_and_order_hold_in_every_history(
    config: PlatformConfig, history: list[Action]
) -> None:
    model = Model(config)
    for action in history:
        model.act(action)


@settings(max_examples=200)
@given(st.sampled_from(CONFIGS), histories)
def test_every_history_ends_with_a_result_for_each_task_run_and_no_machine(
    config: PlatformConfig, history: list[Action]
) -> None:
    model = Model(config)
    for action in history:
        model.act(action)
    asked = set(model.active)
    # From here on nothing fails: machines come up, terminations succeed, builds finish.
    for _ in range(4 * (len(history) + 2)):
        model.step(
            {
                name: MachineUp(address="10.0.0.1")
                if machine.state == "launching"
                else MachineGone()
                for name, machine in model.ledger.machines.items()
                if machine.state != "running"
            }
        )
        for uid in [uid for uid in model.active if uid in model.told]:
            del model.active[uid]
    assert not model.active
    assert asked <= model.told.keys()
    model.now += timedelta(days=1)
    for _ in range(2):
        model.step(dict.fromkeys(model.ledger.machines, MachineGone()))
    assert model.ledger == ledger()
