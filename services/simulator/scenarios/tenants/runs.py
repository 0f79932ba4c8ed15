"""Writes to PipelineRuns: creation in every form, spec.status, deletion and the same name again."""

from typing import Final

from services.simulator.scenarios.tenants.load import LOCAL_QUEUES, pipeline_run
from services.simulator.scenarios.tenants.metadata import (
    OWNED,
    some_annotations,
    some_labels,
    some_owner,
)
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts.coscheduling import PENDING
from shared.contracts.kube import kinds, names

_NAMES: Final = tuple(f"run-{number}" for number in range(5))
_QUEUES: Final = (LOCAL_QUEUES[2], LOCAL_QUEUES[0], "nowhere", "", None, None, None)
_TASKS_MAX: Final = 6


async def _create(tenant: Tenant) -> None:
    random = tenant.random
    run = pipeline_run(
        random.choice(_NAMES),
        tenant.namespace,
        tasks=random.choice((1, 1, 2, _TASKS_MAX)),
        seconds=random.choice((2, 20, 60, 300)),
    )
    metadata = run["metadata"]
    metadata["labels"] = some_labels(random)
    metadata["annotations"] |= some_annotations(random)
    queue = random.choice(_QUEUES)
    if queue is not None:
        metadata["labels"][names.QUEUE] = queue
    if random.random() < OWNED:
        metadata["ownerReferences"] = [await some_owner(tenant)]
    if random.random() < 1 / 8:
        metadata["finalizers"] = ["example.com/keep"]
    if random.random() < 1 / 8:
        run["spec"]["status"] = PENDING
    await tenant.create(kinds.PIPELINE_RUN, run)


async def _unpause(tenant: Tenant) -> None:
    await _change(tenant, None)


async def _pause(tenant: Tenant) -> None:
    await _change(tenant, PENDING)


async def _stop(tenant: Tenant) -> None:
    how = ("Cancelled", "CancelledRunFinally", "StoppedRunFinally")
    await _change(tenant, tenant.random.choice(how))


async def _change(tenant: Tenant, status: str | None) -> None:
    run = await tenant.some(kinds.PIPELINE_RUN)
    if run is not None:
        patch = {"spec": {"status": status}}
        await tenant.patch(kinds.PIPELINE_RUN, run["metadata"]["name"], patch)


async def _change_requests(tenant: Tenant) -> None:
    """Ask for less, or for nothing, while it waits or runs."""
    run = await tenant.some(kinds.PIPELINE_RUN)
    if run is None:
        return
    annotations = run["metadata"].get("annotations") or {}
    asked = sorted(key for key in annotations if key.startswith(names.REQUESTS_PREFIX))
    changed = {key: tenant.random.choice((None, "0", "1", "-5", "1000")) for key in asked}
    patch = {"metadata": {"annotations": changed}}
    await tenant.patch(kinds.PIPELINE_RUN, run["metadata"]["name"], patch)


async def _delete(tenant: Tenant) -> None:
    run = await tenant.some(kinds.PIPELINE_RUN)
    if run is not None:
        await tenant.delete(kinds.PIPELINE_RUN, run["metadata"]["name"])


async def _create_again(tenant: Tenant) -> None:
    """Delete a PipelineRun and create one of its name at once."""
    old = await tenant.some(kinds.PIPELINE_RUN)
    if old is None:
        return
    name = old["metadata"]["name"]
    await tenant.delete(kinds.PIPELINE_RUN, name)
    run = pipeline_run(name, tenant.namespace, tasks=tenant.random.randint(1, 3), seconds=20)
    copied = old["metadata"].get("annotations") or {}
    if tenant.random.random() < 1 / 2:
        run["metadata"]["annotations"] = dict(copied)
    await tenant.create(kinds.PIPELINE_RUN, run)


RUN_WRITES: Final[dict[Write, int]] = {
    _create: 9,
    _unpause: 4,
    _pause: 1,
    _stop: 1,
    _change_requests: 3,
    _delete: 2,
    _create_again: 1,
}
"""Writes and how often each is drawn."""
