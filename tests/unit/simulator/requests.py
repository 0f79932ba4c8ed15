"""Short forms of the API's verbs for the simulator's tests."""

from typing import Any

from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from tests.unit.simulator.builders import config_map, kind

JOBS, RUNS, MAPS = ("batch", "jobs"), ("tekton.dev", "pipelineruns"), ("", "configmaps")


Which = tuple[str, str]


async def create(cluster: Api, which: Which, body: Obj, namespace: str = "default") -> Stored:
    found = kind(cluster, which[1], which[0])
    return await cluster.create(found, found.storage_version, namespace, body)


async def merge(cluster: Api, which: Which, name: str, patch: Any, subresource: str = "") -> Stored:
    found = kind(cluster, which[1], which[0])
    return await cluster.patch(
        found, found.storage_version, "default", name, patch, "merge", subresource=subresource
    )


async def delete(cluster: Api, which: Which, name: str, **options: Any) -> bool:
    found = kind(cluster, which[1], which[0])
    _, gone = await cluster.delete(found, "default", name, DeleteOptions(**options))
    return gone


def there(cluster: Api, which: Which, name: str) -> bool:
    return cluster.store.get(kind(cluster, which[1], which[0]), "default", name) is not None


def owned(name: str, *owners: Stored, block: bool = False) -> Obj:
    references = [
        {
            "apiVersion": owner.obj["apiVersion"],
            "kind": owner.obj["kind"],
            "name": owner.name,
            "uid": owner.uid,
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return config_map(name, ownerReferences=references)
