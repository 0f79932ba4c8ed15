"""Kinds that an Integration brings are watched from then on, and nothing is said twice."""

import asyncio
from typing import Any

import yaml

from shared.contracts.kube.kinds import INTEGRATION, JOB, Kind, Object
from shared.contracts.messages.observed import Synced
from shared.kube.port import Kube as KubePort
from shared.kube.port import Listing, RefusedError
from tests.unit.watcher.site import Site, play

DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")


async def define(site: Site, *versions: str) -> None:
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
    await site.kube.create(DEFINITIONS, {"metadata": {"name": "gadgets.example.com"}, "spec": spec})


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


async def gadget(site: Site, name: str) -> Object:
    obj = {"metadata": {"name": name, "namespace": "default"}, "spec": {}}
    return await site.kube.create(GADGET, obj)


def synced_kinds(site: Site) -> list[str]:
    last = [entry for entry in site.log() if entry.subject.endswith(".synced")][-1]
    return Synced.decode(last.data, last.headers).kinds


def test_a_kind_is_watched_once_an_integration_speaks_of_it() -> None:
    async def scene(site: Site) -> None:
        await define(site, "v1")
        await gadget(site, "before")
        await site.start()
        await asyncio.sleep(5)
        assert site.said(GADGET) == []
        await site.kube.create(INTEGRATION, integration())
        await asyncio.sleep(5)
        await gadget(site, "after")
        await asyncio.sleep(5)
        assert [one.name for one in site.said(GADGET)] == ["before", "after"]
        assert GADGET.detail in synced_kinds(site)

    play(scene)


def test_after_a_restart_nothing_of_it_is_said_again_and_what_is_gone_ends() -> None:
    async def scene(site: Site) -> None:
        await define(site, "v1")
        await site.kube.create(INTEGRATION, integration())
        await gadget(site, "stays")
        await gadget(site, "goes")
        await site.start()
        await asyncio.sleep(5)
        await site.kill()
        await site.kube.delete(GADGET, "default", "goes")
        before = len(site.said())
        await site.start()
        await asyncio.sleep(5)
        new = [(one.name, one.deleted) for one in site.said()[before:]]
        assert new == [("goes", True)]
        assert site.synced() == 2

    play(scene)


def test_a_kind_whose_definition_comes_later_is_found() -> None:
    async def scene(site: Site) -> None:
        await site.kube.create(INTEGRATION, integration())
        await site.start()
        await asyncio.sleep(5)
        assert site.synced() == 1, "nothing waits for it"
        await define(site, "v1")
        await gadget(site, "one")
        await asyncio.sleep(60)
        assert [one.name for one in site.said(GADGET)] == ["one"]

    play(scene)


def test_another_version_is_watched_in_place_of_the_one_before() -> None:
    async def scene(site: Site) -> None:
        await define(site, "v1", "v2")
        await site.kube.create(INTEGRATION, integration())
        await gadget(site, "one")
        await site.start()
        await asyncio.sleep(5)
        await site.kube.patch(INTEGRATION, None, "gadgets", {"spec": integration("v2")["spec"]})
        await asyncio.sleep(5)
        await gadget(site, "two")
        await asyncio.sleep(5)
        said = [(one.name, one.version) for one in site.said(GADGET)]
        assert said == [("one", "v1"), ("one", "v2"), ("two", "v2")]

    play(scene)


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


def test_a_kind_that_we_may_not_list_does_not_keep_the_others_waiting() -> None:
    async def scene(site: Site) -> None:
        await define(site, "v1")
        await site.kube.create(INTEGRATION, integration())
        await site.job("j")
        kube: Any = _Forbidding(site.kube)
        watcher = await site.start(kube=kube)
        await asyncio.sleep(30)
        assert watcher.ready() is None
        assert site.synced() == 1
        assert [one.name for one in site.said(JOB)] == ["j"]

    play(scene)
