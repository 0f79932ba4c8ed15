"""What holds for every history of TaskRuns and machines, not only for those we thought of."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from services.provisioner.allocation.ledger import Book
from services.provisioner.allocation.results import (
    Broken,
    Failed,
    Gone,
    Launching,
    Outcome,
    Placed,
    Refused,
    Sighting,
    Up,
    Waiting,
)
from services.provisioner.config.host_config import (
    DynamicPlatform,
    PlatformConfig,
    PoolPlatform,
    StaticPlatform,
)
from services.provisioner.task_runs.requests import Request
from tests.unit.provisioner.builders import NOON, book, dynamic, pool, request, round_, static

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
    """A platform under fire; `step` checks what must hold after every round."""

    def __init__(self, config: PlatformConfig) -> None:
        self.config = config
        self.book: Book = book()
        self.active: dict[str, Request] = {}
        self.told: dict[str, Placed | Failed] = {}
        """What each TaskRun was told last, if it was final."""

        self.now = NOON
        self._count = 0

    def act(self, action: Action) -> None:
        what, which = action
        machines = [m for m in self.book.machines.values() if self._fits(m.state, what)]
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
                self.step({name: SIGHTINGS[what]} if name else {})

    @staticmethod
    def _fits(state: str, what: str) -> bool:
        if what in {"up", "broken", "refused"}:
            return state == "launching"
        return (state == "terminating") == (what == "gone")

    def _arrive(self, age: int, *, failed: bool) -> None:
        self._count += 1
        # Some are older than those who wait already.
        new = request(f"t{self._count:03}", created=age, failed=["x"] if failed else [])
        self.active[new.uid] = new

    def step(self, sightings: Mapping[str, Sighting]) -> Outcome:
        before = self.book
        outcome = round_(
            config=self.config,
            asking=self.active.values(),
            before=before,
            settled=self.told,
            sightings=sightings,
            now=self.now,
        )
        self.book = outcome.book
        self._check_limits()
        self._check_turns(before, outcome)
        for uid in self.active.keys() - self.told.keys():
            assert uid in outcome.verdicts, "everybody is told something"
        for uid, verdict in outcome.verdicts.items():
            if isinstance(verdict, Placed | Failed):
                assert uid not in self.told or self.told[uid] == verdict, "what was said stays said"
                self.told[uid] = verdict
        return outcome

    def _check_limits(self) -> None:
        assert self.book.seats.keys() <= self.active.keys()
        taken = Counter(seat.host for seat in self.book.seats.values())
        match self.config:
            case StaticPlatform(hosts=hosts):
                places = {host.name: host.concurrency for host in hosts}
                assert not self.book.machines
            case DynamicPlatform(machines=spec):
                places = dict.fromkeys(self.book.machines, 1)
                assert len(self.book.machines) <= spec.max_instances
            case PoolPlatform(machines=spec, concurrency=concurrency):
                places = dict.fromkeys(self.book.machines, concurrency)
                assert len(self.book.machines) <= spec.max_instances
            case _:
                raise AssertionError(self.config)
        assert all(taken[host] <= places.get(host, 0) for host in taken)

    def _check_turns(self, before: Book, outcome: Outcome) -> None:
        """Nobody is served in a round in which somebody older, who could use the same, still waits."""
        waiting = [
            self.active[uid] for uid, v in outcome.verdicts.items() if isinstance(v, Waiting)
        ]
        ordered_before = {machine.holder for machine in before.machines.values()}
        for uid, verdict in outcome.verdicts.items():
            served = isinstance(verdict, Placed) and uid not in before.seats
            # A machine of a pool is for whoever is the oldest when it is up.
            served |= isinstance(verdict, Launching) and isinstance(self.config, DynamicPlatform)
            if uid in ordered_before or not served:
                continue
            for other in waiting:
                if other.turn < self.active[uid].turn:
                    assert isinstance(verdict, Placed)
                    assert verdict.host in other.failed_hosts


SIGHTINGS: Mapping[str, Sighting] = {
    "up": Up(address="10.0.0.1"),
    "broken": Broken(reason="x"),
    "refused": Refused(reason="x"),
    "gone": Gone(),
    "vanish": Gone(),
}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CONFIGS), histories)
def test_limits_and_turns_hold_in_every_history(
    config: PlatformConfig, history: list[Action]
) -> None:
    model = Model(config)
    for action in history:
        model.act(action)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CONFIGS), histories)
def test_every_task_run_ends_with_a_secret_or_an_error_and_no_machine_stays(
    config: PlatformConfig, history: list[Action]
) -> None:
    model = Model(config)
    for action in history:
        model.act(action)
    asked = set(model.active)
    # From here on the world is kind: machines come up, ends succeed, builds finish.
    for _ in range(4 * (len(history) + 2)):
        model.step(
            {
                name: Up(address="10.0.0.1") if machine.state == "launching" else Gone()
                for name, machine in model.book.machines.items()
                if machine.state != "running"
            }
        )
        for uid in [uid for uid in model.active if uid in model.told]:
            del model.active[uid]
    assert not model.active
    assert asked <= model.told.keys()
    model.now += timedelta(days=1)
    for _ in range(2):
        model.step(dict.fromkeys(model.book.machines, Gone()))
    assert model.book == book()
