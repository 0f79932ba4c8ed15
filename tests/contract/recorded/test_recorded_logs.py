"""The services begin on the logs of earlier releases and of this one: nothing is lost, nobody is doubled."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import pytest

from services.patcher.cluster.cache import ObjectCache
from services.simulator.judge import checks
from services.simulator.judge.message_logs import LOGS, read_logs
from services.simulator.scenarios.swarm.releases import FORWARD_SECONDS, Rollout
from services.simulator.scenarios.system import CLUSTER
from shared.bus.port import Entry
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.explain import ExplainAnswer, ExplainRequest
from shared.contracts.messages.hosts import HostState
from shared.contracts.messages.outcomes import DeadLetter, Outcome
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.testing.waiting import PATIENCE_SECONDS
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import World
from tests.contract.recorded.judge import (
    decisions,
    held,
    identities,
    objects_in,
    places,
    states,
    unended,
    usage,
    workloads,
)
from tests.contract.recorded.logs import FOLDER, Recording, read_file
from tests.contract.recorded.scene import SERVICES, TEAM, Scene

RELEASES: Final = sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.jsonl.gz"))
LATER: Final = timedelta(seconds=5)
"""How long after its end a recording is begun on."""

SEED: Final = 2
"""Not that of the recorded worlds: clusters must not give the same uids again."""

SETTLE_SECONDS: Final = 60.0
ROLLOUTS: Final = (6, 8)
"""Seeds: which process is replaced when. The schemas of WORKLOADS, ADMISSIONS and CHECKS are raised, or those
of OBSERVED, ADMISSIONS and OUTCOMES."""

ENDED: Final = ((kinds.JOB, "older"), (kinds.JOB, "far-first"), (kinds.PIPELINE_RUN, "build"))
"""What holds quota, a spoke and a host; a user deletes it."""

WAITED: Final = ("job-far-waiting-", "pipelinerun-without-host-")
"""Prefixes of the workloads that are admitted then."""

QUOTA_BEGINS: Final = ("on all logs", "before any status of a Workload is written")

Drive = Callable[[Scene], Coroutine[Any, Any, None]]


@pytest.fixture(params=RELEASES)
def recording(request: pytest.FixtureRequest) -> Recording:
    return read_file(request.param)


def play(recording: Recording, drive: Drive) -> None:
    """Run `drive` on a scene that begins on the recording; no service may fail or report an error."""
    with World(SEED, epoch=recording.until + LATER) as world:
        scene = Scene(world)

        async def begin() -> None:
            scene.begin_on(recording)
            await drive(scene)

        world.run(begin)
        assert world.failures == []
        wrong = (" error: ", "skipping what cannot be read")
        assert [line for line in world.log if any(words in line for words in wrong)] == []
        assert written(scene, DeadLetter.stream) == []


def written(scene: Scene, stream: str, *, after: int = 0) -> list[Entry]:
    """Return the messages of a log, as whoever knows all releases of the world reads them."""
    found = scene.server.streams[stream].messages.values()
    read = scene.system.hub.newest.read
    return [read(one.entry()) for one in found if one.sequence > after]


def is_as_recorded(scene: Scene, recording: Recording) -> None:
    """The same is held, counted, placed and there, and at no time was it otherwise."""
    log = recording.log(Admission.stream)
    made = decisions(written(scene, Admission.stream))
    assert held(made) == held(decisions(log))
    before = states(decisions(log))
    later = decisions(written(scene, Admission.stream, after=log[-1].sequence))
    assert [one for one in later if one.state != before.get(one.ref)] == []
    counted = usage(written(scene, QueueStatus.stream))
    assert counted == usage(recording.log(QueueStatus.stream))
    assert workloads(written(scene, WorkloadState.stream)) == workloads(
        recording.log(WorkloadState.stream)
    )
    now = places(written(scene, Dispatch.stream), written(scene, HostState.stream))
    assert now == places(recording.log(Dispatch.stream), recording.log(HostState.stream))
    for cluster, objects in recording.clusters.items():
        assert identities(objects_in(scene.system.apis[cluster])) == identities(objects)


async def goes_on(scene: Scene, recording: Recording) -> None:
    """What waited takes what is given back: quota, a spoke and a host."""
    await give_back(scene)
    await asyncio.sleep(2 * SETTLE_SECONDS)
    took_what_was_given_back(scene, recording)


async def give_back(scene: Scene) -> None:
    for kind, name in ENDED:
        await scene.system.hub.kube.delete(kind, TEAM, name)


def took_what_was_given_back(scene: Scene, recording: Recording) -> None:
    """What waited is admitted, and no decision of any release contradicts another one."""
    made = decisions(written(scene, Admission.stream))
    admitted = [ref.name for ref, state in states(made).items() if state == "admitted"]
    for prefix in WAITED:
        assert any(name.startswith(prefix) for name in admitted), prefix
    known = {one.name for one in decisions(recording.log(Admission.stream))}
    assert {one.name for one in made} == known, "nothing is given another name"
    message_logs = read_logs(one for log in LOGS for one in written(scene, log))
    for check in checks.ALWAYS:
        assert check(message_logs) == []


# --- what is recorded ---


def test_recording_has_every_state_of_a_workload_checks_spokes_and_hosts(
    recording: Recording,
) -> None:
    made = decisions(recording.log(Admission.stream))
    assert {one.state for one in made} == {"waiting", "reserved", "admitted", "evicted", "released"}
    assert {one.reason for one in made if one.state == "released"} == {"Finished", "Gone"}
    assert {one.cluster for one in made} == {"hub", "east", "west"}
    assert {one.spoke for one in made if one.state == "admitted"} >= {"east", "west"}
    checks = [one.read(CheckState) for one in recording.log(CheckState.stream)]
    assert {one.state for one in checks} == {"Pending", "Ready"}
    placed = places(recording.log(Dispatch.stream), recording.log(HostState.stream))
    assert any(isinstance(seats, list) and seats for seats in placed.values())
    assert recording.log(Outcome.stream)


# --- one service ---


async def known_to_quota(scene: Scene, refs: set[WorkloadRef]) -> set[WorkloadRef]:
    """Return those of these workloads that quota can say something about."""
    bus = MemoryBus(scene.server, instance="asker")
    await bus.start()
    known = set()
    for ref in refs:
        question = ExplainRequest(cluster=ref.cluster, namespace=ref.namespace, name=ref.name)
        data = await bus.request(
            ExplainRequest.subject,
            question.model_dump_json().encode(),
            timeout_seconds=PATIENCE_SECONDS,
        )
        items = ExplainAnswer.model_validate_json(data).items
        known |= {WorkloadRef(one.cluster, one.namespace, one.name) for one in items}
    await bus.stop()
    return known


def before_any_status(recording: Recording) -> Recording:
    """Return it without what the Workload objects of what has not ended say of their admission.

    Of each of these the log has only the first state: who holds what, the decisions alone say.
    """
    there = workloads(recording.log(WorkloadState.stream), without=("finished", "gone"))
    seen: set[str] = set()
    messages = []
    for one in recording.messages:
        if one.stream == WorkloadState.stream and one.entry.read(WorkloadState).ref in there:
            if one.subject not in seen:
                messages.append(replace(one, in_view=True))
            seen.add(one.subject)
        else:
            messages.append(one)
    return replace(recording, messages=tuple(messages))


@pytest.mark.parametrize("begun_on", [lambda whole: whole, before_any_status], ids=QUOTA_BEGINS)
def test_quota_begins_a_term_and_holds_exactly_what_the_last_decisions_say(
    recording: Recording, begun_on: Callable[[Recording], Recording]
) -> None:
    recording = begun_on(recording)

    async def drive(scene: Scene) -> None:
        for stream in (scene.server.streams[QueueStatus.stream], scene.server.view("QUEUES")):
            stream.truncate(0)  # It counts anew.
        scene.system.hub.serve("quota")
        await asyncio.sleep(SETTLE_SECONDS)
        is_as_recorded(scene, recording)
        there = set(workloads(recording.log(WorkloadState.stream)))
        assert await known_to_quota(scene, there) == there

    play(recording, drive)


CACHED: Final = {
    kind.kind: kind
    for kind in (
        kinds.WORKLOAD,
        kinds.CLUSTER_QUEUE,
        kinds.LOCAL_QUEUE,
        kinds.JOB,
        kinds.PIPELINE_RUN,
    )
}


def test_cache_of_the_patcher_knows_what_has_not_ended_and_every_decision(
    recording: Recording,
) -> None:
    async def drive(scene: Scene) -> None:
        bus = MemoryBus(scene.server, instance="patcher")
        cache = ObjectCache(bus=bus, cluster=CLUSTER)
        await bus.start()
        runs = (cache.run_observed, cache.run_workloads, cache.run_admissions)
        following = [asyncio.create_task(run()) for run in runs]
        await asyncio.sleep(1)
        assert cache.not_synced() is None
        for kind, namespace, name, uid in identities(unended(recording.clusters[CLUSTER])):
            if kind in CACHED:
                obj = cache.object(CACHED[kind], namespace or None, name)
                assert obj is not None, f"{kind} {name}"
                assert obj["metadata"]["uid"] == uid
        log = recording.log(WorkloadState.stream)
        there = workloads(log, without=("finished", "gone"))
        for ref in there:
            if ref.cluster == CLUSTER:
                assert cache.workload(ref.namespace, ref.name) is not None, ref
        last = {one.ref: one for one in decisions(recording.log(Admission.stream))}
        for ref, decision in last.items():
            if ref.cluster == CLUSTER and ref in there:
                assert cache.admission(ref.namespace, ref.name) == decision
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)

    play(recording, drive)


# --- all services ---


def test_all_services_begin_and_lose_nothing(recording: Recording) -> None:
    async def drive(scene: Scene) -> None:
        scene.serve()
        await asyncio.sleep(SETTLE_SECONDS)
        is_as_recorded(scene, recording)
        await goes_on(scene, recording)

    play(recording, drive)


def replaced(scene: Scene, seed: int) -> Coroutine[Any, Any, None]:
    """Start two replicas of each service; return what upgrades and downgrades one after the other."""
    rollout = Rollout(scene.system.hub, Random(f"recorded/{seed}"), back=True)
    processes = [
        scene.system.hub.serve(
            service, replica=one, dialect=partial(rollout.dialect_of, f"{service}-{one}")
        ).name
        for service in SERVICES
        for one in (1, 2)
    ]
    processes.append(scene.serve_hosts(rollout.dialect_of))
    scene.system.serve_spokes()
    return rollout.run(processes)


@pytest.mark.parametrize("seed", ROLLOUTS, ids="rollout {}".format)
def test_rolling_upgrade_and_downgrade_lose_nothing(recording: Recording, seed: int) -> None:
    async def drive(scene: Scene) -> None:
        await replaced(scene, seed)
        await asyncio.sleep(SETTLE_SECONDS)
        is_as_recorded(scene, recording)
        await goes_on(scene, recording)

    play(recording, drive)


@pytest.mark.parametrize("seed", ROLLOUTS, ids="rollout {}".format)
def test_what_the_next_release_decided_holds_after_the_downgrade(
    recording: Recording, seed: int
) -> None:
    async def drive(scene: Scene) -> None:
        rolling = asyncio.create_task(replaced(scene, seed))
        await asyncio.sleep(FORWARD_SECONDS[1] + 1)
        await give_back(scene)
        await rolling
        await asyncio.sleep(2 * SETTLE_SECONDS)
        took_what_was_given_back(scene, recording)

    play(recording, drive)
