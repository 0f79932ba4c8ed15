"""A client with the rights of Kubernetes' role `edit` in one namespace, and no others."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from random import Random
from typing import Any, Final

from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.integrations import JOB_SET
from shared.kube.port import Kube, KubeError, Patch
from shared.testing.world.world import World

_EDITABLE: Final = frozenset(
    (kind.group, kind.plural)
    for kind in (
        kinds.JOB,
        kinds.PIPELINE_RUN,
        kinds.TASK_RUN,
        kinds.POD,
        kinds.DEPLOYMENT,
        kinds.WORKLOAD,
        JOB_SET.kind,
    )
)
"""What `edit` lets a tenant create, change and delete, and Workloads: some clusters add Kueue's editor role.
No subresource is among them."""

_NOTE_MAX: Final = 160


class Tenant:
    """Writes as one tenant. A write that is refused changes nothing, and is noted."""

    def __init__(self, kube: LocalKube, namespace: str, *, random: Random, world: World) -> None:
        self._kube: Kube = kube
        self._world = world
        self.namespace = namespace
        self.random = random
        self.done: dict[str, int] = {}
        """Number of accepted writes by verb and kind."""

        self.refused = 0
        """Number of writes that the API server or a webhook refused."""

    async def list(self, kind: Kind) -> list[Object]:
        """Return the tenant's objects of a kind."""
        return (await self._kube.list(kind, namespace=self.namespace)).items

    async def some(self, kind: Kind) -> Object | None:
        """Return one of the tenant's objects of a kind, or None if there is none."""
        found = await self.list(kind)
        return self.random.choice(found) if found else None

    def age(self, obj: Object) -> float:
        """Return how many seconds ago an object was created."""
        created = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
        return (self._world.now() - created).total_seconds()

    async def create(self, kind: Kind, obj: Object) -> Object | None:
        """Create an object; return it, or None if it was refused."""
        assert obj["metadata"]["namespace"] == self.namespace, "a tenant writes into its namespace"
        return await self._write(
            "create", kind, obj["metadata"]["name"], self._kube.create(kind, obj)
        )

    async def patch(self, kind: Kind, name: str, patch: Patch) -> Object | None:
        """Patch an object, never its status; return it, or None if that was refused."""
        patched = self._kube.patch(kind, self.namespace, name, patch)
        return await self._write(f"patch {patch}", kind, name, patched)

    async def delete(self, kind: Kind, name: str) -> None:
        """Delete an object, with what it owns in the background or first."""
        first = self.random.random() < 1 / 3
        deleted = self._kube.delete(kind, self.namespace, name, dependants_first=first)
        await self._write("delete", kind, name, deleted)

    async def _write(self, what: str, kind: Kind, name: str, call: Any) -> Any:
        assert (kind.group, kind.plural) in _EDITABLE, f"no tenant may write {kind.plural}"
        action = f"{what[:_NOTE_MAX]} {kind.kind} {name}"
        try:
            result = await call
        except KubeError as error:
            self.refused += 1
            self._world.note(f"adversary: refused: {action}: {str(error)[:_NOTE_MAX]}")
            return None
        verb = f"{what.partition(' ')[0]} {kind.kind}"
        self.done[verb] = self.done.get(verb, 0) + 1
        self._world.note(f"adversary: {action}")
        return result


Write = Callable[[Tenant], Awaitable[None]]
"""One thing that a tenant may do, to something that it draws."""
