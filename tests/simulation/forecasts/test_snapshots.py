"""What a reader of the streams has at any instant of a world can be simulated: nothing raises or hangs."""

import json
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from types import ModuleType
from typing import Any, Final

import pytest

from services.classifier.projection.policy import DEFAULT_POLICY
from services.console.documents import SimulateRequest
from services.console.whatif import ProposedChange, with_forecast
from services.quota.forecast import RECENT, History, Snapshot
from services.quota.forecast.snapshot import SnapshotReader, finished_runs
from services.simulator.scenarios import basic
from services.simulator.scenarios.port import Verdict
from services.simulator.scenarios.swarm import scenario as swarm
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.world.memory_streams import Stored
from shared.testing.world.world import EPOCH
from tests.simulation.forecasts.futures import explanation_of, ticking

LOGS: Final = ("OBSERVED", "WORKLOADS", "ADMISSIONS")
SNAPSHOTS: Final = 24
LOOKS_MAX: Final = 2_000
"""How often a simulation of these small worlds asks at most whether its time is over."""


@dataclass(slots=True)
class Instant:
    """What was read up to now."""

    snapshot: Snapshot
    history: History
    recent: list[WorkloadState]


def logs_of(
    scenario: ModuleType, seed: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[Stored]]:
    """Play a world; return its logs."""
    systems: list[System] = []

    class Kept(System):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            systems.append(self)

    monkeypatch.setattr(scenario, "System", Kept)
    play: Callable[[int], Verdict] = scenario.play
    play(seed)
    [system] = systems
    return {log: [*system.server.streams[log].messages.values()] for log in LOGS}


def instants(logs: dict[str, list[Stored]], random: Random) -> Iterator[Instant]:
    """Read the logs side by side, each at its own pace, and stop now and then."""
    unread = {log: deque(stored) for log, stored in logs.items()}
    total = sum(map(len, unread.values()))
    stops = set(random.sample(range(total), min(SNAPSHOTS, total)))
    reader = SnapshotReader(EPOCH)
    admissions: list[Admission] = []
    states: list[WorkloadState] = []
    for number in range(total):
        log = random.choices(LOGS, weights=[len(unread[log]) for log in LOGS])[0]
        stored = unread[log].popleft()
        with suppress(ValueError):  # Some worlds have messages that nobody can read.
            body = json.loads(stored.data)
            reader.apply(stored.subject, body)
            if log == "WORKLOADS":
                states.append(WorkloadState.model_validate(body))
            elif ".admission." in stored.subject:
                admissions.append(Admission.model_validate(body))
        if number in stops:
            reader.snapshot.at = stored.time
            yield _instant(reader.snapshot.copy(), admissions, states)


def _instant(
    snapshot: Snapshot, admissions: list[Admission], states: list[WorkloadState]
) -> Instant:
    history = History()
    for run in finished_runs(admissions, states):
        history.add(run)
    begin = snapshot.at - RECENT
    submitted = {state.uid: state for state in states if begin <= state.created_at < snapshot.at}
    return Instant(snapshot, history, [*submitted.values()])


def changes(snapshot: Snapshot) -> Iterator[SimulateRequest]:
    """Nothing, and with each queue: it is removed, or it has more quota."""
    yield SimulateRequest()
    for queue in snapshot.of(kinds.CLUSTER_QUEUE, CLUSTER):
        yield SimulateRequest(remove=[f"ClusterQueue/{queue.name}"])
        larger = json.loads(json.dumps(queue.object))
        for group in larger["spec"]["resourceGroups"]:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    resource["nominalQuota"] = "64"
        yield SimulateRequest(manifests=[larger])


def limit() -> Callable[[], bool]:
    """Whether a simulation asks too often whether its time is over."""
    looks = count()
    return lambda: next(looks) > LOOKS_MAX


WORLDS = [
    pytest.param(basic, 3, id="basic"),
    pytest.param(swarm, 2, id="swarm"),
    pytest.param(swarm, 7, id="another swarm", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("scenario", "seed"), WORLDS)
def test_every_instant_of_a_world_can_be_simulated(
    scenario: ModuleType, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(f"instants/{seed}")
    asked = 0
    for instant in instants(logs_of(scenario, seed, monkeypatch), random):
        snapshot, history = instant.snapshot, instant.history
        request = random.choice([*changes(snapshot)])
        change = ProposedChange(request, DEFAULT_POLICY, cluster=CLUSTER)
        answer = change.simulate(
            snapshot, history, shows=lambda _: True, guesses=True, over=limit()
        )
        waiting = sum(queue.workloads for queue in answer.before.queues.values())
        for state in random.sample([*snapshot.workloads.values()], min(2, waiting)):
            forecast = with_forecast(
                explanation_of(state),
                snapshot,
                history=history,
                recent=instant.recent,
                budget=ticking(0.1),
            )
            assert forecast.name == state.name
            asked += 1
    assert asked > SNAPSHOTS // 2, "worlds have workloads that wait"
