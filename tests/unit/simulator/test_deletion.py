"""Deletion of objects: finalizers, owners, terminating namespaces."""

import pytest

from services.simulator.cluster.api import DeleteOptions
from services.simulator.cluster.errors import ApiError
from tests.unit.simulator.builders import api, config_map, kind
from tests.unit.simulator.requests import MAPS, create, delete, merge, owned, there


async def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    cluster = api()
    await create(cluster, MAPS, config_map(finalizers=["a.example/x", "a.example/y"]))

    assert not await delete(cluster, MAPS, "a")
    held = await merge(cluster, MAPS, "a", {"metadata": {"finalizers": ["a.example/y"]}})
    assert held.obj["metadata"]["deletionTimestamp"]
    await merge(cluster, MAPS, "a", {"metadata": {"finalizers": None}})

    assert not there(cluster, MAPS, "a")


async def test_terminating_object_accepts_no_new_finalizer() -> None:
    cluster = api()
    await create(cluster, MAPS, config_map(finalizers=["a.example/x"]))
    await delete(cluster, MAPS, "a")

    patch = {"metadata": {"finalizers": ["a.example/x", "a.example/z"]}}
    with pytest.raises(ApiError, match="no new finalizers can be added") as refused:
        await merge(cluster, MAPS, "a", patch)

    assert refused.value.code == 422


async def test_terminating_namespace_accepts_no_new_object() -> None:
    cluster = api()
    spaces = kind(cluster, "namespaces")
    await cluster.create(spaces, "v1", "", {"metadata": {"name": "team"}})
    await cluster.delete(spaces, "", "team", DeleteOptions())

    with pytest.raises(ApiError, match="because it is being terminated") as refused:
        await create(cluster, MAPS, {"metadata": {"name": "a"}}, "team")

    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert refused.value.status()["details"]["causes"][0]["reason"] == "NamespaceTerminating"


async def test_owned_object_is_deleted_with_its_last_owner() -> None:
    cluster = api()
    first = await create(cluster, MAPS, config_map("first"))
    second = await create(cluster, MAPS, config_map("second"))
    await create(cluster, MAPS, owned("child", first, second))
    grandchild = owned("grandchild", cluster.get(kind(cluster, "configmaps"), "default", "child"))
    await create(cluster, MAPS, grandchild)

    await delete(cluster, MAPS, "first")
    child = cluster.get(kind(cluster, "configmaps"), "default", "child")
    assert [owner["name"] for owner in child.obj["metadata"]["ownerReferences"]] == ["second"]
    await delete(cluster, MAPS, "second")

    assert not there(cluster, MAPS, "child")
    assert not there(cluster, MAPS, "grandchild")


async def test_object_created_for_a_deleted_owner_is_deleted_at_once() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    await delete(cluster, MAPS, "owner")

    await create(cluster, MAPS, owned("child", owner))

    assert not there(cluster, MAPS, "child")


async def test_orphaned_objects_stay_without_owner_references() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    await create(cluster, MAPS, owned("child", owner))

    await delete(cluster, MAPS, "owner", propagation="Orphan")

    assert not there(cluster, MAPS, "owner")
    child = cluster.get(kind(cluster, "configmaps"), "default", "child")
    assert "ownerReferences" not in child.obj["metadata"]


async def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    body = owned("child", owner, block=True)
    body["metadata"]["finalizers"] = ["a.example/x"]
    await create(cluster, MAPS, body)

    assert not await delete(cluster, MAPS, "owner", propagation="Foreground")
    assert there(cluster, MAPS, "owner")
    await merge(cluster, MAPS, "child", {"metadata": {"finalizers": None}})

    assert not there(cluster, MAPS, "child")
    assert not there(cluster, MAPS, "owner")


async def test_foreground_deletion_deletes_all_levels() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    child = await create(cluster, MAPS, owned("child", owner, block=True))
    body = owned("grandchild", child, block=True)
    body["metadata"]["finalizers"] = ["a.example/x"]
    await create(cluster, MAPS, body)

    assert not await delete(cluster, MAPS, "owner", propagation="Foreground")
    assert there(cluster, MAPS, "child")
    assert there(cluster, MAPS, "owner")
    await merge(cluster, MAPS, "grandchild", {"metadata": {"finalizers": None}})

    assert not there(cluster, MAPS, "child")
    assert not there(cluster, MAPS, "owner")
