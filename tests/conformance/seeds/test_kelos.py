"""Document 001: Jobs that Kelos creates for its Tasks wait for quota, without a change in Kelos.

What Kelos does is played here: a Task of `kelos.dev`, and the Job that its controller makes of it,
with the labels of `podOverrides` on it. See `docs/how-to/kelos.md`.
"""

import re
from functools import partial

import pytest
import yaml

from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.contracts.windows import CONTROLLER, WINDOWS
from tests.conformance.seeds.kelos_tasks import NAMESPACE, TASKS, prepare, task
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import EXAMPLES, Stage, example, pool, story

ROOT = EXAMPLES.parents[2]


async def the_task(stage: Stage, of: Object) -> Object:
    reference = {"apiVersion": "kelos.dev/v1alpha2", "kind": "Task", "metadata": of["metadata"]}
    return await stage.fresh(reference)


def phase(now: Object) -> str:
    """What Kelos' controller makes of a Job, as the document quotes it; empty: no change."""
    status = now.get("status") or {}
    if status.get("active", 0) > 0:
        return "Running"
    return "Succeeded" if status.get("succeeded", 0) > 0 else ""


@says("001:15-17", "001:58", "001:99-128", "001:168-204")
@story()
async def test_job_with_a_queue_label_is_created_suspended_and_starts_when_quota_is_available(
    stage: Stage,
) -> None:
    await prepare(stage)
    first = await task(stage, "first", "kelos-default", requests={"cpu": 16}, seconds=60)
    second = await task(stage, "second", "kelos-default", requests={"cpu": 1})

    assert first["spec"]["suspend"] is True
    await stage.until_admitted(first)
    pod = (await stage.fresh(first))["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kelos.dev/agent-pool": "true"}
    await stage.until_waits(second, "insufficient unused quota for cpu")
    await stage.until_admitted(second)


@says("001:31", "001:168-204", "001:206-227")
@story()
async def test_burst_of_19_tasks_of_several_spawners_never_takes_more_than_the_quota(
    stage: Stage,
) -> None:
    await prepare(stage)
    asked = {"cpu": 2, "memory": "2Gi"}
    tasks = [
        await task(stage, f"task-{n}", "kelos-default", requests=asked, seconds=20)
        for n in range(19)
    ]
    busiest = 0

    async def all_ended() -> bool:
        nonlocal busiest
        running = [one for one in tasks if phase(await stage.fresh(one)) == "Running"]
        busiest = max(busiest, len(running))
        return all([await stage.finished(one) for one in tasks])

    await stage.until(all_ended, seconds=600)
    assert busiest == 8  # 16 CPUs


@says("001:35-37", "001:60-69")
@story()
async def test_models_have_quotas_of_their_own_through_flavors_in_one_namespace(
    stage: Stage,
) -> None:
    documented = {(obj["kind"], obj["metadata"]["name"]): obj for obj in in_the_how_to()}
    door = pool("kelos-models", {}, namespaces=(NAMESPACE,))[-1]
    names_ = (("ResourceFlavor", "opus"), ("ResourceFlavor", "haiku"))
    queue = documented["ClusterQueue", "kelos-models"]
    await stage.create(TASKS, *(documented[name] for name in names_), queue, door)

    async def of(model: str, number: int) -> Object:
        pod = {"nodeSelector": {"kelos.dev/model": model}}
        return await task(stage, f"{model}-{number}", "kelos-models", pod=pod)

    opus = [await of("opus", n) for n in range(3)]
    haiku = [await of("haiku", n) for n in range(3)]

    await stage.until_admitted(*opus[:2], *haiku)
    await stage.until_waits(opus[2], "insufficient unused quota for pods in flavor opus")


@story()
async def test_cluster_accepts_every_manifest_of_the_how_to(stage: Stage) -> None:
    for obj in in_the_how_to():
        if obj["apiVersion"].startswith(("kelos.dev/", "rbac.")):
            continue  # Their kinds are not served in a world.
        await stage.create(obj)


