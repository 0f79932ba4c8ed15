"""The whole watcher, over a simulated cluster and a bus in memory, in virtual time."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random

import pytest
from typing_extensions import override

from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import (
    CLUSTER_QUEUE,
    CONFIGURATION_KINDS,
    JOB,
    LOCAL_QUEUE,
    NAMESPACE,
    RESOURCE_FLAVOR,
    SECRET,
    WORKLOAD,
    Kind,
)
from shared.contracts.messages.observed import Observed, Synced
from shared.kube.port import ExpiredError, Listing, RefusedError, UnavailableError, WatchEvent
from tests.unit.watcher.site import Site, job, play

WATCHED = (*CONFIGURATION_KINDS, WORKLOAD, JOB)


def test_everything_is_said_and_then_that_it_was() -> None:
    async def scene(site: Site) -> None:
        for number in range(600):
            await site.job(f"j{number}")
        watcher = await site.start()
        await asyncio.sleep(5)
        assert watcher.ready() is None
        assert site.view() == await site.truth(*WATCHED)
        last = site.log()[-1]
        synced = Synced.decode(last.data, last.headers)
        assert synced.epoch
        assert "jobs_batch" in synced.kinds
        assert site.synced() == 1

    play(scene)


def test_what_decides_about_work_is_said_before_the_work() -> None:
    async def scene(site: Site) -> None:
        await site.job("j")
        await site.kube.create(RESOURCE_FLAVOR, {"metadata": {"name": "f"}, "spec": {}})
        await site.start()
        await asyncio.sleep(5)
        plurals = [one.plural for one in site.said()]
        assert plurals.index("resourceflavors") < plurals.index("jobs")

    play(scene)


def test_each_change_is_said_once_and_an_end_is_an_end() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await site.job("j")
        await asyncio.sleep(1)
        await site.touch("j", "1")
        await asyncio.sleep(1)
        await site.delete("j")
        await asyncio.sleep(1)
        said = site.said(JOB)
        assert [one.deleted for one in said] == [False, False, True]
        assert len({one.resource_version for one in said}) == 3
        assert said[-1].object is not None
        assert said[-1].object["metadata"]["labels"] == {"touched": "1"}

    play(scene)


def test_after_a_restart_only_what_is_new_is_said() -> None:
    async def scene(site: Site) -> None:
        await site.job("stays")
        await site.job("changes")
        await site.job("goes")
        first = await site.job("returns")
        await site.start()
        await asyncio.sleep(5)
        before = len(site.said())
        await site.kill()
        await site.touch("changes", "1")
        await site.delete("goes")
        await site.delete("returns")
        second = await site.job("returns")
        await site.start()
        await asyncio.sleep(60)
        new = [(one.name, one.deleted, one.uid) for one in site.said()[before:]]
        uid = {item["metadata"]["name"]: item["metadata"]["uid"] for item in (first, second)}
        assert sorted(name for name, _, _ in new) == ["changes", "goes", "returns", "returns"]
        returns = [(deleted, uid_) for name, deleted, uid_ in new if name == "returns"]
        assert returns == [(True, first["metadata"]["uid"]), (False, uid["returns"])]
        assert site.view() == await site.truth(*WATCHED)
        assert site.synced() == 2

    play(scene)


def test_a_name_that_comes_back_between_two_watches_ends_first() -> None:
    async def scene(site: Site) -> None:
        first = await site.job("j")
        await site.start()
        await asyncio.sleep(5)
        site.break_watches()
        await site.delete("j")
        second = await site.job("j")
        site.api.store.forget_events()
        await asyncio.sleep(60)
        assert [(one.deleted, one.uid) for one in site.said(JOB)] == [
            (False, first["metadata"]["uid"]),
            (True, first["metadata"]["uid"]),
            (False, second["metadata"]["uid"]),
        ]

    play(scene)


def test_while_the_bus_is_away_only_the_latest_state_waits() -> None:
    async def scene(site: Site) -> None:
        first = await site.job("j")
        await site.start()
        await asyncio.sleep(5)
        before = len(site.said(JOB))
        site.server.restart(down_seconds=20)
        for number in range(500):
            await site.touch("j", str(number))
            await asyncio.sleep(0.01)
        for _ in range(20):
            await site.delete("j")
            last = await site.job("j")
            await asyncio.sleep(0.01)
        await asyncio.sleep(60)
        new = site.said(JOB)[before:]
        assert len(new) <= 4
        assert (new[-2].uid, new[-2].deleted) == (first["metadata"]["uid"], True)
        assert (new[-1].uid, new[-1].deleted) == (last["metadata"]["uid"], False)
        assert site.view() == await site.truth(*WATCHED)

    play(scene)


def test_after_minutes_without_a_bus_the_end_of_what_was_said_still_goes_first() -> None:
    """Longer than the bus itself tries: what was on its way comes back behind newer states."""

    async def scene(site: Site) -> None:
        first = await site.job("j")
        await site.start()
        await asyncio.sleep(5)
        site.server.restart(down_seconds=150)
        await asyncio.sleep(0.1)
        await site.touch("j", "on-its-way")
        await asyncio.sleep(0.1)
        await site.delete("j")
        second = await site.job("j")
        await asyncio.sleep(300)
        said = [(one.deleted, one.uid) for one in site.said(JOB)]
        assert said == [
            (False, first["metadata"]["uid"]),
            (True, first["metadata"]["uid"]),
            (False, second["metadata"]["uid"]),
        ]
        assert site.view() == await site.truth(*WATCHED)

    play(scene)


def test_a_state_that_did_not_come_through_gives_way_to_a_newer_one() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await asyncio.sleep(5)
        site.server.restart(down_seconds=150)
        await asyncio.sleep(0.1)
        await site.job("j")
        await asyncio.sleep(0.1)
        await site.touch("j", "1")
        await asyncio.sleep(300)
        (said,) = site.said(JOB)
        assert said.object is not None
        assert said.object["metadata"]["labels"] == {"touched": "1"}

    play(scene)


def test_only_one_of_two_watchers_watches_and_the_other_takes_over() -> None:
    async def scene(site: Site) -> None:
        await site.start()
        await asyncio.sleep(5)
        other = await site.start()
        await asyncio.sleep(5)
        assert other.ready() is None
        await site.job("j")
        await asyncio.sleep(1)
        assert len(site.said(JOB)) == 1
        assert site.synced() == 1

    play(scene)


def test_an_older_state_never_follows_a_newer_one_from_another_watcher() -> None:
    """The lease was lost unnoticed: somebody else has said the newer state, and its end."""

    async def scene(site: Site) -> None:
        await site.job("j")
        await site.start(kube=Delayed(site.api, seconds=5))
        await asyncio.sleep(30)
        await site.touch("j", "1")
        await site.delete("j")
        after = site.said(JOB)[-1].model_copy(update={"resource_version": "999999"})
        site.server.publish(
            after.subject,
            after.model_copy(update={"deleted": True, "object": None}).encode(),
            {},
        )
        await asyncio.sleep(30)
        assert site.said(JOB)[-1].resource_version == "999999"
        assert site.view() == await site.truth(*WATCHED)

    play(scene)


class Delayed(LocalKube):
    """Its watch is late."""

    def __init__(self, api: Api, *, seconds: float) -> None:
        super().__init__(api)
        self._seconds = seconds

    @override
    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        async for event in super().watch(
            kind, resource_version=resource_version, namespace=namespace, labels=labels
        ):
            await asyncio.sleep(self._seconds)
            yield event


def test_only_secrets_of_machines_are_said_and_never_their_data() -> None:
    async def scene(site: Site) -> None:
        label = {"build.appstudio.redhat.com/multi-platform-secret": "true"}
        for name, labels in (("machine", label), ("other", {})):
            metadata = {"namespace": "default", "name": name, "labels": labels}
            await site.kube.create(SECRET, {"metadata": metadata, "stringData": {"k": "hidden"}})
        await site.start()
        await asyncio.sleep(5)
        assert [one.name for one in site.said(SECRET)] == ["machine"]
        assert not [entry for entry in site.log() if b"aGlkZGVu" in entry.data]

    play(scene)


def test_only_the_named_namespaces_are_watched_and_all_that_has_none() -> None:
    async def scene(site: Site) -> None:
        for name in ("a", "b", "c"):
            await site.kube.create(NAMESPACE, {"metadata": {"name": name}})
            obj = job("j")
            obj["metadata"]["namespace"] = name
            await site.kube.create(JOB, obj)
        await site.start(namespaces=("a", "c"))
        await asyncio.sleep(5)
        assert {one.namespace for one in site.said(JOB)} == {"a", "c"}
        assert {"a", "b", "c"} <= {one.name for one in site.said(NAMESPACE)}

    play(scene)


def test_until_every_kind_is_listed_nobody_is_told_so() -> None:
    async def scene(site: Site) -> None:
        kube = Forbidding(site.api)
        watcher = await site.start(kube=kube)
        await site.job("j")
        await asyncio.sleep(600)
        assert site.synced() == 0
        assert "localqueues" in (watcher.ready() or "")
        assert "nobody may" in (watcher.ready() or "")
        kube.allowed = True
        await asyncio.sleep(60)
        assert site.synced() == 1
        assert site.said(JOB)

    play(scene)


class Forbidding(LocalKube):
    """One kind may not be listed."""

    allowed = False

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        if kind == LOCAL_QUEUE and not self.allowed:
            raise RefusedError("nobody may", status=403)
        return await super().list(kind, namespace=namespace, labels=labels)


class Troubled(LocalKube):
    """A cluster with bad days: everything fails now and then."""

    def __init__(self, api: Api, random: Random) -> None:
        super().__init__(api)
        self._random = random

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        if self._random.random() < 0.2:
            raise UnavailableError("bad day")
        return await super().list(kind, namespace=namespace, labels=labels)

    @override
    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        if self._random.random() < 0.1:
            raise ExpiredError("old", status=410)
        async for event in super().watch(
            kind, resource_version=resource_version, namespace=namespace, labels=labels
        ):
            yield event
            if self._random.random() < 0.1:
                raise UnavailableError("reset")


@pytest.mark.parametrize("seed", range(30))
def test_whatever_fails_nothing_is_lost_and_nothing_goes_backward(seed: int) -> None:
    chance = Random(seed)

    async def scene(site: Site) -> None:
        names = [f"j{number}" for number in range(8)]
        there: set[str] = set()
        await site.start(kube=Troubled(site.api, chance))
        for _ in range(150):
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.3, 5.0)))
            name = chance.choice(names)
            action = chance.random()
            if action < 0.03:
                await site.kill()
                await site.start(kube=Troubled(site.api, chance))
            elif action < 0.06:
                site.server.restart(down_seconds=chance.choice((0.1, 5, 30, 100)))
            elif action < 0.10:
                site.api.store.forget_events()
            elif name not in there:
                await site.job(name)
                there.add(name)
            elif action < 0.4:
                await site.delete(name)
                there.discard(name)
            else:
                await site.touch(name, str(action))
        await asyncio.sleep(600)
        assert site.view() == await site.truth(*WATCHED)
        check_histories(site.said())

    play(scene, seed=seed)


def check_histories(said: list[Observed]) -> None:
    """Of each object: versions only grow, one life after another, each of them ended."""
    histories: dict[str, list[Observed]] = defaultdict(list)
    for one in said:
        histories[one.subject].append(one)
    for history in histories.values():
        for before, after in pairwise(history):
            assert int(before.resource_version) <= int(after.resource_version)
            assert before.message_id != after.message_id
            if before.uid != after.uid:
                assert before.deleted, "a life that others know of was never ended"
                assert not after.deleted or after.object is not None


def test_a_cluster_with_a_queue_says_its_kind_and_group() -> None:
    async def scene(site: Site) -> None:
        await site.kube.create(
            CLUSTER_QUEUE, {"metadata": {"name": "q"}, "spec": {"resourceGroups": []}}
        )
        await site.start()
        await asyncio.sleep(5)
        (said,) = site.said(CLUSTER_QUEUE)
        assert said.subject == "sluice.observed.hub._.q.clusterqueues_kueue_x-k8s_io"
        assert said.object is not None
        assert said.object["kind"] == "ClusterQueue"

    play(scene)
