"""A simulator that is killed comes back with the same objects, and nobody misses a change."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from services.simulator.app import Simulator
from services.simulator.cluster.api import Api
from services.simulator.journal import Journal, JournalError
from services.simulator.local import LocalKube
from shared.contracts.kube.kinds import CONFIG_MAP, JOB, NAMESPACE, Kind, Object
from shared.contracts.simulation import DURATION
from shared.kube.client import HttpKube
from shared.kube.port import ExpiredError, NotFoundError
from shared.testing.waiting import eventually

DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
WIDGET = Kind(group="example.test", version="v1", plural="widgets", kind="Widget")


class Life:
    """An API server over one file, from its start to its death."""

    def __init__(self, path: Path, *, seed: int = 1) -> None:
        random = Random(seed)
        self.api = Api(now=lambda: datetime.now(UTC), random=random)
        self.journal = Journal(path, self.api)
        if version := self.journal.open():
            random.seed(f"{seed}/{version}")
        self.kube = LocalKube(self.api)

    async def config(self, name: str, **data: str) -> Object:
        metadata = {"name": name, "namespace": "default"}
        return await self.kube.create(CONFIG_MAP, {"metadata": metadata, "data": data})

    async def everything(self) -> dict[str, Object]:
        found = {}
        for kind in self.api.kinds:
            for stored in self.api.store.objects(kind):
                found[f"{kind.resource}/{stored.namespace}/{stored.name}"] = stored.obj
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.jsonl"


async def test_restarted_simulator_has_all_objects_with_versions_and_uids(path: Path) -> None:
    first = Life(path)
    await first.kube.create(NAMESPACE, {"metadata": {"name": "team"}})
    for number in range(10):
        await first.config(f"c{number}", k="v")
    await first.kube.patch(CONFIG_MAP, "default", "c1", {"data": {"k": "w"}})
    await first.kube.delete(CONFIG_MAP, "default", "c2")
    before = await first.everything()

    second = Life(path)

    assert await second.everything() == before
    assert second.api.store.version == first.api.store.version
    uids = {obj["metadata"]["uid"] for obj in before.values()}
    new = await second.config("c2")
    assert new["metadata"]["uid"] not in uids
    assert int(new["metadata"]["resourceVersion"]) == first.api.store.version + 1
    assert await Life(path).everything() == await second.everything()


async def test_watch_cannot_resume_across_a_restart(path: Path) -> None:
    """What happened between the last event that a watcher got and the death would be missing."""
    first = Life(path)
    made = await first.config("c")
    await first.kube.delete(CONFIG_MAP, "default", "c")

    second = Life(path)

    watch = second.kube.watch(CONFIG_MAP, resource_version=made["metadata"]["resourceVersion"])
    with pytest.raises(ExpiredError):
        await anext(aiter(watch))


async def test_owned_objects_are_deleted_with_their_owner_after_a_restart(path: Path) -> None:
    first = Life(path)
    owner = await first.config("owner")
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    metadata: dict[str, Any] = {"name": "child", "namespace": "default"}
    await first.kube.create(CONFIG_MAP, {"metadata": {**metadata, "ownerReferences": [reference]}})

    second = Life(path)
    await second.kube.delete(CONFIG_MAP, "default", "owner")

    with pytest.raises(NotFoundError):
        await second.kube.get(CONFIG_MAP, "default", "child")


async def test_custom_kinds_are_served_again(path: Path) -> None:
    first = Life(path)
    names = {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {}}
    spec = {"group": "example.test", "scope": "Namespaced", "names": names, "versions": [version]}
    name = {"name": "widgets.example.test"}
    await first.kube.create(DEFINITIONS, {"metadata": name, "spec": spec})
    await first.kube.create(WIDGET, {"metadata": {"name": "w", "namespace": "default"}})

    assert (await Life(path).kube.get(WIDGET, "default", "w"))["metadata"]["name"] == "w"


async def test_truncated_last_line_is_ignored(path: Path) -> None:
    first = Life(path)
    await first.config("c")
    before = await first.everything()
    with path.open("ab") as out:
        out.write(b'{"version": 99, "resou')

    assert await Life(path).everything() == before


@pytest.mark.parametrize("line", ["no json", "[]", "{}", '{"version": 3, "resource": "x"}'])
def test_file_that_is_no_journal_is_refused_and_unchanged(path: Path, line: str) -> None:
    path.write_text(line + "\n")
    with pytest.raises(JournalError, match="line 1"):
        Life(path)
    assert path.read_text() == line + "\n"


def test_large_journal_is_compacted_with_the_same_objects(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.simulator.journal.REWRITE_BYTES", 20_000)

    async def grow() -> dict[str, Object]:
        life = Life(path)
        await life.config("c")
        for number in range(300):
            await life.kube.patch(CONFIG_MAP, "default", "c", {"data": {"n": str(number)}})
        return await life.everything()

    grown = asyncio.run(grow())
    assert path.stat().st_size < 20_000
    assert asyncio.run(Life(path).everything()) == grown


@pytest.fixture
async def simulators() -> AsyncIterator[list[Simulator]]:
    running: list[Simulator] = []
    yield running
    for simulator in running:
        await simulator.stop()


async def test_running_jobs_continue_after_a_restart_and_finish(
    path: Path, simulators: list[Simulator]
) -> None:
    first = Simulator(speed=60, journal=path)
    await first.start()
    kube = HttpKube.at(first.url)
    template = {
        "metadata": {"annotations": {DURATION: "120s"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    metadata = {"name": "j", "namespace": "default"}
    await kube.create(JOB, {"metadata": metadata, "spec": {"template": template}})
    await until(kube, lambda status: status.get("ready") == 1)
    await kube.close()
    await first.stop()

    second = Simulator(speed=600, journal=path)
    simulators.append(second)
    await second.start()
    kube = HttpKube.at(second.url)
    await until(kube, lambda status: status.get("succeeded") == 1)
    await kube.close()


async def until(kube: HttpKube, true: Any) -> None:
    async def holds() -> bool:
        return bool(true((await kube.get(JOB, "default", "j")).get("status") or {}))

    await eventually(holds)
