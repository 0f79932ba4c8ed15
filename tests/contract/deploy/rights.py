"""What the services ask of Kubernetes, written down while whole worlds of them work."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from services.simulator.local import LocalKube
from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.spokes.clusters import MultiClusterSystem
from services.simulator.scenarios.swarm.features import FOCUSES
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube.kinds import POD, Kind, Object
from shared.integrations import INTEGRATIONS
from shared.kube.port import Kube, Listing, Patch, WatchEvent
from shared.testing.world.kube import WorldKube
from shared.testing.world.world import ProcessContext
from tests.contract.deploy.rendering import Json

__all__ = ["SPOKE", "Right", "asked", "granted"]

SPOKE: Final = " of a spoke"
PLURALS: Final = {
    (kind.group, kind.kind): kind.plural
    for kind in (*(integration.kind for integration in INTEGRATIONS), POD)
}
Right = tuple[str, str, str]
"""Verb, group, resource with its subresource."""


def asked(
    monkeypatch: pytest.MonkeyPatch,
    *,
    seeds: Sequence[int],
    enough: Callable[[dict[str, set[Right]]], bool],
) -> dict[str, set[Right]]:
    """By service, what it asked in a world of each scenario; in more of them, until that is `enough`.

    A service of a spoke has a name of its own: `SPOKE` behind the name of the service.
    """
    found: dict[str, set[Right]] = {
        service + where: set() for service in ("watcher", "patcher") for where in ("", SPOKE)
    }

    def noting(kube: LocalKube, context: ProcessContext, cluster: str) -> WorldKube:
        service = context.instance.partition("-")[0] + (SPOKE if cluster != CLUSTER else "")
        return WorldKube(_Noting(kube, found[service]), context.world, cluster=cluster)

    monkeypatch.setattr(
        System,
        "cluster_for",
        lambda system, context: noting(LocalKube(system.api), context, CLUSTER),
    )
    monkeypatch.setattr(
        MultiClusterSystem,
        "_cluster_for",
        lambda system, spoke, context: noting(LocalKube(system.apis[spoke]), context, spoke),
    )
    for seed in seeds:
        for name, play in SCENARIOS.items():
            if seed != seeds[0] and enough(found):
                return found
            # Those are swarms, too, with one of their faults everywhere.
            if seed != seeds[0] or name not in FOCUSES:
                play(seed)
    return found


def granted(rules: list[Json]) -> Iterator[tuple[Right, Json]]:
    """Each right that a role gives, with the rule it comes from."""
    for rule in rules:
        for verb in rule["verbs"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield (verb, group, resource), rule


def _owners_in(patch: Patch) -> list[Json] | None:
    """What a patch makes of the owners of an object; None: it leaves them as they are."""
    if isinstance(patch, list):
        changed = [one for one in patch if one["path"] == "/metadata/ownerReferences"]
        return next((one["value"] for one in changed if one["op"] in {"add", "replace"}), None)
    owners: list[Json] | None = (patch.get("metadata") or {}).get("ownerReferences")
    return owners


class _Noting(Kube):
    """A cluster whose every request is noted."""

    def __init__(self, inner: LocalKube, notes: set[Right]) -> None:
        self._inner = inner
        self._notes = notes

    def _note(self, verb: str, kind: Kind, subresource: str | None = None) -> LocalKube:
        below = f"/{subresource}" if subresource else ""
        self._notes.add((verb, kind.group, kind.plural + below))
        return self._inner

    def _note_owners(self, owners: list[Json] | None) -> None:
        """Note the right that the plugin OwnerReferencesPermissionEnforcement wants; no request names it."""
        for owner in owners or ():
            if owner.get("blockOwnerDeletion"):
                group = str(owner["apiVersion"]).rpartition("/")[0]
                plural = PLURALS[group, owner["kind"]]
                self._notes.add(("update", group, f"{plural}/finalizers"))

    async def served(self) -> frozenset[tuple[str, str, str]]:
        return await self._inner.served()  # Whoever has a token may ask that.

    async def list(self, kind: Kind, **how: Any) -> Listing:
        return await self._note("list", kind).list(kind, **how)

    def watch(self, kind: Kind, **how: Any) -> AsyncIterator[WatchEvent]:
        return self._note("watch", kind).watch(kind, **how)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return await self._note("get", kind).get(kind, namespace, name)

    async def create(self, kind: Kind, obj: Object) -> Object:
        self._note_owners(obj["metadata"].get("ownerReferences"))
        return await self._note("create", kind).create(kind, obj)

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Object:
        self._note_owners(_owners_in(patch))
        noted = self._note("patch", kind, subresource)
        return await noted.patch(kind, namespace, name, patch, subresource=subresource)

    async def delete(self, kind: Kind, namespace: str | None, name: str, **how: Any) -> None:
        await self._note("delete", kind).delete(kind, namespace, name, **how)

    async def close(self) -> None:
        await self._inner.close()
