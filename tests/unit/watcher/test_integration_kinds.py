"""Kinds that an Integration describes are watched, and no state is published twice."""

import asyncio
from collections import Counter
from typing import Any

import yaml

from shared.contracts.kube.kinds import (
    INTEGRATION,
    JOB,
    PROVISIONING_REQUEST,
    SECRET,
    Kind,
    Object,
)
from shared.contracts.messages.observed import Synced
from shared.integrations import Integrations
from shared.kube.port import Kube as KubePort
from shared.kube.port import Listing, RefusedError
from tests.unit.watcher.harness import Harness, run_harness

DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")


async def define(harness: Harness, *versions: str) -> None:
    names = {"kind": "Gadget", "plural": "gadgets"}
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": names,
        "versions": [
            {"name": version, "served": True, "storage": place == 0, "schema": {}}
            for place, version in enumerate(versions)
        ],
    }
    await harness.kube.create(
        DEFINITIONS, {"metadata": {"name": "gadgets.example.com"}, "spec": spec}
    )


def integration(version: str = "v1") -> Object:
    obj: Object = yaml.safe_load("""
      apiVersion: sluicegate.dev/v1alpha1
      kind: Integration
      metadata: {name: gadgets}
      spec:
        kind: {group: example.com, version: v1, kind: Gadget, plural: gadgets}
        podSets:
        - template: spec.template
    """)
    obj["spec"]["kind"]["version"] = version
    return obj


async def gadget(harness: Harness, name: str) -> Object:
    obj = {"metadata": {"name": name, "namespace": "default"}, "spec": {}}
    return await harness.kube.create(GADGET, obj)


def synced_kinds(harness: Harness) -> list[str]:
    last = [entry for entry in harness.log() if entry.subject.endswith(".synced")][-1]
    return Synced.decode(last.data, last.headers).kinds


def test_kind_is_watched_once_an_integration_describes_it() -> None:
    async def drive(harness: Harness) -> None:
        await define(harness, "v1")
        await gadget(harness, "before")
        await harness.start()
        await asyncio.sleep(5)
        assert harness.published(GADGET) == []
        await harness.kube.create(INTEGRATION, integration())
        await asyncio.sleep(5)
        await gadget(harness, "after")
        await asyncio.sleep(5)
        assert [one.name for one in harness.published(GADGET)] == ["before", "after"]
        assert GADGET.detail in synced_kinds(harness)

    run_harness(drive)


def test_restart_publishes_only_tombstones_of_deleted_objects() -> None:
    async def drive(harness: Harness) -> None:
        await define(harness, "v1")
        await harness.kube.create(INTEGRATION, integration())
        await gadget(harness, "stays")
        await gadget(harness, "goes")
        await harness.start()
        await asyncio.sleep(5)
        await harness.kill()
        await harness.kube.delete(GADGET, "default", "goes")
        before = len(harness.published())
        await harness.start()
        await asyncio.sleep(5)
        new = [(one.name, one.deleted) for one in harness.published()[before:]]
        assert new == [("goes", True)]
        assert harness.synced() == 2

    run_harness(drive)


def test_kind_is_watched_when_its_definition_is_created_later() -> None:
    async def drive(harness: Harness) -> None:
        await harness.kube.create(INTEGRATION, integration())
        await harness.start()
        await asyncio.sleep(5)
        assert harness.synced() == 1, "nothing waits for it"
        await define(harness, "v1")
        await gadget(harness, "one")
        await asyncio.sleep(60)
        assert [one.name for one in harness.published(GADGET)] == ["one"]

    run_harness(drive)


def test_changed_version_replaces_the_watched_one() -> None:
    async def drive(harness: Harness) -> None:
        await define(harness, "v1", "v2")
        await harness.kube.create(INTEGRATION, integration())
        await gadget(harness, "one")
        await harness.start()
        await asyncio.sleep(5)
        await harness.kube.patch(INTEGRATION, None, "gadgets", {"spec": integration("v2")["spec"]})
        await asyncio.sleep(5)
        await gadget(harness, "two")
        await asyncio.sleep(5)
        messages = [(one.name, one.version) for one in harness.published(GADGET)]
        assert messages == [("one", "v1"), ("one", "v2"), ("two", "v2")]

    run_harness(drive)


