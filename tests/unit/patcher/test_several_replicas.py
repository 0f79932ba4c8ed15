"""What one replica's cache does not know yet, because another replica did it."""

import pytest

from shared.bus.headers import TYPE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.conditions import ADMITTED, QUOTA_RESERVED, find_condition, is_true
from shared.contracts.messages.admissions import Admission, AdmissionState, Term
from shared.contracts.messages.base import SCHEMA_VERSION
from shared.contracts.messages.workloads import WorkloadState
from shared.telemetry import probes
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup, projected


async def running(setup: Setup) -> WorkloadState:
    """A job that the patcher released, and that its cache has as released."""
    await setup.flavor()
    state = await setup.submit()
    labels = {"metadata": {"labels": {names.QUEUE: "main"}}}  # Only such jobs are cached.
    await setup.observe(kinds.JOB, await setup.kube.patch(kinds.JOB, "default", "train", labels))
    await eventually(lambda: is_cached(setup))
    await setup.decide(state, "admitted")

    async def released() -> bool:
        return (await setup.job())["spec"]["suspend"] is False

    await eventually(released)
    return state


async def is_cached(setup: Setup) -> bool:
    assert setup.patcher is not None
    return setup.patcher.cache.object(kinds.JOB, "default", "train") is not None


async def is_cached_as_held(setup: Setup) -> bool:
    assert setup.patcher is not None
    job = setup.patcher.cache.object(kinds.JOB, "default", "train")
    return job is not None and bool(job["spec"]["suspend"])


async def stop_as_another_replica(setup: Setup) -> None:
    """Nothing is observed: the watcher is late."""
    await setup.kube.patch(kinds.JOB, "default", "train", {"spec": {"suspend": True}})


async def runs_again(setup: Setup) -> bool:
    return (await setup.job())["spec"]["suspend"] is False


async def test_job_that_another_replica_stopped_is_released_by_the_next_decision(
    setup: Setup,
) -> None:
    state = await running(setup)
    await stop_as_another_replica(setup)
    await setup.decide(state, "admitted")
    await eventually(lambda: runs_again(setup))


async def test_job_stopped_by_another_replica_is_released_by_its_suspended_state(
    setup: Setup,
) -> None:
    state = await running(setup)
    await stop_as_another_replica(setup)
    job = await setup.job()
    version = job["metadata"]["resourceVersion"]
    await setup.bus.publish(projected(job, version=version, generation=1))
    await eventually(lambda: runs_again(setup))
    assert state.uid == job["metadata"]["uid"]


@pytest.mark.parametrize("by", ["the same leader", "the next leader, behind it a void one"])
@pytest.mark.parametrize("is_seen", [True, False], ids=["the stop is seen", "the stop is not seen"])
async def test_state_releases_no_job_by_a_decision_that_is_not_the_last_one(
    setup: Setup, is_seen: bool, by: str
) -> None:
    state = await running(setup)
    setup.server.lags["ADMISSIONS"] = 3600.0  # This replica hears of the next decision too late.
    if by == "the same leader":
        await setup.decide(state, "waiting")
    else:
        await setup.bus.publish(Term(term=2, holder="quota-2", began_at=NOON))
        await setup.decide(state, "waiting", term=2)
        await setup.decide(state, "admitted", term=0)
    await stop_as_another_replica(setup)
    job = await setup.job()
    if is_seen:
        await setup.observe(kinds.JOB, job)
        await eventually(lambda: is_cached_as_held(setup))
    outdated = probes.DECISION_OUTDATED.fired
    version = job["metadata"]["resourceVersion"]
    await setup.bus.publish(projected(job, version=version, generation=1))

    async def is_put_off() -> bool:
        return probes.DECISION_OUTDATED.fired > outdated or await runs_again(setup)

    await eventually(is_put_off)
    assert not await runs_again(setup)


@pytest.mark.parametrize("newer", [False, True], ids=["this release", "a newer release"])
@pytest.mark.parametrize(
    ("known", "condition"),
    [
        pytest.param("waiting", QUOTA_RESERVED, id="a reason to wait"),
        pytest.param("reserved", ADMITTED, id="a reservation"),
    ],
)
async def test_older_decision_takes_back_no_admission_that_another_replica_has_carried_out(
    setup: Setup, known: AdmissionState, condition: str, newer: bool
) -> None:
    """This replica sees the Workload with its quota before it reads the decision, or cannot read that."""
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, known, reason="WaitingForQuota", message="m")

    async def is_written() -> bool:
        return find_condition(await setup.workload(state), QUOTA_RESERVED) is not None

    await eventually(is_written)  # Else it would be written over what follows.
    setup.server.lags["ADMISSIONS"] = 3600.0
    if newer:
        subject = f"sluice.admission.hub.default.{state.name}"
        setup.server.publish(subject, b"{}", {TYPE: Admission.type, SCHEMA_VERSION: "99"})
    else:
        await setup.decide(state, "admitted")
    given = {"status": "True", "message": "m", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    conditions = [{"type": one, "reason": one, **given} for one in (QUOTA_RESERVED, ADMITTED)]
    status = {"status": {"conditions": conditions, "admission": {"clusterQueue": "cq"}}}
    written = await setup.kube.patch(
        kinds.WORKLOAD, "default", state.name, status, subresource="status"
    )
    await setup.observe(kinds.WORKLOAD, written)

    async def is_cached_as_admitted() -> bool:
        assert setup.patcher is not None
        return is_true(setup.patcher.cache.object(kinds.WORKLOAD, "default", state.name), ADMITTED)

    await eventually(is_cached_as_admitted)
    outdated = probes.DECISION_OUTDATED.fired
    job = await setup.job()
    version = job["metadata"]["resourceVersion"]
    await setup.bus.publish(projected(job, version=version, generation=1))

    async def is_decided() -> bool:
        taken_back = not is_true(await setup.workload(state), condition)
        return probes.DECISION_OUTDATED.fired > outdated or taken_back

    await eventually(is_decided)
    assert is_true(await setup.workload(state), condition)


async def test_states_of_a_running_job_are_no_reason_to_read_it(setup: Setup) -> None:
    state = await running(setup)
    read = probes.RELEASE_READ_AFRESH.fired
    job = await setup.job()
    version = job["metadata"]["resourceVersion"]
    running_state = projected(job, version=version, phase="running", pods_active=True)
    await setup.bus.publish(running_state)

    async def seen() -> bool:
        assert setup.patcher is not None
        known = setup.patcher.cache.workload(state.namespace, state.name)
        return known is not None and known.phase == "running"

    await eventually(seen)
    assert probes.RELEASE_READ_AFRESH.fired == read
