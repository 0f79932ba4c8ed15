"""What a tenant writes to run without quota, or to give it back while it runs: each a small story."""

from typing import Any, Final

from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import (
    PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL,
    QUEUE,
    RESOURCE_IN_USE,
)
from tests.attacks.field import OTHERS, TENANT, Field, restarted, work
from tests.attacks.ground import BreachError
from tests.simulation.kinds.pods import GATE

START: Final[dict[str, Object]] = {
    "Job": {"spec": {"suspend": False}},
    "JobSet": {"spec": {"suspend": False}},
    "PipelineRun": {"spec": {"status": None}},
    "Pod": {"spec": {"schedulingGates": None}},
}
HOLD: Final[dict[str, Object]] = {
    "Job": {"spec": {"suspend": True}},
    "JobSet": {"spec": {"suspend": True}},
    "PipelineRun": {"spec": {"status": "PipelineRunPending"}},
    "Pod": {"spec": {"schedulingGates": [{"name": GATE}]}},
}


def owned(owner: Object, **more: Any) -> Object:
    """Metadata with a controller."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        **more,
    }
    return {"ownerReferences": [reference]}


async def deletes_the_workload(field: Field, kind: str) -> None:
    """Take the Workload of what waits away, with finalizers, and start at once."""
    obj = await field.waiting(kind)
    for _ in range(3):
        if workload := await field.workload(obj):
            await field.patch(workload, {"metadata": {"finalizers": None}})
            await field.delete(workload)
        await field.patch(obj, START[kind])
        await field.stage.settle(1)


async def deletes_the_workload_of_what_runs(field: Field, kind: str) -> None:
    """Take the Workload of what runs away, again and again."""
    for _ in range(5):
        if workload := await field.workload(field.running[kind]):
            await field.patch(workload, {"metadata": {"finalizers": None}})
            await field.delete(workload)
        await field.stage.settle(2)


async def deactivates(field: Field, kind: str) -> None:
    """Give the quota back by the Workload, and keep running."""
    obj = field.running[kind]
    for active in (False, True, False):
        await field.patch(await field.workload(obj), {"spec": {"active": active}})
        await field.patch(obj, START[kind])
        await field.stage.settle(1)
        await field.patch(obj, START[kind])
    await field.stage.settle(10)
    await field.patch(obj, START[kind])


async def moves_the_workload(field: Field, kind: str) -> None:
    """Change queue and requests of the Workload of what waits."""
    obj = await field.waiting(kind)
    workload = await field.workload(obj)
    if not workload:
        return
    await field.patch(
        workload,
        {"spec": {"queueName": "own"}},
        {"spec": {"queueName": "spare"}},
        {"spec": {"podSets": []}},
        {"spec": {"podSets": [{**one, "count": 0} for one in workload["spec"]["podSets"]]}},
        {"metadata": {"ownerReferences": None, "labels": None}},
    )
    await field.patch(obj, START[kind])


async def is_there_first(field: Field, kind: str) -> None:
    """Delete the Workload of what waits, and put one of that name there that asks for nothing."""
    obj = await field.waiting(kind)
    workload = await field.workload(obj)
    if not workload:
        return
    await field.patch(workload, {"metadata": {"finalizers": None}})
    await field.delete(workload)
    pod_sets = workload["spec"]["podSets"]
    for one in pod_sets:
        for container in one["template"]["spec"].get("containers") or []:
            container.pop("resources", None)
    metadata = {
        key: value
        for key, value in workload["metadata"].items()
        if key in {"name", "namespace", "labels", "annotations", "ownerReferences"}
    }
    spec = {"queueName": "own", "podSets": pod_sets}
    bare = {key: workload[key] for key in ("apiVersion", "kind")}
    await field.create(
        {**bare, "metadata": {**metadata, "finalizers": [RESOURCE_IN_USE]}, "spec": spec}
    )
    await field.patch(obj, START[kind])


async def starts_again_and_again(field: Field, kind: str) -> None:
    """Start what waits each second."""
    obj = await field.waiting(kind)
    for _ in range(25):
        await field.patch(obj, START[kind])
        await field.stage.settle(1)


async def holds_and_starts(field: Field, kind: str) -> None:
    """Hold what runs, so that its quota might be free, and start it again."""
    obj = field.running[kind]
    for pause in (0.0, 0.2, 1.0, 5.0):
        await field.patch(obj, HOLD[kind])
        await field.stage.settle(pause)
        await field.patch(obj, START[kind])
        await field.stage.settle(2)


async def recreates(field: Field, kind: str) -> None:
    """Delete what runs, and create the same name at once."""
    obj = field.running[kind]
    for propagation in ("Background", "Foreground", "Orphan"):
        await field.delete(obj, propagation)
        again = await field.waiting(kind, obj["metadata"]["name"], labels={QUEUE: "own"})
        await field.patch(again, START[kind])
        await field.stage.settle(3)
        obj = again or obj


async def starts_while_services_are_away(field: Field, kind: str) -> None:
    """Create and start while nobody looks."""
    for service in ("watcher", "classifier", "quota", "patcher"):
        restarted(field, service)
    obj = await field.waiting(kind)
    await field.patch(obj, {"metadata": {"labels": {QUEUE: None}}, **START[kind]}, START[kind])


async def strips_the_children(field: Field, kind: str) -> None:
    """Take labels and owners from the pods and Jobs of what runs."""
    for child in (kinds.JOB, kinds.POD):
        for obj in await field.all(child):
            if obj["metadata"].get("ownerReferences"):
                await field.patch(obj, {"metadata": {"labels": {QUEUE: None}}})
    await field.stage.settle(5)
    await field.patch(field.running[kind], {"metadata": {"labels": {QUEUE: None}}})
    restarted(field)


async def grows(field: Field) -> None:
    """Let more pods of an admitted Job run."""
    await field.patch(field.running["Job"], {"spec": {"parallelism": 5}})
    await field.stage.settle(10)
    restarted(field)
    await field.stage.settle(10)
    await field.patch(field.running["Job"], {"spec": {"parallelism": 7}})


async def grows_from_nothing(field: Field) -> None:
    """Be admitted with no pods, and grow."""
    obj = await field.waiting("Job", labels={QUEUE: "own"})
    await field.patch(obj, {"spec": {"parallelism": 0}})
    await field.stage.settle(10)
    await field.patch(obj, {"spec": {"parallelism": 6}}, START["Job"])


async def grows_beyond_what_is_counted(field: Field) -> None:
    """Let what waits, and what runs, hold more than expressions are given."""
    few, many = [{"name": "workers"}] * 120, [{"name": "workers"}] * 9_000
    waiting = await field.waiting("JobSet", "large")
    running = field.running["JobSet"]
    for status in (few, many):
        await field.patch(running, {"status": {"replicatedJobsStatus": status}})
        await field.patch(waiting, {"status": {"replicatedJobsStatus": status}}, START["JobSet"])
        await field.stage.settle(5)
    (part, *_) = waiting["spec"]["replicatedJobs"]
    parts = [{**part, "name": f"p{n}"} for n in range(120)]
    await field.patch(waiting, {"spec": {"replicatedJobs": parts}}, START["JobSet"])
    await field.stage.settle(10)
    restarted(field)


async def grows_a_child(field: Field) -> None:
    """Let more pods of a Job of an admitted JobSet run."""
    for child in await field.all(kinds.JOB):
        if "runs-workers" in child["metadata"]["name"]:
            await field.patch(child, {"spec": {"parallelism": 5}})
            await field.stage.settle(10)
            await field.patch(child, {"metadata": {"labels": None}})
    restarted(field)


async def starts_the_children(field: Field) -> None:
    """Start the Jobs of a JobSet that waits."""
    await field.waiting("JobSet")
    for _ in range(3):
        for child in await field.all(kinds.JOB):
            if "waits-workers" in child["metadata"]["name"]:
                await field.patch(child, START["Job"])
        await field.stage.settle(3)


async def hands_on_the_children(field: Field) -> None:
    """Give the Jobs of a JobSet that waits to the JobSet that runs."""
    await field.waiting("JobSet")
    for child in await field.all(kinds.JOB):
        if "waits-workers" in child["metadata"]["name"]:
            await field.patch(child, {"metadata": owned(field.running["JobSet"])}, START["Job"])


async def asks_for_less_in_the_queue(field: Field) -> None:
    """Ask for less while it waits, and for more when it is admitted."""
    obj = await field.waiting("Job", labels={QUEUE: "own"})
    template = obj["spec"]["template"]
    container = template["spec"]["containers"][0]

    def asks(cpu: str) -> Object:
        wanted = {**container, "resources": {"requests": {"cpu": cpu}}}
        return {"spec": {"template": {"spec": {"containers": [wanted]}}}}

    await field.patch(obj, asks("0"))
    for _ in range(40):
        await field.stage.settle(0.5)
        await field.patch(obj, asks("3"))


async def orphans_the_children(field: Field) -> None:
    """Delete a JobSet that runs without its Jobs, and take from these what it gave them."""
    await field.delete(field.running["JobSet"], "Orphan")
    await field.stage.settle(3)
    for child in await field.all(kinds.JOB):
        if "runs-workers" in child["metadata"]["name"]:
            await field.patch(child, {"metadata": {"labels": None, "ownerReferences": None}})
    restarted(field)


async def _lets_the_lower_give_way(field: Field, queue: str, high: int) -> None:
    cluster_queue = {"apiVersion": kinds.CLUSTER_QUEUE.api_version, "kind": "ClusterQueue",
                     "metadata": {"name": queue}}  # fmt: skip
    await field.stage.patch(
        cluster_queue, {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
    )
    await field.stage.settle(3)
    await field.stage.create(
        {"apiVersion": kinds.WORKLOAD_PRIORITY_CLASS.api_version, "kind": "WorkloadPriorityClass",
         "metadata": {"name": "high"}, "value": high}
    )  # fmt: skip


async def keeps_its_place_by_priority(field: Field) -> None:
    """Write a priority into the Workload of what runs, so that it gives way to nobody."""
    await _lets_the_lower_give_way(field, "own", 100)
    await field.patch(
        await field.workload(field.running["Job"]), {"spec": {"priority": 1_000_000_000}}
    )
    await field.stage.settle(5)
    restarted(field)
    await field.stage.settle(10)
    urgent = work("Job", "urgent", "own", namespace=OTHERS)
    urgent["metadata"]["labels"][PRIORITY_CLASS_LABEL] = "high"
    urgent = await field.stage.create(urgent)
    await field.stage.settle(60)
    if not await field.stage.is_admitted(urgent):
        raise BreachError("a job gave way to nobody by a priority that its tenant wrote")


async def raises_its_priority(field: Field) -> None:
    """Write a higher priority into the Workload of what waits, where the lower one has to give way."""
    await _lets_the_lower_give_way(field, "full", 1_000_000)
    workload = await field.workload(await field.waiting("Job"))
    named = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    for spec in (
        {"priority": 1_000_000},
        {"priorityClassRef": named, "priority": 1_000_000},
        {
            "priorityClassName": "high",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        },
    ):
        await field.patch(workload, {"spec": spec})
        await field.stage.settle(10)
    restarted(field)
    await field.stage.settle(20)
    for one in (await field.stage.kube.list(kinds.JOB, namespace=OTHERS)).items:
        if one["metadata"]["name"].startswith("honest") and one["spec"]["suspend"]:
            raise BreachError("a priority that a tenant wrote stopped another's job")


async def runs_what_comes_last(field: Field) -> None:
    """Ask for the end of what waits: Tekton then runs its `finally` tasks."""
    for number, how in enumerate(("StoppedRunFinally", "CancelledRunFinally")):
        run = work("PipelineRun", f"last-{number}", "")
        run["spec"] = {"pipelineSpec": {"tasks": [_task("first")], "finally": [_task("last")]}}
        waits = await field.create(run)
        await field.stage.settle(5)
        await field.patch(waits, {"spec": {"status": how}})


def _task(name: str) -> Object:
    steps = [{"name": "s", "image": "none", "computeResources": {"requests": {"cpu": "4"}}}]
    return {"name": name, "taskSpec": {"steps": steps}}


async def borrows_a_workload(field: Field) -> None:
    """Name, as a prebuilt one, the Workload of what runs, without any other mark."""
    name = (await field.workload(field.running["Job"]))["metadata"]["name"]
    for where in ("labels", "annotations"):
        named: Object = {where: {PREBUILT_WORKLOAD: name}}
        obj = await field.waiting("Job", f"by-{where}", **named)
        await field.patch(obj, START["Job"])
        late = await field.waiting("Job", f"late-{where}")
        await field.patch(late, {"metadata": named}, START["Job"])


async def is_managed_elsewhere(field: Field) -> None:
    """Say that another controller runs it, and start it."""
    obj = await field.create(
        {**(field.running["Job"] | {}), "metadata": {"name": "else", "namespace": TENANT,
         "labels": {QUEUE: "full"}}, "spec": {**_spec(field.running["Job"]), "managedBy": MULTIKUEUE},
         "status": {}}
    )  # fmt: skip
    await field.patch(obj, START["Job"])


def _spec(obj: Object) -> Object:
    kept = ("parallelism", "completions", "template")
    spec = {key: obj["spec"][key] for key in kept}
    spec["template"] = {**spec["template"], "metadata": {}}
    return spec