class _Forbidding:
    """A cluster that does not let us list gadgets."""

    def __init__(self, kube: KubePort) -> None:
        self._kube = kube

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    async def list(self, kind: Kind, **options: Any) -> Listing:
        if kind.plural == GADGET.plural:
            raise RefusedError("gadgets are none of your business", status=403, reason="Forbidden")
        return await self._kube.list(kind, **options)


def test_kind_that_is_forbidden_does_not_delay_synced() -> None:
    async def drive(harness: Harness) -> None:
        await define(harness, "v1")
        await harness.kube.create(INTEGRATION, integration())
        await harness.job("j")
        kube: Any = _Forbidding(harness.kube)
        watcher = await harness.start(kube=kube)
        await asyncio.sleep(30)
        assert watcher.ready() is None
        assert harness.synced() == 1
        assert [one.name for one in harness.published(JOB)] == ["j"]

    run_harness(drive)


def test_integration_cannot_bring_secrets() -> None:
    document = integration()
    document["spec"]["kind"] = {
        "group": "", "version": "v1", "kind": SECRET.kind, "plural": SECRET.plural
    }  # fmt: skip
    document["status"] = {"accepted": document["spec"]}
    state = Integrations().apply(document)
    assert (
        state.problem
        == "Integration gadgets: spec.kind: Secret is nothing that runs and could wait"
    )
    assert state.in_force is None

    async def drive(harness: Harness) -> None:
        await harness.kube.create(INTEGRATION, document)
        await harness.kube.create(SECRET, {"metadata": {"namespace": "default", "name": "s"}})
        await harness.start()
        await asyncio.sleep(30)
        assert harness.published(SECRET) == []

    run_harness(drive)


TRAINING = Kind(group="kubeflow.org", version="v1", plural="pytorchjobs", kind="PyTorchJob")


async def training(harness: Harness, name: str) -> None:
    obj = {"metadata": {"name": name, "namespace": "default"}, "spec": {}}
    await harness.kube.create(TRAINING, obj)


async def serve_training(harness: Harness) -> None:
    names = {"kind": "PyTorchJob", "plural": "pytorchjobs"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {}}]
    spec = {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": versions}
    await harness.kube.create(
        DEFINITIONS, {"metadata": {"name": "pytorchjobs.kubeflow.org"}, "spec": spec}
    )


def test_kind_that_ships_for_few_clusters_is_watched_once_it_is_served() -> None:
    async def drive(harness: Harness) -> None:
        kube = Asked(harness.kube)
        await harness.start(kube=kube)
        await asyncio.sleep(600)
        assert TRAINING.plural not in kube.listed, "nothing is listed that is not served"
        asked = kube.questions - kube.listed[PROVISIONING_REQUEST.plural]
        assert asked <= 14, "one question a minute, however many kinds there are"
        await serve_training(harness)
        await training(harness, "before")
        await asyncio.sleep(90)
        await training(harness, "after")
        await asyncio.sleep(5)
        assert [one.name for one in harness.published(TRAINING)] == ["before", "after"]
        assert TRAINING.detail in synced_kinds(harness)

    run_harness(drive)


def test_objects_of_a_kind_that_was_removed_meanwhile_get_tombstones() -> None:
    async def drive(harness: Harness) -> None:
        await serve_training(harness)
        await training(harness, "one")
        await harness.start()
        await asyncio.sleep(5)
        await harness.kill()
        await harness.kube.delete(DEFINITIONS, None, "pytorchjobs.kubeflow.org")
        await harness.start()
        await asyncio.sleep(200)
        assert [one.deleted for one in harness.published(TRAINING)] == [False, True]

    run_harness(drive)


class Asked:
    """A cluster that notes what is listed, and how often somebody asks what it serves."""

    def __init__(self, kube: KubePort) -> None:
        self._kube = kube
        self.listed: Counter[str] = Counter()
        self.questions = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kube, name)

    async def served(self) -> frozenset[tuple[str, str, str]]:
        self.questions += 1
        return await self._kube.served()

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        self.listed[kind.plural] += 1
        return await self._kube.list(kind, namespace=namespace, labels=labels)
