"""One object of each kind that ships, in a cluster that learns of the kind later. A play writes its status.

Of the controllers of these kinds none runs: what counts is that the API server lets us hold, own, release
and finish them with the rights that are rendered.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

from shared.integrations import JOB_SET, SHIPPED
from tests.contract.kubernetes.definitions import definition
from tests.controllers.judge.ledger import NEVER, first
from tests.controllers.place import QUEUE, QUEUE_LABEL, condition
from tests.controllers.scenario import Scenario, row
from tests.controllers.servers.client import Json
from tests.unit.integrations.ml_kinds import KINDS, MlKind, created, said, template

_JOBS: Final = [{"name": "w", "replicas": 2, "template": {"spec": {"template": template("1")}}}]
SAMPLES: Final[dict[str, MlKind]] = {
    **KINDS,
    "JobSet": MlKind(
        new=created(JOB_SET.kind.api_version, "JobSet", replicatedJobs=_JOBS),
        pod_sets=(("w", 2, "1"),),
        running={"replicatedJobsStatus": [{"name": "w", "ready": 2}]},
        ready=None,
        succeeded=said("Completed"),
        failed=said("Failed"),
        own_controller="jobset.sigs.k8s.io/jobset-controller",
        selectors=(),
    ),
}
"""By kind, also the one that has a document of its own since the beginning."""


def definitions() -> list[Json]:
    """What makes an API server serve these kinds."""
    wanted = {(sample.new["kind"]) for sample in SAMPLES.values()}
    found = [definition(one.kind) for one in SHIPPED if one.kind.kind in wanted]
    return [
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **one}
        for one in found
    ]


class LoneObject(Scenario):
    """An object waits behind another one of its kind, runs and ends."""

    sample: ClassVar[MlKind]

    @property
    def _kind(self) -> str:
        return str(self.sample.new["kind"])

    async def play(self) -> None:
        """Two of them, and quota for one."""
        at = self.at
        await at.queue(self._amounts())
        await self._create("first")
        await at.until(partial(self._is_let_go, "first"))
        await self._create("second")
        await at.waits(self._kind, "second")
        for name in ("first", "second"):
            await at.until(partial(self._is_let_go, name))
            await self._end(name)
        await at.until(at.is_free)

    async def _create(self, name: str) -> None:
        labels = {QUEUE_LABEL: QUEUE}
        metadata = {"name": name, "namespace": self.at.namespace, "labels": labels}
        await self.at.admin.create(self._kind, {**self.sample.new, "metadata": metadata})

    def _amounts(self) -> dict[str, int]:
        """What one of them asks for."""
        if self._kind == "Workflow":
            return {"argoproj.io/workflows": 1}
        cpus = sum(count * _milli(cpu) for _, count, cpu in self.sample.pod_sets)
        return {"cpu": -(-cpus // 1000), "memory": 1 << 40}

    def _is_let_go(self, name: str) -> bool:
        found = self.at.history.now(self._kind, self.at.namespace, name)
        return found is not None and not self._suspended(found)

    def _suspended(self, obj: Json) -> bool:
        value: Any = obj
        for step in self.sample.suspended_at:
            value = (value or {}).get(step)
        return bool(value)

    async def _end(self, name: str) -> None:
        at = self.at
        await self._say(name, self.sample.running)
        if self.sample.succeeded is None:
            await at.admin.delete(self._kind, at.namespace, name)
        else:
            await self._say(name, self.sample.succeeded)

    async def _say(self, name: str, status: Json) -> None:
        patch = {"status": status}
        await self.at.admin.patch(self._kind, self.at.namespace, name, patch, below="/status")

    @row
    def an_object_of_the_kind_is_held_owned_released_and_finished(self) -> Iterator[str]:
        at = self.at
        for name in ("first", "second"):
            changes = at.changes(self._kind, name)
            if not self._suspended(changes[0].obj):
                yield f"{name} was not held at its creation"
            begin = first(changes, lambda obj: not self._suspended(obj))
            uid = changes[0].obj["metadata"]["uid"]
            owned = [
                one
                for key in at.history.keys("Workload", at.namespace)
                for one in at.history.of(*key)
                if (one.obj["metadata"].get("ownerReferences") or [{}])[0].get("uid") == uid
            ]
            owners = [one.obj["metadata"]["ownerReferences"][0] for one in owned]
            if not all(owner.get("blockOwnerDeletion") for owner in owners):
                yield f"the Workload of {name} does not block its deletion"
            admitted = first(owned, lambda obj: condition(obj, "Admitted") == "True")
            if not admitted < begin < NEVER:
                yield f"{name} was let go at {begin}, and admitted at {admitted}"


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu or 0)


def _scenarios() -> Iterator[type[Scenario]]:
    for kind, sample in SAMPLES.items():
        yield type(f"Lone{kind}", (LoneObject,), {"variant": kind, "sample": sample})


SCENARIOS: Final = tuple(_scenarios())
