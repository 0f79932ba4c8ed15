"""What the patcher writes for each decision, also if it repeats its steps."""

import asyncio

import pytest

from shared.contracts.kube import kinds, names
from shared.contracts.kube.names import MIN_PARALLELISM
from shared.settings.configuration import Configuration, Integrations
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup, projected


async def test_waiting_job_gets_a_workload_object(setup: Setup) -> None:
    state = await setup.submit()
    await eventually(lambda: setup.workload(state))
    obj = await setup.workload(state)
    assert obj is not None
    assert obj["metadata"]["ownerReferences"][0]["uid"] == state.uid
    assert obj["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert obj["spec"]["queueName"] == "main"


async def test_workload_gets_the_labels_of_its_job_that_are_configured(setup: Setup) -> None:
    await setup.kill_patcher()
    integrations = Integrations(label_keys_to_copy=("team", "absent"))
    setup.configuration = Configuration(integrations=integrations)
    await setup.start_patcher()
    state = await setup.submit(labels={"team": "a", "other": "b"})
    await eventually(lambda: setup.workload(state))
    obj = await setup.workload(state)
    assert obj is not None
    assert obj["metadata"]["labels"] == {"team": "a", names.JOB_UID_LABEL: state.uid}


TRACE = "00-11111111111111111111111111111111-2222222222222222-01"


@pytest.mark.parametrize(("written", "kept"), [(TRACE, TRACE), ("x" * 9_000, None)])
async def test_workload_gets_the_trace_of_its_job_if_it_is_one(
    setup: Setup, written: str, kept: str | None
) -> None:
    state = await setup.submit(annotations={names.TRACEPARENT_ANNOTATION: written})
    await eventually(lambda: setup.workload(state))
    obj = await setup.workload(state)
    assert obj is not None
    assert obj["metadata"].get("annotations", {}).get(names.TRACEPARENT_ANNOTATION) == kept


async def test_workload_that_another_job_controls_is_removed_and_not_adopted(
    setup: Setup,
) -> None:
    state = await setup.submit()
    await eventually(lambda: setup.workload(state))
    made = await setup.workload(state)
    assert made is not None
    [owner] = made["metadata"]["ownerReferences"]
    earlier = [
        {"op": "replace", "path": "/metadata/ownerReferences", "value": [{**owner, "uid": "u-0"}]}
    ]
    changed = await setup.kube.patch(kinds.WORKLOAD, "default", state.name, earlier)
    await setup.observe(kinds.WORKLOAD, changed)
    await setup.flavor()
    await setup.decide(state, "admitted")

    async def removed() -> bool:
        return await setup.workload(state) is None

    await eventually(removed)
    assert (await setup.job())["spec"]["suspend"] is True, "nothing of its own says that it may run"


async def test_admission_is_written_before_the_job_starts(setup: Setup) -> None:
    await setup.flavor(nodeLabels={"pool": "spot"}, tolerations=[{"key": "spot"}])
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def released() -> bool:
        job = await setup.job()
        if job["spec"]["suspend"]:
            return False
        assert (await setup.conditions(state)).get("Admitted") == "True"
        return True

    await eventually(released)
    pod = (await setup.job())["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "spot"}
    assert pod["tolerations"] == [{"key": "spot"}]


async def test_reservation_starts_no_job(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "reserved", checks=["machines"])

    async def reserved() -> bool:
        return (await setup.conditions(state)).get("QuotaReserved") == "True"

    await eventually(reserved)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_eviction_suspends_the_job_and_reports_its_version(
    setup: Setup,
) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: running(setup))
    await setup.decide(state, "evicted", reason="InClusterQueue", preempted_by="team/x")

    async def suspended() -> bool:
        return any(outcome.action == "suspend" for outcome in await setup.outcomes())

    await eventually(suspended)
    job = await setup.job()
    assert job["spec"]["suspend"] is True
    [outcome] = [o for o in await setup.outcomes() if o.action == "suspend"]
    assert outcome.version == job["metadata"]["resourceVersion"]

    async def preempted() -> bool:
        return (await setup.conditions(state)).get("Preempted") == "True"

    await eventually(preempted)


async def running(setup: Setup) -> bool:
    return not (await setup.job())["spec"]["suspend"]


async def test_decision_about_an_earlier_job_releases_nothing(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state.model_copy(update={"uid": "earlier"}), "admitted")
    await eventually(lambda: setup.workload(state))
    await asyncio.sleep(0.1)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_job_unseen_by_the_webhook_is_suspended(setup: Setup) -> None:
    await setup.submit(suspend=False)

    async def held() -> bool:
        return bool((await setup.job())["spec"]["suspend"])

    await eventually(held)


async def test_release_follows_after_a_crash_behind_the_status_write(setup: Setup) -> None:
    await setup.kill_patcher()
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await setup.start_patcher()
    await eventually(lambda: running(setup))
    before = await setup.job()
    await setup.kill_patcher()
    await setup.start_patcher()
    await setup.bus.publish(projected(before, pods_ready=True))
    await asyncio.sleep(0.2)
    assert (await setup.job())["metadata"]["resourceVersion"] == before["metadata"][
        "resourceVersion"
    ]


async def test_finished_job_gets_its_condition_and_loses_the_finalizer(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: running(setup))
    finish = {"success": True, "message": "done", "at": NOON}
    await setup.bus.publish(projected(await setup.job(), phase="finished", finish=finish))

    async def finished() -> bool:
        obj = await setup.workload(state)
        is_free = obj is not None and not obj["metadata"].get("finalizers")
        return is_free and (await setup.conditions(state)).get("Finished") == "True"

    await eventually(finished)


async def test_stopped_job_is_restored(setup: Setup) -> None:
    await setup.flavor(nodeLabels={"pool": "spot"}, tolerations=[{"key": "spot"}])
    least = {MIN_PARALLELISM: "1"}
    state = await setup.submit(annotations=least, parallelism=4, completions=4)
    await setup.decide(state, "admitted")
    await eventually(lambda: running(setup))
    changed = await setup.job()
    assert changed["spec"]["parallelism"] == 1, "one of four was admitted"
    # It ran: a template that ever started may not change until the start is forgotten.
    await setup.kube.patch(
        kinds.JOB,
        "default",
        "train",
        {"status": {"startTime": "2026-01-01T12:00:00Z"}},
        subresource="status",
    )
    await setup.decide(state, "evicted", reason="InClusterQueue", preempted_by="team/x")

    async def suspended() -> bool:
        return any(outcome.action == "suspend" for outcome in await setup.outcomes())

    await eventually(suspended)
    await setup.kill_patcher()
    await setup.start_patcher()
    await setup.observe(kinds.JOB, await setup.job())
    await setup.decide(state, "waiting", reason="PendingEvaluation")

    async def queued() -> bool:
        is_queued = (await setup.conditions(state)).get("QuotaReserved") == "False"
        return is_queued and (await setup.job())["spec"]["parallelism"] == 4

    await eventually(queued)
    spec = (await setup.job())["spec"]
    assert "nodeSelector" not in spec["template"]["spec"]
    assert "tolerations" not in spec["template"]["spec"]


async def test_ended_workload_is_forgotten(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted")
    await eventually(lambda: running(setup))
    finish = {"success": True, "message": "done", "at": NOON}
    ended = projected(await setup.job(), phase="finished", finish=finish)
    await setup.bus.publish(ended)
    await setup.decide(ended, "released", reason="Finished")

    async def forgotten() -> bool:
        return setup.cached(state) == (False, False)

    await eventually(forgotten)
    await asyncio.sleep(0.1)
    assert setup.cached(state) == (False, False)


async def test_job_running_on_a_spoke_is_not_started_at_the_hub(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted", spoke="west")

    async def admitted() -> bool:
        return (await setup.conditions(state)).get("Admitted") == "True"

    await eventually(admitted)
    await asyncio.sleep(0.1)
    assert (await setup.job())["spec"]["suspend"] is True


async def test_decision_about_a_later_state_waits_for_that_state(setup: Setup) -> None:
    await setup.flavor()
    state = await setup.submit()
    await setup.decide(state, "admitted", generation=1)
    await asyncio.sleep(0.1)
    assert (await setup.job())["spec"]["suspend"] is True
    await setup.bus.publish(state.replace(generation=1, version="2"))

    async def runs() -> bool:
        return not (await setup.job())["spec"]["suspend"]

    await eventually(runs)


async def test_started_job_is_held_though_the_cache_has_not_seen_the_start(setup: Setup) -> None:
    state = await setup.submit(labels={names.QUEUE: "main"})
    await eventually(lambda: setup.workload(state))
    assert setup.patcher is not None
    cache = setup.patcher.cache
    await eventually(lambda: cache.object(kinds.JOB, "default", "train"))
    start = {"metadata": {"uid": state.uid}, "spec": {"suspend": False}}
    started = await setup.kube.patch(kinds.JOB, "default", "train", start)
    # The cache hears nothing of it; the state does.
    await setup.bus.publish(projected(started, version="2"))

    async def held() -> bool:
        return bool((await setup.job())["spec"]["suspend"])

    await eventually(held)
