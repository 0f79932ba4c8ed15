"""What every cluster does with objects, as the services count on it."""

import pytest

from shared.contracts.kube.kinds import (
    CONFIG_MAP,
    NAMESPACE,
    PIPELINE_RUN,
    SECRET,
    WORKLOAD,
    Kind,
    Object,
)
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    RefusedError,
)
from shared.testing.waiting import eventually
from tests.contract.kubernetes.definitions import LATECOMER
from tests.contract.kubernetes.stage import Stage, config_map, create, workload


async def test_created_object_is_stored_with_uid_and_version(
    stage: Stage,
) -> None:
    created = await stage.kube.create(CONFIG_MAP, config_map(stage.namespace, "a", k="v"))
    assert created["metadata"]["uid"]
    assert created["metadata"]["resourceVersion"]
    assert created["metadata"]["creationTimestamp"]
    assert await stage.kube.get(CONFIG_MAP, stage.namespace, "a") == created
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")


@pytest.mark.parametrize("kind", [CONFIG_MAP, WORKLOAD], ids=["core", "custom"])
async def test_missing_object_is_not_found(stage: Stage, kind: Kind) -> None:
    with pytest.raises(NotFoundError, match="absent"):
        await stage.kube.get(kind, stage.namespace, "absent")
    with pytest.raises(NotFoundError):
        await stage.kube.patch(
            kind, stage.namespace, "absent", {"metadata": {"labels": {"a": "b"}}}
        )
    with pytest.raises(NotFoundError):
        await stage.kube.delete(kind, stage.namespace, "absent")


async def test_unserved_kind_is_not_found(stage: Stage) -> None:
    with pytest.raises(NotFoundError):
        await stage.kube.list(LATECOMER)
    assert ("example.test", "v1", "latecomers") not in await stage.kube.served()


async def test_discovery_names_core_and_custom_kinds_without_subresources(stage: Stage) -> None:
    served = await stage.kube.served()
    assert ("", "v1", "configmaps") in served
    assert (WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural) in served
    assert (PIPELINE_RUN.group, PIPELINE_RUN.version, PIPELINE_RUN.plural) in served
    assert not [plural for _, _, plural in served if "/" in plural]


async def test_creating_an_existing_object_raises(stage: Stage) -> None:
    await create(stage, "a")
    with pytest.raises(AlreadyExistsError):
        await create(stage, "a")


async def test_generated_name_begins_as_asked(stage: Stage) -> None:
    made = [
        await stage.kube.create(
            CONFIG_MAP, {"metadata": {"namespace": stage.namespace, "generateName": "g-"}}
        )
        for _ in range(3)
    ]
    names = [obj["metadata"]["name"] for obj in made]
    assert all(name.startswith("g-") and len(name) > 2 for name in names)
    assert len(set(names)) == 3


async def test_creating_without_a_namespace_is_an_error(stage: Stage) -> None:
    with pytest.raises((RefusedError, NotFoundError)):
        await stage.kube.create(CONFIG_MAP, {"metadata": {"name": "a"}})


async def test_list_has_every_object_of_its_namespace_with_kind_and_version(
    stage: Stage,
) -> None:
    await create(stage, "a", "b", "c")
    listing = await stage.kube.list(CONFIG_MAP, namespace=stage.namespace)
    mine = [item for item in listing.items if item["metadata"]["name"] in {"a", "b", "c"}]
    assert sorted(item["metadata"]["name"] for item in mine) == ["a", "b", "c"]
    assert {(item["apiVersion"], item["kind"]) for item in mine} == {("v1", "ConfigMap")}
    assert listing.resource_version
    everywhere = await stage.kube.list(CONFIG_MAP)
    assert len(everywhere.items) >= len(listing.items)


async def test_list_can_be_limited_to_labels(stage: Stage) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})):
        obj = config_map(stage.namespace, name)
        obj["metadata"]["labels"] = labels
        await stage.kube.create(CONFIG_MAP, obj)

    async def named(labels: str) -> list[str]:
        listing = await stage.kube.list(CONFIG_MAP, namespace=stage.namespace, labels=labels)
        return sorted(item["metadata"]["name"] for item in listing.items)

    assert await named("x=1") == ["a"]
    assert await named("x") == ["a", "b"]


async def test_list_in_pages_is_one_list(stage: Stage) -> None:
    if stage.small_pages is None:
        pytest.skip("no pages in the same process")
    await create(stage, *(f"o{number}" for number in range(7)), kind=WORKLOAD)
    kube = stage.small_pages(3)
    listing = await kube.list(WORKLOAD, namespace=stage.namespace)
    await kube.close()
    assert sorted(item["metadata"]["name"] for item in listing.items) == [
        f"o{number}" for number in range(7)
    ]


async def test_list_of_secrets_names_them(stage: Stage) -> None:
    metadata = {"namespace": stage.namespace, "name": "s", "labels": {"x": "1"}}
    await stage.kube.create(SECRET, {"metadata": metadata, "stringData": {"k": "hidden"}})
    listing = await stage.kube.list(SECRET, namespace=stage.namespace)
    found = [item for item in listing.items if item["metadata"]["name"] == "s"]
    assert found[0]["metadata"]["labels"] == {"x": "1"}
    assert (found[0]["apiVersion"], found[0]["kind"]) == ("v1", "Secret")


