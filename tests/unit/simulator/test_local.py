"""`LocalKube`: the port, without HTTP, also in virtual time."""

import asyncio

import pytest

from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import JOB, PIPELINE_RUN, Kind
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    KubeError,
    NotFoundError,
    RefusedError,
)
from shared.testing.world.loop import run_virtual
from tests.unit.simulator.builders import api, job, pipeline_run

UNKNOWN = Kind(group="example.com", version="v1", plural="wells", kind="Well")


async def test_objects_are_created_and_deleted() -> None:
    kube = LocalKube(api())
    created = await kube.create(JOB, job())
    patched = await kube.patch(JOB, "default", "j", {"spec": {"suspend": True}})
    stated = await kube.patch(JOB, "default", "j", {"status": {"active": 1}}, subresource="status")
    listing = await kube.list(JOB)
    await kube.delete(JOB, "default", "j", uid=created["metadata"]["uid"])

    assert patched["spec"]["suspend"] is True
    assert stated["status"] == {"active": 1}
    assert listing.resource_version == stated["metadata"]["resourceVersion"]
    assert [item["metadata"]["name"] for item in listing.items] == ["j"]
    assert (await kube.list(JOB)).items == []


async def test_returned_objects_are_copies() -> None:
    kube = LocalKube(api())
    body = job()
    (await kube.create(JOB, body))["spec"].clear()
    body["spec"].clear()

    assert (await kube.get(JOB, "default", "j"))["spec"]["parallelism"] == 1


async def test_lists_are_selected_by_labels_and_namespace() -> None:
    kube = LocalKube(api())
    for name, value in (("a", "1"), ("b", "2")):
        body = job(name)
        body["metadata"]["labels"] = {"x": value}
        await kube.create(JOB, body)

    assert [i["metadata"]["name"] for i in (await kube.list(JOB, labels="x=1")).items] == ["a"]
    assert (await kube.list(JOB, namespace="kube-system")).items == []


async def test_refusals_raise_the_errors_of_the_port() -> None:
    kube = LocalKube(api())
    await kube.create(JOB, job())

    failing = [{"op": "test", "path": "/spec/suspend", "value": True}]
    cases: list[tuple[type[KubeError], object]] = [
        (AlreadyExistsError, kube.create(JOB, job())),
        (NotFoundError, kube.get(JOB, "default", "x")),
        (NotFoundError, kube.list(UNKNOWN)),
        (ConflictError, kube.patch(JOB, "default", "j", failing)),
        (ConflictError, kube.patch(JOB, "default", "j", {"metadata": {"resourceVersion": "1"}})),
        (ConflictError, kube.delete(JOB, "default", "j", uid="other")),
        (ConflictError, kube.patch(JOB, "default", "j", {"metadata": {"uid": "other"}})),
        (RefusedError, kube.create(JOB, job("Big"))),
    ]
    for kind, request in cases:
        with pytest.raises(kind):
            await request  # type: ignore[misc]


async def test_compacted_version_is_expired() -> None:
    cluster = api()
    kube = LocalKube(cluster)
    await kube.create(JOB, job())
    cluster.store.forget_events()

    with pytest.raises(ExpiredError):
        async for _ in kube.watch(JOB, resource_version="1"):
            pass


def test_watch_runs_in_virtual_time_until_it_is_broken() -> None:
    async def story() -> list[tuple[str, str]]:
        kube = LocalKube(api())
        version = (await kube.list(PIPELINE_RUN)).resource_version

        async def follow() -> list[tuple[str, str]]:
            return [
                (event.type, event.object["metadata"]["name"])
                async for event in kube.watch(PIPELINE_RUN, resource_version=version)
            ]

        following = asyncio.create_task(follow())
        for name in ("a", "b"):
            await asyncio.sleep(3600)
            await kube.create(PIPELINE_RUN, pipeline_run(name))
        await kube.delete(PIPELINE_RUN, "default", "a")
        await asyncio.sleep(3600)
        kube.break_watches()
        return await following

    assert run_virtual(story()) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_discovery_names_every_version() -> None:
    served = await LocalKube(api()).served()

    assert ("kueue.x-k8s.io", "v1beta1", "workloads") in served
    assert ("", "v1", "pods") in served
