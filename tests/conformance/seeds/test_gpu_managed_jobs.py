"""Document 003: which jobs Sluicegate manages."""

from shared.contracts.kube import kinds, names
from tests.conformance.seeds.gpu_jobs import GPU
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, example, job, pool, story


@says("003:37", "003:138-141", "003:160-163")
@story()
async def test_by_default_jobs_without_the_label_are_ignored_and_run_at_once(stage: Stage) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    plain = await stage.create(job("plain", None, {GPU: 99}))

    await stage.settle()
    assert (await stage.fresh(plain))["status"]["active"] == 1
    assert await stage.workload(plain) == {}


MANAGE = {"manageJobsWithoutQueueName": True}


@says("003:37")
@story(configuration=MANAGE)
async def test_manage_jobs_without_queue_name_holds_every_job_until_it_has_a_queue(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    plain = await stage.create(job("plain", None, {"cpu": 1}))
    assert plain["spec"]["suspend"] is True

    await stage.until_waits(plain, "LocalQueue  doesn't exist")
    await stage.patch(plain, {"metadata": {"labels": {names.QUEUE: "gpu-queue"}}})
    await stage.until_admitted(plain)


@says("003:37")
@story(configuration=MANAGE, services=())
async def test_job_running_before_management_was_enabled_continues(stage: Stage) -> None:
    plugins = stage.system.api.admission.plugins
    webhooks = plugins.copy()
    plugins.clear()
    await stage.create(*pool("q", {"cpu": 1}))
    before = await stage.create(job("before", None, {"cpu": 9}))
    await stage.settle()
    plugins += webhooks
    for service in ("watcher", "classifier", "quota", "patcher"):
        stage.system.serve(service)
    await stage.until_admitted(await stage.create(job("after", "q", {"cpu": 1})))

    assert (await stage.fresh(before))["status"]["active"] == 1
    assert await stage.workload(before) == {}


@says("003:37")
@story(
    configuration={
        **MANAGE,
        "managedJobsNamespaceSelector": {"matchLabels": {"batch": "managed"}},
    }
)
async def test_only_selected_namespaces_are_managed_also_if_selected_later(
    stage: Stage,
) -> None:
    await stage.create(*example("030-gpu-quota.yaml"))
    labels = {"batch": "managed"}
    managed = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "in", "labels": labels},
    }
    await stage.kube.create(kinds.NAMESPACE, managed)
    inside = await stage.create(job("inside", None, {"cpu": 1}, namespace="in"))
    outside = await stage.create(job("outside", "gpu-queue", {"cpu": 1}))

    assert inside["spec"]["suspend"] is True
    assert not outside["spec"].get("suspend")
    await stage.settle()
    assert await stage.workload(outside) == {}

    # A job that waits there by itself is taken in when its namespace is.
    paused = job("paused", "gpu-queue", {"cpu": 1})
    paused["spec"]["suspend"] = True
    paused = await stage.create(paused)
    await stage.settle()
    assert await stage.workload(paused) == {}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    await stage.patch(namespace, {"metadata": {"labels": labels}})
    await stage.until_admitted(paused)


@says("003:37")
@story(configuration=MANAGE)
async def test_jobs_of_the_system_are_never_managed(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}, namespaces=("kube-system",)))
    plain = await stage.create(job("plain", "q", {"cpu": 9}, namespace="kube-system"))

    await stage.settle()
    assert (await stage.fresh(plain))["status"]["active"] == 1
    assert await stage.workload(plain) == {}


@says("003:37")
@story()
async def test_jobs_without_a_queue_use_the_local_queue_default(stage: Stage) -> None:
    await stage.create(*pool("q", {"cpu": 1}, local="default"))
    plain = await stage.create(job("plain", None, {"cpu": 1}))

    assert plain["metadata"]["labels"][names.QUEUE] == "default"
    await stage.until_admitted(plain)
