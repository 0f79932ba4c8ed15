"""Writes to Workloads: foreign ones, and those that Sluicegate made for the tenant's jobs."""

from copy import deepcopy
from typing import Any, Final

from services.simulator.scenarios.tenants.load import LOCAL_QUEUES
from services.simulator.scenarios.tenants.metadata import some_labels, some_owner
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.numbers import INT32_MAX

_QUEUES: Final = (*LOCAL_QUEUES, "nowhere")


async def _create(tenant: Tenant) -> None:
    """Create a Workload, of a name that is free or that a job's Workload has or will have."""
    random = tenant.random
    name = f"foreign-{random.randint(0, 3)}"
    kind: Kind = random.choice((kinds.JOB, kinds.PIPELINE_RUN))
    job = await tenant.some(kind)
    if job is not None and random.random() < 1 / 2:
        metadata = job["metadata"]
        name = names.workload_name(
            kind=kind.kind, group=kind.group, name=metadata["name"], uid=metadata["uid"]
        )
    workload = _workload(tenant, name)
    if random.random() < 1 / 2:
        workload["metadata"]["ownerReferences"] = [await some_owner(tenant)]
    await tenant.create(kinds.WORKLOAD, workload)


def _workload(tenant: Tenant, name: str) -> Object:
    random = tenant.random
    requests = {"cpu": random.choice(("1m", "1", "1000", "9223372036854775807"))}
    containers = [{"name": "c", "image": "none", "resources": {"requests": requests}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    count = random.choice((1, 1, 2, INT32_MAX))
    spec: dict[str, Any] = {
        "active": random.random() < 3 / 4,
        "queueName": random.choice(_QUEUES),
        "podSets": [{"name": "main", "count": count, "template": template}],
    }
    return {
        "apiVersion": kinds.WORKLOAD.api_version,
        "kind": kinds.WORKLOAD.kind,
        "metadata": {"name": name, "namespace": tenant.namespace, "labels": some_labels(random)},
        "spec": spec,
    }


async def _delete(tenant: Tenant) -> None:
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is not None:
        await tenant.delete(kinds.WORKLOAD, workload["metadata"]["name"])


async def _replace(tenant: Tenant) -> None:
    """Delete a Workload without its finalizers, and create another of its name at once."""
    old = await tenant.some(kinds.WORKLOAD)
    if old is None:
        return
    name = old["metadata"]["name"]
    await tenant.patch(kinds.WORKLOAD, name, {"metadata": {"finalizers": None}})
    await tenant.delete(kinds.WORKLOAD, name)
    workload = _workload(tenant, name)
    workload["metadata"]["labels"] = old["metadata"].get("labels") or {}
    workload["metadata"]["ownerReferences"] = old["metadata"].get("ownerReferences") or []
    await tenant.create(kinds.WORKLOAD, workload)


async def activate(tenant: Tenant) -> None:
    """Switch a Workload off, or on again."""
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is not None:
        patch = {"spec": {"active": tenant.random.random() < 2 / 3}}
        await tenant.patch(kinds.WORKLOAD, workload["metadata"]["name"], patch)


async def _move(tenant: Tenant) -> None:
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is not None:
        patch = {"spec": {"queueName": tenant.random.choice(_QUEUES)}}
        await tenant.patch(kinds.WORKLOAD, workload["metadata"]["name"], patch)


async def _resize(tenant: Tenant) -> None:
    """Change what the Workload asks for, while the job stays as it is."""
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is None:
        return
    pod_sets = [
        {**one, "count": tenant.random.choice((0, 1, 100))} for one in workload["spec"]["podSets"]
    ]
    patch = {"spec": {"podSets": pod_sets}}
    await tenant.patch(kinds.WORKLOAD, workload["metadata"]["name"], patch)


async def _prioritize(tenant: Tenant) -> None:
    """Give a Workload another priority, by a number or by a class."""
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is None:
        return
    kind = kinds.WORKLOAD_PRIORITY_CLASS
    high = {"group": kind.group, "kind": kind.kind, "name": "high"}
    spec = tenant.random.choice(({"priority": INT32_MAX}, {"priorityClassRef": high}))
    await tenant.patch(kinds.WORKLOAD, workload["metadata"]["name"], {"spec": spec})


async def _shrink(tenant: Tenant) -> None:
    """Let the pods of a Workload ask for next to nothing, while those of the job stay as they are."""
    workload = await tenant.some(kinds.WORKLOAD)
    if workload is None:
        return
    pod_sets = deepcopy(workload["spec"]["podSets"])
    for pod_set in pod_sets:
        for container in pod_set["template"]["spec"].get("containers") or []:
            container["resources"] = {"requests": {"cpu": tenant.random.choice(("0", "1m"))}}
    patch = {"spec": {"podSets": pod_sets}}
    await tenant.patch(kinds.WORKLOAD, workload["metadata"]["name"], patch)


async def outlive(tenant: Tenant) -> None:
    """Delete a job and keep its Workload, with what says whose it was or without."""
    random = tenant.random
    job = await tenant.some(random.choice((kinds.JOB, kinds.PIPELINE_RUN)))
    found = [one for one in await tenant.list(kinds.WORKLOAD) if _is_of(one, job)]
    if job is None or not found:
        return
    friend = {**await some_owner(tenant), "controller": False}
    metadata: Object = {"ownerReferences": random.choice(([friend], [friend], None))}
    if random.random() < 1 / 2:
        metadata["labels"] = {names.JOB_UID_LABEL: None}
    if random.random() < 1 / 2:
        metadata["finalizers"] = ["example.com/keep", names.RESOURCE_IN_USE]
    await tenant.patch(kinds.WORKLOAD, found[0]["metadata"]["name"], {"metadata": metadata})
    kind = kinds.JOB if job["kind"] == kinds.JOB.kind else kinds.PIPELINE_RUN
    await tenant.delete(kind, job["metadata"]["name"])


def _is_of(workload: Object, job: Object | None) -> bool:
    owners = workload["metadata"].get("ownerReferences") or []
    return job is not None and any(owner["uid"] == job["metadata"]["uid"] for owner in owners)


WORKLOAD_WRITES: Final[dict[Write, int]] = {
    _create: 3,
    _delete: 1,
    _replace: 1,
    activate: 2,
    _move: 1,
    _resize: 1,
    outlive: 2,
}
"""Writes and how often each is drawn."""

MORE_WORKLOAD_WRITES: Final[dict[Write, int]] = {
    _prioritize: 2,
    _shrink: 1,
}
"""Those of the worlds where pods wait."""