def in_the_how_to() -> list[Object]:
    text = (ROOT / "docs" / "how-to" / "kelos.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return [obj for block in blocks for obj in yaml.safe_load_all(block)]


@says("001:130-143")
@story()
async def test_task_stays_pending_while_its_job_is_suspended_and_runs_when_its_pod_starts(
    stage: Stage,
) -> None:
    await prepare(stage)
    first = await task(stage, "first", "kelos-default", requests={"cpu": 16}, seconds=60)
    second = await task(stage, "second", "kelos-default", requests={"cpu": 16}, seconds=60)
    await stage.until_admitted(first)
    await stage.settle()

    assert phase(await stage.fresh(first)) == "Running"
    assert phase(await stage.fresh(second)) == ""
    await stage.until_finished(first)
    assert phase(await stage.fresh(first)) == "Succeeded"
    await stage.until_admitted(second)
    await stage.settle()
    assert phase(await stage.fresh(second)) == "Running"


@says("001:145-156")
@story(settings={"patcher": {"annotated_creators": ["tasks.kelos.dev"]}})
async def test_user_of_a_task_sees_that_it_is_queued_for_admission(stage: Stage) -> None:
    await prepare(stage)
    first = await task(stage, "first", "kelos-default", requests={"cpu": 16}, seconds=60)
    second = await task(stage, "second", "kelos-default", requests={"cpu": 16}, seconds=60)

    async def note() -> str | None:
        annotations = (await the_task(stage, second))["metadata"].get("annotations") or {}
        value: str | None = annotations.get(names.QUEUED)
        return value

    await stage.until(note)
    assert await note() == "kelos-default: WaitingForQuota"
    [queued] = await stage.events(await the_task(stage, second), "Queued")
    assert queued == 'Job second is queued in LocalQueue "kelos-default", waiting for admission'

    await stage.until_finished(first)
    await stage.until_admitted(second)
    await stage.settle()
    assert await note() is None
    [admitted] = await stage.events(await the_task(stage, second), "Admitted")
    assert admitted == "Job second is admitted by ClusterQueue kelos-agents"


@says("001:145-156")
@pytest.mark.parametrize("how", ["fails", "is deleted"])
@story(settings={"patcher": {"annotated_creators": ["tasks.kelos.dev"]}})
async def test_task_whose_job_ends_while_it_is_queued_is_not_shown_as_queued_any_more(
    stage: Stage, how: str
) -> None:
    await prepare(stage)
    first = await task(stage, "first", "kelos-default", requests={"cpu": 16})
    await stage.until_admitted(first)
    second = await task(stage, "second", "kelos-default", requests={"cpu": 16})

    async def is_queued() -> bool:
        annotations = (await the_task(stage, second))["metadata"].get("annotations") or {}
        return names.QUEUED in annotations

    await stage.until(is_queued)
    if how == "fails":
        failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
        await stage.patch(second, {"status": {"conditions": [failed]}}, subresource="status")
    else:
        await stage.delete(second)
    await stage.settle()
    assert not await is_queued()


@says("001:158-166")
@story()
async def test_max_concurrency_and_quota_compose(stage: Stage) -> None:
    await prepare(stage)
    created: list[Object] = []

    async def spawner_looks() -> bool:
        """It counts tasks that have not ended, whether they run or wait."""
        ended = [await stage.finished(one) for one in created]
        if ended.count(False) < 5 and len(created) < 12:
            name = f"task-{len(created)}"
            asked = {"cpu": 8, "memory": "1Gi"}
            created.append(await task(stage, name, "kelos-default", requests=asked, seconds=20))
        running = [phase(await stage.fresh(one)) == "Running" for one in created]
        assert ended.count(False) <= 5
        assert running.count(True) <= 2  # 16 CPUs
        return len(created) == 12 and all(ended)

    await stage.until(spawner_looks, seconds=600)


@says("001:71", "001:60-69")
@story(services=("watcher", "classifier", "quota", "patcher", "dispatcher"))
async def test_tasks_start_within_scheduling_windows_and_hold_no_quota_outside_of_them(
    stage: Stage,
) -> None:
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        # A world begins at midnight of a Thursday, UTC.
        "metadata": {"name": "nights", "annotations": {WINDOWS: "10 0 * * thu for 30m"}},
        "spec": {"controllerName": CONTROLLER},
    }
    checks = {"admissionChecks": [{"name": "nights"}]}
    night = pool(
        "night",
        {"cpu": 0},
        namespaces=(NAMESPACE,),
        cohortName="agents",
        admissionChecksStrategy=checks,
    )
    day = pool("day", {"cpu": 4}, namespaces=(NAMESPACE,), cohortName="agents")
    await stage.create(TASKS, check, *night, *day)
    late = await task(stage, "late", "night", requests={"cpu": 4}, seconds=60)

    async def sent_back() -> bool:
        message = (await stage.condition(late, "Requeued")).get("message", "")
        return "The next window opens at 2026-01-01T00:10:00Z" in message

    await stage.until(sent_back)
    now = await task(stage, "now", "day", requests={"cpu": 4}, seconds=60)
    await stage.until_finished(now)
    assert stage.now() < 300
    assert not await stage.is_admitted(late)
    await stage.until_admitted(late, seconds=600)
    assert 600 <= stage.now() <= 620


@says("001:302-308")
@story()
async def test_without_a_queue_a_job_starts_immediately_as_before(stage: Stage) -> None:
    await prepare(stage)
    one = await task(stage, "one", None, requests={"cpu": 99})

    await stage.until(partial(has_phase, stage, one, "Running"))
    assert not (await stage.fresh(one))["spec"].get("suspend")
    assert await stage.workload(one) == {}


async def has_phase(stage: Stage, one: Object, wanted: str) -> bool:
    return phase(await stage.fresh(one)) == wanted


@says("001:310")
@story(services=())
async def test_suspended_job_without_sluicegate_stays_suspended_and_consumes_nothing(
    stage: Stage,
) -> None:
    await stage.create(TASKS, *example("020-agent-quota.yaml"))
    one = await task(stage, "one", "kelos-default")

    await stage.settle(3600)
    assert phase(await stage.fresh(one)) == ""
    pods = await stage.kube.list(kinds.POD, namespace=NAMESPACE)
    assert pods.items == []


def test_templates_of_the_document_name_queues_that_the_examples_have() -> None:
    queues = {
        obj["metadata"]["name"]
        for name in ("020-agent-quota.yaml", "021-agent-tiers.yaml")
        for obj in example(name)
        if obj["kind"] == "LocalQueue"
    }
    spawners = example("kelos/task-spawners.yaml")
    assert {s["spec"]["taskTemplate"]["queueName"] for s in spawners} <= queues
