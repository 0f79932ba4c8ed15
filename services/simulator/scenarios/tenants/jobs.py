"""Writes to Jobs: creation in every form, suspend, parallelism, deletion and the same name again."""

from typing import Final

from services.simulator.scenarios.tenants.load import LOCAL_QUEUES, job
from services.simulator.scenarios.tenants.metadata import (
    OWNED,
    some_annotations,
    some_labels,
    some_owner,
)
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube import kinds, names
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD

_NAMES: Final = tuple(f"job-{number}" for number in range(6))
"""Few, so that names come again."""

_QUEUES: Final = (*LOCAL_QUEUES, LOCAL_QUEUES[0], LOCAL_QUEUES[0], "nowhere", "", None)
_PARALLELISM_MAX: Final = 12
_CPU: Final = ("", "1m", "500m", "1", "1", "2", "1000")


async def _create(tenant: Tenant) -> None:
    random = tenant.random
    obj = job(
        random.choice(_NAMES),
        tenant.namespace,
        cpu=random.choice(_CPU),
        pods=random.choice((1, 1, 2, _PARALLELISM_MAX)),
        seconds=random.choice((2, 20, 60, 300)),
    )
    metadata, spec = obj["metadata"], obj["spec"]
    metadata["labels"] = some_labels(random)
    metadata["annotations"] = some_annotations(random)
    queue = random.choice(_QUEUES)
    if queue is not None:
        metadata["labels"][names.QUEUE] = queue
    if random.random() < OWNED:
        metadata["ownerReferences"] = [await some_owner(tenant)]
    if random.random() < 1 / 8:
        metadata["finalizers"] = ["example.com/keep"]
    if random.random() < 1 / 2:
        spec["suspend"] = random.random() < 1 / 2
    if random.random() < 1 / 16:
        spec["managedBy"] = MULTIKUEUE
    if random.random() < 1 / 8:
        spec["ttlSecondsAfterFinished"] = 0
    if random.random() < 1 / 2:
        # More of them may run at a time once its parallelism is raised.
        spec["completions"] = _PARALLELISM_MAX
    await tenant.create(kinds.JOB, obj)


async def run_beyond_counting(tenant: Tenant) -> None:
    """Start a Job that asks for more than any quantity can say."""
    name = tenant.random.choice(_NAMES)
    obj = job(name, tenant.namespace, cpu="7E", pods=2, seconds=tenant.random.choice((5, 30)))
    obj["metadata"]["labels"] = {names.QUEUE: LOCAL_QUEUES[0]}
    await tenant.create(kinds.JOB, obj)
    await tenant.patch(kinds.JOB, name, {"spec": {"suspend": False}})


async def _create_as_copy(tenant: Tenant) -> None:
    """Create a Job that claims to be a hub's copy, for an existing Workload."""
    workload = await tenant.some(kinds.WORKLOAD)
    obj = job(tenant.random.choice(_NAMES), tenant.namespace, cpu="1", seconds=60)
    name = "job-nobody" if workload is None else workload["metadata"]["name"]
    obj["metadata"]["labels"] = {
        names.QUEUE: LOCAL_QUEUES[0],
        ORIGIN: tenant.random.choice(("hub", "multikueue")),
        PREBUILT_WORKLOAD: name,
    }
    await tenant.create(kinds.JOB, obj)


async def _unsuspend(tenant: Tenant) -> None:
    await _change(tenant, {"spec": {"suspend": False}})


async def _suspend(tenant: Tenant) -> None:
    await _change(tenant, {"spec": {"suspend": True}})


async def scale(tenant: Tenant) -> None:
    """Change how many pods of a Job may run at a time, also while it runs."""
    pods = tenant.random.choice((0, 1, 2, _PARALLELISM_MAX))
    await _change(tenant, {"spec": {"parallelism": pods}})


async def _leave_and_unsuspend(tenant: Tenant) -> None:
    """Take the queue off and start, in one write or two."""
    patch = {"metadata": {"labels": {names.QUEUE: None}}}
    if tenant.random.random() < 1 / 2:
        await _change(tenant, {**patch, "spec": {"suspend": False}})
        return
    obj = await _change(tenant, patch)
    if obj is not None:
        await tenant.patch(kinds.JOB, obj, {"spec": {"suspend": False}})


async def _delete(tenant: Tenant) -> None:
    obj = await tenant.some(kinds.JOB)
    if obj is not None:
        await tenant.delete(kinds.JOB, obj["metadata"]["name"])


async def _create_again(tenant: Tenant) -> None:
    """Delete a Job and create one of its name at once, that asks for something else."""
    old = await tenant.some(kinds.JOB)
    if old is None:
        return
    name = old["metadata"]["name"]
    await tenant.delete(kinds.JOB, name)
    obj = job(
        name,
        tenant.namespace,
        cpu=tenant.random.choice(_CPU),
        pods=tenant.random.choice((1, 2)),
        seconds=tenant.random.choice((5, 60)),
    )
    copied = old["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = {names.QUEUE: LOCAL_QUEUES[0], **copied}
    await tenant.create(kinds.JOB, obj)


async def _change(tenant: Tenant, patch: object) -> str | None:
    """Patch one of the Jobs; return its name if that was accepted."""
    obj = await tenant.some(kinds.JOB)
    if obj is None:
        return None
    name: str = obj["metadata"]["name"]
    assert isinstance(patch, dict)
    return name if await tenant.patch(kinds.JOB, name, patch) is not None else None


JOB_WRITES: Final[dict[Write, int]] = {
    _create: 12,
    _create_as_copy: 1,
    run_beyond_counting: 1,
    _unsuspend: 5,
    _suspend: 1,
    scale: 2,
    _leave_and_unsuspend: 2,
    _delete: 3,
    _create_again: 2,
}
"""Writes and how often each is drawn."""
