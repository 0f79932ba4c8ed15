"""List and watch: everything once, in order, from a version on."""

from collections.abc import Callable

import pytest

from shared.contracts.kube.kinds import CONFIG_MAP, WORKLOAD, Kind
from shared.kube.port import ExpiredError, NotFoundError
from tests.contract.kubernetes.definitions import LATECOMER
from tests.contract.kubernetes.stage import Reading, Stage, config_map, create

Watch = Callable[..., Reading]
KINDS = pytest.mark.parametrize("kind", [CONFIG_MAP, WORKLOAD], ids=["core", "custom"])


@KINDS
async def test_watch_from_a_list_shows_later_changes(
    stage: Stage, watch: Watch, kind: Kind
) -> None:
    await create(stage, "before", kind=kind)
    listing = await stage.kube.list(kind, namespace=stage.namespace)
    reading = watch(kind, listing.resource_version)
    await create(stage, "after", kind=kind)
    assert await reading.next() == ("ADDED", "after")
    await stage.kube.patch(kind, stage.namespace, "before", {"metadata": {"labels": {"a": "b"}}})
    assert await reading.next() == ("MODIFIED", "before")
    await stage.kube.delete(kind, stage.namespace, "after")
    assert await reading.next() == ("DELETED", "after")


async def test_watch_shows_objects_with_kind_and_version_as_stored(
    stage: Stage, watch: Watch
) -> None:
    listing = await stage.kube.list(CONFIG_MAP, namespace=stage.namespace)
    reading = watch(CONFIG_MAP, listing.resource_version)
    created = await stage.kube.create(CONFIG_MAP, config_map(stage.namespace, "a", k="v"))
    assert (await reading.event()).object == created


async def test_deletion_has_a_version_that_a_watch_can_resume_from(
    stage: Stage, watch: Watch
) -> None:
    (created,) = await create(stage, "a")
    first = watch(CONFIG_MAP, created["metadata"]["resourceVersion"])
    await stage.kube.delete(CONFIG_MAP, stage.namespace, "a")
    deleted = await first.event()
    assert deleted.type == "DELETED"
    version = deleted.object["metadata"]["resourceVersion"]
    assert version != created["metadata"]["resourceVersion"]
    second = watch(CONFIG_MAP, version)
    await create(stage, "b")
    assert await second.next() == ("ADDED", "b")


async def test_watch_from_an_earlier_version_catches_up_in_order(
    stage: Stage, watch: Watch
) -> None:
    (first,) = await create(stage, "a")
    await create(stage, "b")
    await stage.kube.delete(CONFIG_MAP, stage.namespace, "a")
    await create(stage, "a")
    reading = watch(CONFIG_MAP, first["metadata"]["resourceVersion"])
    assert [await reading.next() for _ in range(3)] == [
        ("ADDED", "b"),
        ("DELETED", "a"),
        ("ADDED", "a"),
    ]


async def test_watch_with_labels_shows_objects_that_start_and_stop_matching(
    stage: Stage, watch: Watch
) -> None:
    await create(stage, "a", "other")
    listing = await stage.kube.list(CONFIG_MAP, namespace=stage.namespace, labels="x=1")
    reading = watch(CONFIG_MAP, listing.resource_version, "x=1")
    for labels in ({"y": "1"}, {"x": "1"}, {"x": "2"}):
        await stage.kube.patch(CONFIG_MAP, stage.namespace, "a", {"metadata": {"labels": labels}})
    assert await reading.next() == ("ADDED", "a")
    assert await reading.next() == ("DELETED", "a")


@KINDS
async def test_watch_from_a_compacted_version_is_expired(
    stage: Stage, watch: Watch, kind: Kind
) -> None:
    (first,) = await create(stage, "a", kind=kind)
    version = first["metadata"]["resourceVersion"]
    if stage.forget is None:
        if kind == CONFIG_MAP:
            pytest.skip("a young server remembers all of its core kinds")
        version = "1"
    else:
        await create(stage, "b", kind=kind)
        stage.forget()
    reading = watch(kind, version)
    with pytest.raises(ExpiredError):
        await reading.event()


async def test_watch_of_an_unserved_kind_is_not_found(stage: Stage, watch: Watch) -> None:
    reading = watch(LATECOMER, "1")
    with pytest.raises(NotFoundError):
        await reading.event()
