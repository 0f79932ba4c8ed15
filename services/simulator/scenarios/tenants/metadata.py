"""Writes to the metadata of any object: labels, annotations, ownerReferences, finalizers."""

from random import Random
from typing import Any, Final

from services.simulator.scenarios.tenants.load import HONEST, LOCAL_QUEUES
from services.simulator.scenarios.tenants.rights import Tenant, Write
from shared.contracts import coscheduling
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages import spokes
from shared.contracts.simulation import DURATION
from shared.contracts.tekton import TASK_RUN_LABEL

_PREFIXES: Final = (f"{kinds.KUEUE_GROUP}/", f"{kinds.OUR_GROUP}/")
_MARKS: Final = sorted(
    {
        value
        for module in (names, coscheduling, spokes)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith(_PREFIXES) and not value.endswith(("/", "-"))
    }
)
"""Every label and annotation that means something to Sluicegate: whatever a service reads, is tried."""

_REQUESTS: Final = tuple(
    names.REQUESTS_PREFIX + resource for resource in ("tasks", "cpu", "tekton.dev-pipelineruns")
)
_QUEUES: Final = (*LOCAL_QUEUES, *LOCAL_QUEUES, "honest", "nowhere", "")
_FINALIZERS: Final = ("example.com/keep", names.RESOURCE_IN_USE, spokes.COPY_FINALIZER)
OWNED: Final = 0.25
"""Share of new objects that name a controller."""

_ASKING: Final = 0.3
"""Share of annotations that ask for something."""

_LONG: Final = 60_000
"""Characters of a huge annotation."""

_KINDS: Final = (kinds.JOB, kinds.JOB, kinds.PIPELINE_RUN, kinds.PIPELINE_RUN, kinds.WORKLOAD)


def some_labels(random: Random) -> dict[str, str]:
    """Draw labels that mean something to a service, with values that may mean something."""
    labels = {}
    if random.random() < 1 / 2:
        labels[names.PRIORITY_CLASS_LABEL] = random.choice(("high", "low", "unknown"))
    for key in random.sample(_MARKS, random.choice((0, 0, 1, 3))):
        labels[key] = _value(random)
    return labels


def some_annotations(random: Random) -> dict[str, str]:
    """Draw annotations that mean something to a service, seldom a huge one."""
    annotations = {key: _value(random) for key in random.sample(_MARKS, random.choice((0, 1, 3)))}
    if random.random() < _ASKING:
        amounts = ("0", "1", "-1", "1000", "9223372036854775807", "1e3", "x")
        annotations[random.choice(_REQUESTS)] = random.choice(amounts)
    if random.random() < 1 / 20:
        annotations["example.com/huge"] = "x" * _LONG
    return annotations


def _value(random: Random) -> str:
    return random.choice(("true", "false", "0", "1", "99", *_QUEUES, "hub", "east"))


async def some_owner(tenant: Tenant) -> Object:
    """Return an ownerReference with `controller`: to one of its objects, to nothing, or to an honest job."""
    random = tenant.random
    kind = random.choice((kinds.JOB, kinds.PIPELINE_RUN))
    owner = await tenant.some(kind)
    name, uid = "nobody", "11111111-1111-4111-8111-111111111111"
    if owner is not None:
        name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    if random.random() < 1 / 4:
        name = "somebody-else"
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name,
        "uid": uid,
        "controller": random.random() < 3 / 4,
    }


async def _relabel(tenant: Tenant) -> None:
    labels: dict[str, str | None] = dict(some_labels(tenant.random))
    await _patch(tenant, {"metadata": {"labels": labels}})


async def _change_queue(tenant: Tenant) -> None:
    queue = tenant.random.choice((*_QUEUES, None))
    await _patch(tenant, {"metadata": {"labels": {names.QUEUE: queue}}})


async def _change_priority(tenant: Tenant) -> None:
    priority = tenant.random.choice(("high", "low", "unknown", None))
    await _patch(tenant, {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: priority}}})


async def _annotate(tenant: Tenant) -> None:
    await _patch(tenant, {"metadata": {"annotations": some_annotations(tenant.random)}})


async def _remove_annotations(tenant: Tenant) -> None:
    kind = tenant.random.choice(_KINDS)
    obj = await tenant.some(kind)
    present = sorted((obj or {}).get("metadata", {}).get("annotations") or {})
    if obj is None or not present:
        return
    chosen = tenant.random.sample(present, tenant.random.randint(1, len(present)))
    removed = {key: None for key in chosen if key != DURATION}
    await tenant.patch(kind, obj["metadata"]["name"], {"metadata": {"annotations": removed}})


async def _set_owner(tenant: Tenant) -> None:
    owners = tenant.random.choice(([await some_owner(tenant)], [await some_owner(tenant)], None))
    await _patch(tenant, {"metadata": {"ownerReferences": owners}})


async def _set_finalizers(tenant: Tenant) -> None:
    finalizers: Any = tenant.random.choice((None, None, [tenant.random.choice(_FINALIZERS)]))
    await _patch(tenant, {"metadata": {"finalizers": finalizers}})


async def _change_pod(tenant: Tenant) -> None:
    """Let a pod's owner be somebody else, relabel it, or delete it."""
    pod = await tenant.some(kinds.POD)
    if pod is None:
        return
    name = pod["metadata"]["name"]
    if tenant.random.random() < 1 / 2:
        await tenant.delete(kinds.POD, name)
        return
    labels = {**some_labels(tenant.random), TASK_RUN_LABEL: "x", coscheduling.RUN_LABEL: HONEST[0]}
    await tenant.patch(kinds.POD, name, {"metadata": {"labels": labels}})


async def _patch(tenant: Tenant, patch: dict[str, Any]) -> None:
    kind: Kind = tenant.random.choice(_KINDS)
    obj = await tenant.some(kind)
    if obj is not None:
        await tenant.patch(kind, obj["metadata"]["name"], patch)


METADATA_WRITES: Final[dict[Write, int]] = {
    _relabel: 2,
    _change_queue: 3,
    _change_priority: 2,
    _annotate: 3,
    _remove_annotations: 1,
    _set_owner: 3,
    _set_finalizers: 1,
    _change_pod: 1,
}
"""Writes and how often each is drawn."""
