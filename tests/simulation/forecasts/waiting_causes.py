"""Causes of waiting, each arranged in a world with all services."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import (
    SERVICES,
    Stage,
    job,
    pipeline_run,
    pool,
    priority,
)
from tests.simulation.machines.machine_park import Park, dynamic

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
CPU: Final = {"cpu": 4}
TAINT: Final = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}

Arrange = Callable[[Stage], Awaitable[Object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One cause of waiting: how it arises, and what the explanation must contain."""

    cause: str
    """A sentence: the id of the test."""

    arrange: Arrange
    """Makes it wait; returns the job."""

    reason: str
    says: tuple[str, ...]
    """Texts that the command must print."""

    short: Mapping[str, str] = field(default_factory=dict)
    """Expected fields of the first shortage."""

    configuration: Mapping[str, Any] = field(default_factory=dict)
    services: tuple[str, ...] = SERVICES


def kueue(kind: str, name: str, namespace: str | None = None, **more: Any) -> Object:
    metadata: Object = {"name": name, **more.pop("metadata", {})}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, **more}


def created(*objects: Object) -> Arrange:
    """All of these are created, in this order; the last is the one that waits."""

    async def arrange(stage: Stage) -> Object:
        return await stage.create(*objects)

    return arrange


def limited(
    name: str, cpu: int, local: str = "", *, preemption: Object | None = None, **limits: str
) -> list[Object]:
    """A pool in the cohort `all`, with limits of borrowing or lending."""
    objects = pool(name, {"cpu": cpu}, local=local, cohortName="all", preemption=preemption or {})
    (resource,) = objects[1]["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    resource |= limits
    return objects


def flavored(**spec: Any) -> list[Object]:
    """A pool whose only flavor looks like this."""
    objects = pool("builds", CPU, flavor="special")
    objects[0]["spec"] = spec
    return objects


def checked(controller: str, **metadata: Any) -> list[Object]:
    """A pool with one admission check of that controller."""
    check = kueue("AdmissionCheck", "gate", metadata=metadata, spec={"controllerName": controller})
    strategy = {"admissionChecks": [{"name": "gate"}]}
    return [check, *pool("builds", CPU, admissionChecksStrategy=strategy)]


# --- causes that need more than created objects ---


async def displaces_others(stage: Stage) -> Object:
    preemption = {"withinClusterQueue": "LowerPriority"}
    slow = {"terminationGracePeriodSeconds": 600}
    small = job("small", "builds", {"cpu": 3}, priority_class="low", pod=slow)
    classes = [priority("low", 1), priority("high", 100)]
    small = await stage.create(*pool("builds", CPU, preemption=preemption), *classes, small)
    await stage.until_admitted(small)
    # The patcher stops preempted jobs; without it their pods stay.
    stage.system.world.crash("patcher-1", down_seconds=100_000)
    return await stage.create(job("mine", "builds", {"cpu": 2}, priority_class="high"))


async def waits_for_the_unready(stage: Stage) -> Object:
    nowhere = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    first = await stage.create(
        *pool("builds", CPU), job("first", "builds", {"cpu": 1}, pod=nowhere)
    )
    await stage.until_admitted(first)
    return await stage.create(job("mine", "builds", {"cpu": 1}))


async def was_not_ready_in_time(stage: Stage) -> Object:
    nowhere = {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}
    mine = await stage.create(*pool("builds", CPU), job("mine", "builds", {"cpu": 1}, pod=nowhere))
    await stage.until(lambda: _evicted(stage, mine))
    return mine


async def _evicted(stage: Stage, obj: Object) -> bool:
    return bool((await stage.condition(obj, "Evicted")).get("status") == "True")


async def is_put_out(stage: Stage) -> Object:
    mine = await stage.create(*pool("builds", {"cpu": 0}), job("mine", "builds", {"cpu": 1}))
    await stage.until_waits(mine)
    await stage.patch(await stage.workload(mine), {"spec": {"active": False}})
    return mine


async def waits_for_a_machine(stage: Stage) -> Object:
    park = Park(stage.system)
    park.cloud.boot_seconds = 3600
    await park.open({"dynamic-platforms": "linux/arm64", **dynamic("linux/arm64", 1)})
    check = kueue("AdmissionCheck", "gate", spec={"controllerName": "sluicegate.dev/machines"})
    slots = {"tekton.dev/pipelineruns": 10, "linux-arm64": 1}
    strategy = {"admissionChecks": [{"name": "gate"}]}
    await stage.create(
        check, *pool("builds", slots, local="pipelines-queue", admissionChecksStrategy=strategy)
    )
    steps = [{"name": "work", "image": "builder"}]
    params = [{"name": "PLATFORM", "value": "linux/arm64"}]
    build = {"name": "build", "taskSpec": {"steps": steps}, "params": params}
    asked = {"kueue.konflux-ci.dev/requests-linux-arm64": "1"}
    return await stage.create(
        pipeline_run("mine", annotations=asked, pipelineSpec={"tasks": [build]})
    )


async def waits_for_somebody_elses_check(stage: Stage) -> Object:
    check, *objects = checked("example.com/audit")
    check = await stage.create(check)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    condition = {**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await stage.patch(check, {"status": {"conditions": [condition]}}, subresource="status")
    return await stage.create(*objects, job("mine", "builds", {"cpu": 1}))


async def waits_for_a_spoke(stage: Stage) -> Object:
    cluster = {"clusterSource": {"kubeConfig": {"locationType": "Secret", "location": "none"}}}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "spokes"}
    check = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
    strategy = {"admissionChecks": [{"name": "gate"}]}
    await stage.create(
        kueue("MultiKueueCluster", "north", spec=cluster),
        kueue("MultiKueueConfig", "spokes", spec={"clusters": ["north"]}),
        kueue("AdmissionCheck", "gate", spec=check),
        *pool("builds", CPU, admissionChecksStrategy=strategy),
    )
    return await stage.create(job("mine", "builds", {"cpu": 1}))