async def test_deleting_removes_it_and_a_second_time_it_is_not_found(stage: Stage) -> None:
    await create(stage, "a")
    await stage.kube.delete(CONFIG_MAP, stage.namespace, "a")
    with pytest.raises(NotFoundError):
        await stage.kube.get(CONFIG_MAP, stage.namespace, "a")
    with pytest.raises(NotFoundError):
        await stage.kube.delete(CONFIG_MAP, stage.namespace, "a")


async def test_deleting_by_uid_spares_a_new_object_of_the_same_name(stage: Stage) -> None:
    (first,) = await create(stage, "a")
    await stage.kube.delete(CONFIG_MAP, stage.namespace, "a", uid=first["metadata"]["uid"])
    (second,) = await create(stage, "a")
    with pytest.raises(ConflictError):
        await stage.kube.delete(CONFIG_MAP, stage.namespace, "a", uid=first["metadata"]["uid"])
    assert await stage.kube.get(CONFIG_MAP, stage.namespace, "a") == second
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_object_with_a_finalizer_stays_until_it_is_removed(stage: Stage) -> None:
    await stage.kube.create(
        WORKLOAD, workload(stage.namespace, "w", finalizers=["example.test/hold"])
    )
    await stage.kube.delete(WORKLOAD, stage.namespace, "w")
    dying = await stage.kube.get(WORKLOAD, stage.namespace, "w")
    assert dying["metadata"]["deletionTimestamp"]
    await stage.kube.patch(WORKLOAD, stage.namespace, "w", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFoundError):
        await stage.kube.get(WORKLOAD, stage.namespace, "w")


async def test_owned_objects_are_deleted_with_the_owner(stage: Stage) -> None:
    if not stage.collects_garbage:
        pytest.skip("nobody collects garbage here: there is no kube-controller-manager")
    # Core kinds: a real collector takes half a minute to notice new definitions.
    (owner,) = await create(stage, "owner")
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    owned = config_map(stage.namespace, "owned")
    owned["metadata"]["ownerReferences"] = [reference]
    await stage.kube.create(CONFIG_MAP, owned)
    await stage.kube.delete(CONFIG_MAP, stage.namespace, "owner")

    async def gone() -> bool:
        try:
            await stage.kube.get(CONFIG_MAP, stage.namespace, "owned")
        except NotFoundError:
            return True
        return False

    await eventually(gone)


REFUSED = {
    "a name with capitals": {"name": "Upper"},
    "a name with a star": {"name": "a*"},
    "a name of 254 characters": {"name": "a" * 254},
    "a label value of 64 characters": {"name": "a", "labels": {"k": "v" * 64}},
    "a label value with a blank": {"name": "a", "labels": {"k": "v v"}},
    "a label key of 64 characters": {"name": "a", "labels": {"k" * 64: "v"}},
    "annotations of more than 256 KiB": {"name": "a", "annotations": {"k": "v" * (256 << 10)}},
}


@pytest.mark.parametrize("metadata", REFUSED.values(), ids=REFUSED.keys())
async def test_metadata_beyond_the_limits_is_refused(stage: Stage, metadata: Object) -> None:
    with pytest.raises(RefusedError):
        await stage.kube.create(
            CONFIG_MAP, {"metadata": {"namespace": stage.namespace, **metadata}}
        )


async def test_metadata_at_the_limits_is_accepted(stage: Stage) -> None:
    metadata = {"namespace": stage.namespace, "name": "a" * 253, "labels": {"k" * 63: "v" * 63}}
    created = await stage.kube.create(CONFIG_MAP, {"metadata": metadata})
    assert created["metadata"]["labels"] == {"k" * 63: "v" * 63}


@pytest.mark.parametrize("size", [1_600_000, 2_200_000, 3_200_000])
async def test_object_above_the_etcd_limit_is_refused_permanently(stage: Stage, size: int) -> None:
    """A real API server calls it an error of its own, so it looked as if it might pass."""
    with pytest.raises(RefusedError, match=r"too large|larger than"):
        await stage.kube.create(WORKLOAD, large(stage, size))


async def test_object_of_1_4_mb_is_accepted(stage: Stage) -> None:
    created = await stage.kube.create(WORKLOAD, large(stage, 1_400_000))
    assert created["spec"] == large(stage, 1_400_000)["spec"]


def large(stage: Stage, size: int) -> Object:
    """A Workload whose pods say a lot: a ConfigMap has a lower limit of its own."""
    obj = workload(stage.namespace, f"large-{size}")
    obj["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["args"] = ["x" * size]
    return obj


async def test_cluster_scoped_object_has_no_namespace(stage: Stage) -> None:
    found = await stage.kube.get(NAMESPACE, None, stage.namespace)
    assert "namespace" not in found["metadata"]
