"""Writes to Pods that wait at their gates, and to Deployments that give their queue to their pods.

Nobody writes what an API server refuses: gates are only taken away, and requests of a pod stay.
"""

import asyncio
from typing import Any, Final

from services.simulator.scenarios.tenants.load import LOCAL_QUEUES, pod, pod_spec
from services.simulator.scenarios.tenants.metadata import (
    OWNED,
    some_annotations,
    some_labels,
    some_owner,
)
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.integrations import opted_documents

FRAMEWORKS: Final = ("pod", "deployment")
"""What the configuration lists in the worlds where pods wait."""

_GATES: Final = tuple(
    {"name": document["spec"]["gate"]["name"]} for document in opted_documents(FRAMEWORKS[:1])
)
_NAMES: Final = tuple(f"pod-{number}" for number in range(5))
_DEPLOYMENTS: Final = ("web", "api")
_QUEUES: Final = (*LOCAL_QUEUES[:2], LOCAL_QUEUES[0], "nowhere", "", None)
_CPU: Final = ("", "1m", "500m", "1", "1", "2", "1000")
_SECONDS: Final = (2, 20, 60, 300)


async def _create(tenant: Tenant) -> None:
    random = tenant.random
    obj = pod(
        random.choice(_NAMES),
        tenant.namespace,
        cpu=random.choice(_CPU),
        seconds=random.choice(_SECONDS),
    )
    metadata, spec = obj["metadata"], obj["spec"]
    metadata["labels"] = some_labels(random)
    metadata["annotations"] |= some_annotations(random)
    queue = random.choice(_QUEUES)
    if queue is not None:
        metadata["labels"][names.QUEUE] = queue
    if random.random() < OWNED:
        metadata["ownerReferences"] = [{**await some_owner(tenant), "controller": False}]
    if random.random() < 1 / 8:
        metadata["finalizers"] = ["example.com/keep"]
    if random.random() < 1 / 8:
        spec["schedulingGates"] = [random.choice((*_GATES, {"name": "example.com/mine"}))]
    await tenant.create(kinds.POD, obj)


async def _deploy(tenant: Tenant) -> None:
    """Create a Deployment, or change its queue and its template."""
    random = tenant.random
    name = random.choice(_DEPLOYMENTS)
    labels = some_labels(random)
    queue = random.choice(_QUEUES)
    if queue is not None:
        labels[names.QUEUE] = queue
    template = {
        "metadata": {"labels": {"app": name, **random.choice(({}, some_labels(random)))}},
        "spec": pod_spec(cpu=random.choice(_CPU)),
    }
    spec = {"replicas": 2, "template": template}
    if any(one["metadata"]["name"] == name for one in await tenant.list(kinds.DEPLOYMENT)):
        patch = {"metadata": {"labels": {names.QUEUE: None, **labels}}, "spec": spec}
        await tenant.patch(kinds.DEPLOYMENT, name, patch)
        return
    kind = kinds.DEPLOYMENT
    metadata = {"name": name, "namespace": tenant.namespace, "labels": labels}
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    await tenant.create(kind, obj)


async def _roll_out(tenant: Tenant) -> None:
    """Create a pod of a Deployment's template, as its controller does."""
    random = tenant.random
    owner = await tenant.some(kinds.DEPLOYMENT)
    if owner is None:
        return
    name = f"{owner['metadata']['name']}-{random.randint(0, 2)}"
    obj = pod(name, tenant.namespace, cpu="", seconds=random.choice(_SECONDS))
    template = owner["spec"]["template"]
    obj["metadata"]["labels"] = template["metadata"].get("labels") or {}
    obj["metadata"]["ownerReferences"] = [
        {
            "apiVersion": kinds.DEPLOYMENT.api_version,
            "kind": kinds.DEPLOYMENT.kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]
    obj["spec"] = template["spec"]
    await tenant.create(kinds.POD, obj)


async def _ungate(tenant: Tenant) -> None:
    await _change(tenant, {"spec": {"schedulingGates": None}})


async def _hide(tenant: Tenant) -> None:
    """Take away or change what a pod is seen and counted by."""
    changed = tenant.random.choice(
        (
            {names.MANAGED_LABEL: None},
            {names.MANAGED_LABEL: "false"},
            {names.MANAGED_LABEL: None, names.QUEUE: None},
            {names.QUEUE: None},
            {names.QUEUE: tenant.random.choice(LOCAL_QUEUES)},
        )
    )
    await _change(tenant, {"metadata": {"labels": changed}})


async def _relabel(tenant: Tenant) -> None:
    metadata = {
        "labels": some_labels(tenant.random),
        "annotations": some_annotations(tenant.random),
    }
    await _change(tenant, {"metadata": metadata})


async def _let_go(tenant: Tenant) -> None:
    """Take the finalizers away, and delete it in half of the cases."""
    name = await _change(tenant, {"metadata": {"finalizers": None}})
    if name is not None and tenant.random.random() < 1 / 2:
        await tenant.delete(kinds.POD, name)


async def _own(tenant: Tenant) -> None:
    owner = {**await some_owner(tenant), "controller": False}
    await _change(tenant, {"metadata": {"ownerReferences": tenant.random.choice(([owner], None))}})


async def _delete(tenant: Tenant) -> None:
    obj = await _some(tenant)
    if obj is not None:
        await tenant.delete(kinds.POD, obj["metadata"]["name"])


async def _create_again(tenant: Tenant) -> None:
    """Delete a pod and create one of its name as soon as that is free, that asks for something else."""
    old = await _some(tenant)
    if old is None:
        return
    name = old["metadata"]["name"]
    await tenant.delete(kinds.POD, name)
    await asyncio.sleep(tenant.random.choice((0.0, 1.2, 3.0)))
    obj = pod(
        name,
        tenant.namespace,
        cpu=tenant.random.choice(_CPU),
        seconds=tenant.random.choice((5, 60)),
    )
    copied = old["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = {names.QUEUE: LOCAL_QUEUES[0], **copied}
    await tenant.create(kinds.POD, obj)


async def _change(tenant: Tenant, patch: dict[str, Any]) -> str | None:
    """Patch one of the pods that no Job made; return its name if that was accepted."""
    obj = await _some(tenant)
    if obj is None:
        return None
    name: str = obj["metadata"]["name"]
    return name if await tenant.patch(kinds.POD, name, patch) is not None else None


async def _some(tenant: Tenant) -> Object | None:
    """Return one of the pods that the tenant made, or None."""
    made = ("pod-", *(f"{name}-" for name in _DEPLOYMENTS))
    found = [
        one for one in await tenant.list(kinds.POD) if one["metadata"]["name"].startswith(made)
    ]
    return tenant.random.choice(found) if found else None


POD_WRITES: Final[dict[Write, int]] = {
    _create: 10,
    _deploy: 2,
    _roll_out: 4,
    _ungate: 5,
    _hide: 3,
    _relabel: 1,
    _let_go: 2,
    _own: 1,
    _delete: 2,
    _create_again: 2,
}
"""Writes and how often each is drawn."""
