"""Writes to JobSets and to the Jobs that they make: to let these out, to forge some, to delete either.

They have draws of their own, so that a world without them stays what it is.
"""

import asyncio
from random import Random
from typing import Any, Final

from services.simulator.scenarios.tenants.load import LOCAL_QUEUES, job
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.integrations import JOB_SET

_NAMES: Final = 10_000
"""So many that none comes again: nobody sees a JobSet while pods of an earlier one of its name run."""

_AT_A_TIME: Final = 3
"""JobSets that there are at a time."""

_QUEUES: Final = (*LOCAL_QUEUES[:2], LOCAL_QUEUES[0], "nowhere", None)
_PARTS: Final = "w"
_CPU: Final = ("500m", "1", "1", "2")
_SECONDS: Final = (5, 20, 60, 300)
_NOBODY: Final = "22222222-2222-4222-8222-222222222222"
_ORPHAN: Final = "orphan"
"""The finalizer by which the garbage collector keeps what an object made."""

_SEEN_SECONDS: Final = 2.0
"""Age of a Job that services have seen: times of creation are whole seconds."""

Metadata = dict[str, Any]


async def _create(tenant: Tenant) -> None:
    random = tenant.random
    if len(await tenant.list(JOB_SET.kind)) >= _AT_A_TIME:
        return
    parallelism = random.choice((1, 1, 2))
    made = job("any", tenant.namespace, cpu=random.choice(_CPU), seconds=random.choice(_SECONDS))
    spec = {**made["spec"], "parallelism": parallelism, "completions": parallelism}
    template = {"metadata": {"labels": _labels(random)}, "spec": spec}
    replicated = {"name": _PARTS, "replicas": random.choice((1, 2, 2)), "template": template}
    kind = JOB_SET.kind
    queue = random.choice(_QUEUES)
    metadata: Metadata = {"name": f"set-{random.randrange(_NAMES)}", "namespace": tenant.namespace}
    metadata["labels"] = {} if queue is None else {names.QUEUE: queue}
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    obj["spec"] = {"replicatedJobs": [replicated]}
    await tenant.create(kind, obj)


def _labels(random: Random) -> dict[str, str]:
    """Labels of a Job below a JobSet: half of them name a queue."""
    return random.choice(({}, {names.QUEUE: LOCAL_QUEUES[0]}))


async def _let_out(tenant: Tenant) -> None:
    """Take the reference of a Job to its JobSet away, or point it elsewhere."""
    child = await _child(tenant)
    if child is None:
        return
    owner = child["metadata"]["ownerReferences"][0]
    other = await tenant.some(JOB_SET.kind)
    elsewhere = owner if other is None else _reference(other)
    wrong: list[Metadata] = [{"uid": _NOBODY}, {"name": "somebody-else"}, {"controller": False}]
    owners = tenant.random.choice(
        (None, None, [elsewhere], [{**owner, **tenant.random.choice(wrong)}])
    )
    await _change(tenant, child, {"metadata": {"ownerReferences": owners}})


async def _let_out_and_start(tenant: Tenant) -> None:
    child = await _child(tenant)
    if child is None:
        return
    await _change(tenant, child, {"metadata": {"ownerReferences": None}})
    await asyncio.sleep(tenant.random.choice((0.0, 0.5, 5.0)))
    await _change(tenant, child, {"spec": {"suspend": False}})


async def _forge(tenant: Tenant) -> None:
    """Create a Job that names a JobSet as its controller: in the place of one of its own, or besides."""
    random = tenant.random
    owner = await tenant.some(JOB_SET.kind)
    if owner is None:
        return
    name = f"{owner['metadata']['name']}-{_PARTS}-{random.randint(0, 4)}"
    obj = job(name, tenant.namespace, cpu=random.choice(_CPU), seconds=random.choice(_SECONDS))
    obj["metadata"] |= {"labels": _labels(random), "ownerReferences": [_reference(owner)]}
    obj["spec"]["suspend"] = random.random() < 1 / 4
    await tenant.create(kinds.JOB, obj)


async def _change_child(tenant: Tenant) -> None:
    spec = tenant.random.choice(
        ({"suspend": False}, {"suspend": True}, {"parallelism": 3}, {"parallelism": 1})
    )
    child = await _child(tenant)
    if child is not None:
        await _change(tenant, child, {"spec": spec})


async def _keep_child(tenant: Tenant) -> None:
    """Keep a Job with a finalizer, or let it go."""
    child = await _child(tenant)
    if child is not None:
        kept = tenant.random.choice((["example.com/keep"], None))
        await _change(tenant, child, {"metadata": {"finalizers": kept}})


async def _delete_child(tenant: Tenant) -> None:
    child = await _child(tenant)
    if child is not None:
        await tenant.delete(kinds.JOB, child["metadata"]["name"])


async def _delete(tenant: Tenant) -> None:
    """Delete a JobSet, with its Jobs or without."""
    owner = await tenant.some(JOB_SET.kind)
    if owner is None:
        return
    name = owner["metadata"]["name"]
    if tenant.random.random() < 1 / 2:
        await tenant.patch(JOB_SET.kind, name, {"metadata": {"finalizers": [_ORPHAN]}})
    await tenant.delete(JOB_SET.kind, name)


async def _change_set(tenant: Tenant) -> None:
    patches: tuple[Metadata, ...] = (
        {"spec": {"suspend": True}},
        {"spec": {"suspend": False}},
        {"metadata": {"labels": {names.QUEUE: None}}},
    )
    owner = await tenant.some(JOB_SET.kind)
    if owner is not None:
        await tenant.patch(JOB_SET.kind, owner["metadata"]["name"], tenant.random.choice(patches))


async def _change_workload(tenant: Tenant) -> None:
    """Deactivate the Workload of a JobSet, or activate it."""
    found = await tenant.list(kinds.WORKLOAD)
    mine = [one for one in found if one["metadata"]["name"].startswith("jobset-")]
    if mine:
        name = tenant.random.choice(mine)["metadata"]["name"]
        active = tenant.random.random() < 1 / 2
        await tenant.patch(kinds.WORKLOAD, name, {"spec": {"active": active}})


async def _child(tenant: Tenant) -> Object | None:
    """Return one of the Jobs that name a JobSet, or None; none that nobody has seen yet."""
    found = [
        one
        for one in await tenant.list(kinds.JOB)
        for owner in one["metadata"].get("ownerReferences") or []
        if owner["kind"] == JOB_SET.kind.kind and tenant.age(one) >= _SEEN_SECONDS
    ]
    return tenant.random.choice(found) if found else None


async def _change(tenant: Tenant, obj: Object, patch: Metadata) -> None:
    await tenant.patch(kinds.JOB, obj["metadata"]["name"], patch)


def _reference(owner: Object) -> Metadata:
    kind, metadata = JOB_SET.kind, owner["metadata"]
    about = {"name": metadata["name"], "uid": metadata["uid"], "controller": True}
    return {"apiVersion": kind.api_version, "kind": kind.kind, **about}


JOB_SET_WRITES: Final[dict[Write, int]] = {
    _create: 10,
    _let_out: 8,
    _let_out_and_start: 2,
    _forge: 4,
    _change_child: 4,
    _keep_child: 1,
    _delete_child: 3,
    _delete: 4,
    _change_set: 2,
    _change_workload: 3,
}
"""Writes and how often each is drawn."""
