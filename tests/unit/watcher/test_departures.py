"""The watcher says that a job is gone when its pods are, as far as it may list pods."""

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import DEPARTURE, JOB, POD, Kind
from shared.integrations import JOB_SET
from shared.kube.port import Kube, Listing, RefusedError, UnavailableError
from tests.unit.watcher.harness import Harness, job, run_harness


async def running_job(harness: Harness, pod: dict[str, Any] | None = None) -> str:
    """A Job that says that a pod is active, and that pod. Returns the Job's uid."""
    made = await harness.job("j")
    uid: str = made["metadata"]["uid"]
    await harness.kube.patch(JOB, "default", "j", {"status": {"active": 1}}, subresource="status")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
    metadata = {
        "name": "p",
        "namespace": "default",
        "ownerReferences": [owner],
        "finalizers": ["a/b"],
    }
    spec = {"containers": [{"name": "c", "image": "i"}]}
    await harness.kube.create(POD, {"metadata": {**metadata, **(pod or {})}, "spec": spec})
    return uid


def is_gone(harness: Harness) -> bool:
    return harness.published(JOB)[-1].deleted


def test_job_is_gone_when_its_pod_is() -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness)
        await harness.start()
        await asyncio.sleep(5)
        await harness.delete("j")
        await asyncio.sleep(300)
        assert not is_gone(harness)
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        assert is_gone(harness)

    run_harness(drive)


@pytest.mark.parametrize("suspended_again", [False, True])
def test_job_that_was_let_go_is_gone_when_its_uncounted_pod_is(suspended_again: bool) -> None:
    """It is deleted before its controller has written that a pod runs."""

    async def drive(harness: Harness) -> None:
        await running_job(harness)
        await harness.kube.patch(
            JOB, "default", "j", {"status": {"active": 0}}, subresource="status"
        )
        for suspend in (True, False, True)[: 3 if suspended_again else 2]:
            await harness.kube.patch(JOB, "default", "j", {"spec": {"suspend": suspend}})
        await harness.start()
        await asyncio.sleep(5)
        await harness.delete("j")
        await asyncio.sleep(60)
        assert not is_gone(harness)
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        assert is_gone(harness)

    run_harness(drive)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_holds_nothing(phase: str) -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness)
        patch = {"status": {"phase": phase}}
        await harness.kube.patch(POD, "default", "p", patch, subresource="status")
        await harness.start()
        await asyncio.sleep(5)
        await harness.delete("j")
        await asyncio.sleep(1)
        assert is_gone(harness)

    run_harness(drive)


def test_job_whose_last_state_is_unknown_is_gone_when_its_pod_is() -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness)
        await harness.start()
        await asyncio.sleep(5)
        await harness.kill()
        await harness.delete("j")
        await harness.start()
        await asyncio.sleep(60)
        assert not is_gone(harness)
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        assert is_gone(harness)

    run_harness(drive)


class WithoutPods(LocalKube):
    """A client that may not list pods, or cannot."""

    error: Exception = RefusedError("pods is forbidden", status=403, reason="Forbidden")

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        if kind == POD:
            raise self.error
        return await super().list(kind, namespace=namespace, labels=labels)


def test_job_is_gone_with_its_object_where_pods_may_not_be_listed() -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness)
        kube: Kube = WithoutPods(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await harness.delete("j")
        await asyncio.sleep(1)
        assert is_gone(harness)

    run_harness(drive)


def test_job_departs_while_the_api_server_does_not_answer() -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness, {"finalizers": []})
        kube = WithoutPods(harness.api)
        kube.error = UnavailableError("503", status=503, reason="ServiceUnavailable")
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await harness.delete("j")
        await asyncio.sleep(60)
        assert not is_gone(harness), "nobody knows of its pods"

    run_harness(drive)


def test_next_job_of_the_name_is_published_after_the_one_before() -> None:
    async def drive(harness: Harness) -> None:
        first = await running_job(harness)
        await harness.start()
        await asyncio.sleep(5)
        for _ in range(2):
            await harness.delete("j")
            second = (await harness.job("j"))["metadata"]["uid"]
            await asyncio.sleep(40)
        assert {one.uid for one in harness.published(JOB)} == {first}
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        last = [(one.uid, one.deleted) for one in harness.published(JOB)[-2:]]
        assert last == [(first, True), (second, False)]

    run_harness(drive)


