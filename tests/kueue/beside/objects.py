"""What the tests create in clusters, and what they read there."""

import base64
from pathlib import Path
from typing import Any, Final

import yaml

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.kube.client import HttpKube
from shared.kube.port import NotFoundError
from tests.kueue.beside.pods import SECONDS

NAMESPACE: Final = "team-a"
QUEUE: Final = "main"
CHECK: Final = "far"
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"


def named(kind: Kind, name: str, spec: Object | None = None, **metadata: Any) -> Object:
    """An object of a kind."""
    body: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **metadata},
    }
    if spec is not None:
        body["spec"] = spec
    return body


async def create(kube: HttpKube, kind: Kind, name: str, spec: Object, **metadata: Any) -> Object:
    """Create an object; of a namespaced kind in the tests' namespace."""
    if kind.namespaced:
        metadata.setdefault("namespace", NAMESPACE)
    return await kube.create(kind, named(kind, name, spec, **metadata))


async def queues(kube: HttpKube, *, cpu: str, check: str | None = None, **spec: Any) -> None:
    """A namespace, classes of priority, and a LocalQueue whose ClusterQueue has so much CPU."""
    await kube.create(kinds.NAMESPACE, named(kinds.NAMESPACE, NAMESPACE))
    for name, value in (("low", 10), ("high", 1000)):
        made = named(kinds.WORKLOAD_PRIORITY_CLASS, name)
        await kube.create(kinds.WORKLOAD_PRIORITY_CLASS, {**made, "value": value})
    await create(kube, kinds.RESOURCE_FLAVOR, "any", {})
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": resources}]}]
    wanted: Object = {
        "namespaceSelector": {},
        "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority"},
        **spec,
    }
    if check is not None:
        wanted["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    await create(kube, kinds.CLUSTER_QUEUE, QUEUE, wanted)
    await create(kube, kinds.LOCAL_QUEUE, QUEUE, {"clusterQueue": QUEUE})


def job(
    name: str, *, seconds: float | None, pods: int = 1, priority: str = "low", **spec: Any
) -> Object:
    """A Job whose pods run so long; None: until they are deleted."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    template: Object = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    if seconds is not None:
        template["metadata"] = {"annotations": {SECONDS: f"{seconds:g}"}}
    labels = {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": priority}
    size = {"parallelism": pods, "completions": pods}
    wanted = {"suspend": True, **size, "template": template, **spec}
    return named(kinds.JOB, name, wanted, namespace=NAMESPACE, labels=labels)


async def get(kube: HttpKube, kind: Kind, name: str) -> Object | None:
    """An object, or None if there is none."""
    try:
        return await kube.get(kind, NAMESPACE if kind.namespaced else None, name)
    except NotFoundError:
        return None


async def listed(kube: HttpKube, kind: Kind) -> list[Object]:
    """The objects of a kind in the tests' namespace."""
    return list((await kube.list(kind, namespace=NAMESPACE)).items)


async def workload_of(kube: HttpKube, name: str) -> Object | None:
    """The Workload of the job of that name; None if it has none."""
    for workload in await listed(kube, kinds.WORKLOAD):
        owners = workload["metadata"].get("ownerReferences") or []
        if any(owner["name"] == name for owner in owners):
            return workload
    return None


def conditions_of(obj: Object | None) -> dict[str, str]:
    """Type of each condition to its status."""
    found = ((obj or {}).get("status") or {}).get("conditions") or []
    return {one["type"]: one["status"] for one in found}


async def is_complete(kube: HttpKube, name: str) -> bool:
    """Whether the Job has ended well."""
    return conditions_of(await get(kube, kinds.JOB, name)).get("Complete") == "True"


async def usage(kube: HttpKube) -> tuple[int, str]:
    """How many workloads hold quota of the queue, and how much CPU, by its status."""
    status = (await get(kube, kinds.CLUSTER_QUEUE, QUEUE) or {}).get("status") or {}
    flavors = status.get("flavorsReservation") or []
    totals = [
        one["total"] for flavor in flavors for one in flavor["resources"] if one["name"] == "cpu"
    ]
    return status.get("reservingWorkloads") or 0, str(totals[0]) if totals else "0"


def embedded(kubeconfig: Path) -> str:
    """The kubeconfig with the contents of the files that it names."""
    document = yaml.safe_load(kubeconfig.read_text())
    for entry in (document["clusters"][0]["cluster"], document["users"][0]["user"]):
        for field in ("certificate-authority", "client-certificate", "client-key"):
            if (name := entry.pop(field, None)) is not None:
                content = (kubeconfig.parent / name).read_bytes()
                entry[f"{field}-data"] = base64.b64encode(content).decode()
    return str(yaml.safe_dump(document))


async def name_spoke(kube: HttpKube, spoke: str, **annotations: str) -> None:
    """Name a spoke at the hub, reached by the Secret of its name, and a check that leads there."""
    location = {"kubeConfig": {"location": spoke, "locationType": "Secret"}}
    source = {"clusterSource": location}
    await create(kube, kinds.MULTIKUEUE_CLUSTER, spoke, source, annotations=annotations)
    await create(kube, kinds.MULTIKUEUE_CONFIG, CHECK, {"clusters": [spoke]})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": CHECK}
    spec = {"controllerName": MULTIKUEUE, "parameters": parameters}
    await create(kube, kinds.ADMISSION_CHECK, CHECK, spec)


async def is_usable(kube: HttpKube) -> bool:
    """Whether the check is active."""
    found = await get(kube, kinds.ADMISSION_CHECK, CHECK)
    return conditions_of(found).get("Active") == "True"