@pytest.mark.parametrize(
    ("makers", "away", "apart"),
    [
        ("aa", False, True),
        ("ab", False, True),
        ("a-", False, False),
        ("aa", True, False),
        ("ab", True, False),
    ],
)
def test_next_job_made_by_a_controller_is_published_beside_the_departing_job(
    makers: str, *, away: bool, apart: bool
) -> None:
    """Nobody holds it: it runs beside the pods of the first.

    Who makes one by hand waits, and so does whoever finds only the name of the first on the log.
    """

    async def next_job(harness: Harness, maker: str) -> str:
        body = job("j")
        if maker != "-":
            sets = await harness.kube.get(JOB_SET.kind, "default", maker)
            about = {"name": maker, "uid": sets["metadata"]["uid"], "controller": True}
            of = {"apiVersion": JOB_SET.kind.api_version, "kind": "JobSet", **about}
            body["metadata"]["ownerReferences"] = [of]
        return str((await harness.kube.create(JOB, body))["metadata"]["uid"])

    async def drive(harness: Harness) -> None:
        for name in "ab":
            metadata = {"namespace": "default", "name": name}
            spec: dict[str, Any] = {"suspend": True, "replicatedJobs": []}
            await harness.kube.create(JOB_SET.kind, {"metadata": metadata, "spec": spec})
        first = await next_job(harness, makers[0])
        status = {"status": {"active": 1}}
        await harness.kube.patch(JOB, "default", "j", status, subresource="status")
        about = {"name": "j", "uid": first, "controller": True}
        owner = {"apiVersion": "batch/v1", "kind": "Job", **about}
        about_pod = {"name": "p", "namespace": "default", "ownerReferences": [owner]}
        spec = {"containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": about_pod | {"finalizers": ["a/b"]}, "spec": spec}
        await harness.kube.create(POD, pod)
        await harness.start()
        await asyncio.sleep(5)
        if away:
            await harness.kill()
        await harness.delete("j")
        second = await next_job(harness, makers[1])
        if away:
            await harness.start()
        await asyncio.sleep(40)
        told = harness.published(DEPARTURE)
        assert [(one.uid, one.deleted) for one in told] == [(first, False)] * apart
        assert {one.uid for one in harness.published(JOB)} == (
            {first, second} if apart else {first}
        )
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        seen = [(one.uid, one.deleted) for one in harness.published(JOB)]
        assert seen[-1] == (second, False)
        # Between a tombstone and the next Job their JobSet would seem to run nothing.
        assert ((first, True) in seen) is not (makers == "aa")
        told = harness.published(DEPARTURE)[apart:]
        assert [(one.uid, one.deleted) for one in told] == [(first, True)] * apart

    run_harness(drive)


class Counting(LocalKube):
    """It notes of which namespaces the pods are listed."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.listed: list[str | None] = []

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        if kind == POD:
            self.listed.append(namespace)
        return await super().list(kind, namespace=namespace, labels=labels)


def test_changes_of_what_is_held_back_list_no_pods() -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness)
        kube = Counting(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await harness.delete("j")
        await harness.job("j")
        await asyncio.sleep(300)
        kube.listed.clear()
        for number in range(20):
            await harness.touch("j", str(number))
            await asyncio.sleep(1)
        assert len(kube.listed) <= 1, "every 30 seconds"
        await harness.kube.patch(POD, "default", "p", {"metadata": {"finalizers": None}})
        await asyncio.sleep(60)
        assert not is_gone(harness)

    run_harness(drive)


def test_job_that_departs_has_the_pods_of_its_own_namespace_listed() -> None:
    async def drive(harness: Harness) -> None:
        await running_job(harness)
        kube = Counting(harness.api)
        await harness.start(kube=kube)
        await asyncio.sleep(5)
        await harness.delete("j")
        await asyncio.sleep(300)
        kube.listed.clear()
        for number in range(5):
            await harness.kube.create(
                JOB, {**job("k"), "metadata": {"namespace": "kube-public", "name": f"k{number}"}}
            )
            patch = {"status": {"active": 1}}
            await harness.kube.patch(JOB, "kube-public", f"k{number}", patch, subresource="status")
            await asyncio.sleep(1)
            await harness.kube.delete(JOB, "kube-public", f"k{number}")
            await asyncio.sleep(1)
        assert kube.listed.count("kube-public") == 5
        assert kube.listed.count("default") <= 1, "every 30 seconds"
        gone = [one for one in harness.published(JOB) if one.deleted]
        assert [one.name for one in gone] == [f"k{number}" for number in range(5)]

    run_harness(drive)
