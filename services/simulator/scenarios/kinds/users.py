"""Users who make objects of other kinds, change and delete them, and replace what a group has lost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

from services.simulator.behaviour.workloads.pod_makers import (
    DeploymentController,
    TrainingController,
    WorkflowController,
)
from services.simulator.behaviour.workloads.wrappers import WrapperController
from services.simulator.judge.message_logs import MessageLogs
from services.simulator.judge.pods_of_quota import PodsOfQuota
from services.simulator.scenarios.basic import Submitted
from services.simulator.scenarios.kinds import load
from services.simulator.scenarios.load import NAMESPACES
from services.simulator.scenarios.swarm.disturbances import PAUSE_SECONDS
from services.simulator.scenarios.swarm.features import FAULT_SECONDS
from services.simulator.scenarios.system import System
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import FINISHED, is_true
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import MANAGED_LABEL
from shared.integrations import Integrations, opted_documents
from shared.kube.port import NotFoundError, RefusedError

LOAD_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 5.0
"""How often users look after their groups."""

AGAIN_SECONDS: Final = 200.0
"""Within which what lasts has its pods, once nothing else needs quota: a check may say no at first."""

REPLICAS: Final = 2
"""Pods of what lasts, at the end: those of all of it fit into the smallest quota of a team."""

_ENDING: Final[dict[Kind, tuple[Callable[[str, str, Random], Object], tuple[int, int]]]] = {
    kinds.POD: (load.pod, (1, 4)),
    load.JOB_SET: (load.job_set, (0, 2)),
    load.TRAINING: (load.training, (1, 3)),
    load.WORKFLOW: (load.workflow, (1, 3)),
    load.WRAPPER: (load.app_wrapper, (0, 2)),
}
"""Kinds whose objects end by themselves: what makes one, and how many there are."""

_LASTING: Final[dict[Kind, Callable[[str, str, Random], Object]]] = {
    kinds.DEPLOYMENT: load.deployment,
    kinds.STATEFUL_SET: load.stateful_set,
}
"""Kinds whose pods run until somebody ends them."""

_GROUPS: Final = (1, 3)


class OtherKinds:
    """What plays along in one world."""

    def __init__(self, system: System) -> None:
        self.submitted: Submitted = []
        """What was created and ends by itself."""

        self.deleted: set[str] = set()
        """Uids of what users deleted."""

        self.integrations = Integrations()
        """The kinds that wait in this world."""

        self._world, self._kube = system.world, system.kube
        self._random = Random(f"kinds/{system.world.seed}")
        self._groups: dict[tuple[str, str], Object] = {}
        """By namespace and name."""

        self._dropped: set[tuple[str, str]] = set()
        """Groups that their user deleted."""

        self._lasting: list[tuple[Kind, str, str]] = []
        self._made = 0
        for document in opted_documents(load.FRAMEWORKS):
            self.integrations.apply(document)
        for controller in (
            DeploymentController,
            TrainingController,
            WorkflowController,
            WrapperController,
        ):
            system.behaviour.add(controller, Random(f"{controller.__name__}/{system.world.seed}"))
        self._pods = PodsOfQuota(system.api, now=system.world.now, integrations=self.integrations)

    async def begin(self) -> None:
        """Make the queues, and wait until the kinds that the configuration lists are in force."""
        for kind, obj in load.queues(self._random):
            await self._kube.create(kind, obj)
        wanted = {document["metadata"]["name"] for document in opted_documents(load.FRAMEWORKS)}
        in_force: set[str] = set()
        while not wanted <= in_force:
            await asyncio.sleep(1.0)
            found = (await self._kube.list(kinds.INTEGRATION)).items
            accepted = (one for one in found if (one.get("status") or {}).get("accepted"))
            in_force = {one["metadata"]["name"] for one in accepted}

    async def run(self) -> None:
        """Create objects for a while, and disturb them until the time of faults is over."""
        random, loop = self._random, asyncio.get_running_loop()
        self._world.process("users-of-groups", self._look_after, mortal=False)
        coming: list[tuple[float, Callable[[], Any]]] = []
        for kind, (make, (least, most)) in _ENDING.items():
            for number in range(random.randint(least, most)):
                name = f"{kind.kind.lower()}-{number}"
                coming.append((random.uniform(0, LOAD_SECONDS), self._submitting(kind, make, name)))
        for kind, make in _LASTING.items():
            for number in range(random.randint(0, 1)):
                name = f"{kind.kind.lower()}-{number}"
                coming.append(
                    (random.uniform(0, LOAD_SECONDS), self._lasting_one(kind, make, name))
                )
        coming += [
            (random.uniform(0, LOAD_SECONDS), self._group(f"group-{number}"))
            for number in range(random.randint(*_GROUPS))
        ]
        every = random.choice((6.0, 15.0, 1000.0))
        at = random.expovariate(1 / every)
        while at < FAULT_SECONDS:
            coming.append((at, self._act))
            at += random.expovariate(1 / every)
        began = loop.time()
        for at, act in sorted(coming, key=lambda one: one[0]):
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            await act()

    # Creating

    def _submitting(
        self, kind: Kind, make: Callable[[str, str, Random], Object], name: str
    ) -> Callable[[], Any]:
        async def submit() -> None:
            namespace = self._random.choice(NAMESPACES)
            created = await self._kube.create(kind, make(name, namespace, self._random))
            self._world.note(f"submit {kind.kind} {namespace}/{name}")
            self.submitted.append((kind, namespace, name, created["metadata"]["uid"]))

        return submit

    def _lasting_one(
        self, kind: Kind, make: Callable[[str, str, Random], Object], name: str
    ) -> Callable[[], Any]:
        async def create() -> None:
            namespace = self._random.choice(NAMESPACES)
            await self._kube.create(kind, make(name, namespace, self._random))
            self._world.note(f"create {kind.kind} {namespace}/{name}")
            self._lasting.append((kind, namespace, name))

        return create

    def _group(self, name: str) -> Callable[[], Any]:
        async def create() -> None:
            namespace = self._random.choice(NAMESPACES)
            group = load.group_of(name, self._random)
            self._groups[namespace, name] = group
            self._world.note(f"create group {namespace}/{name} of {group['total']}")
            for _ in range(group["total"]):
                await self._make_member(namespace, group)

        return create

    async def _make_member(self, namespace: str, group: Object) -> None:
        self._made += 1
        name = f"{group['name']}-{self._made}"
        await self._kube.create(kinds.POD, load.member(name, namespace, group, self._random))

    # Acts

    async def _act(self) -> None:
        act = self._random.choice((self._delete, self._delete, self._scale, self._drop))
        await act()

    async def _delete(self) -> None:
        """Delete something, whatever it is doing."""
        kind = self._random.choice(tuple(_ENDING))
        found = (await self._kube.list(kind)).items
        if found:
            metadata = self._random.choice(found)["metadata"]
            self._world.note(f"delete {kind.kind} {metadata['namespace']}/{metadata['name']}")
            await self._delete_one(kind, metadata["namespace"], metadata["name"])
            self.deleted.add(metadata["uid"])

    async def _scale(self) -> None:
        if self._lasting:
            one = self._random.choice(self._lasting)
            await self._resize(*one, replicas=self._random.randint(0, REPLICAS))

    async def _drop(self) -> None:
        """Delete all pods of a group."""
        if self._groups and self._random.random() < 1 / 3:
            one = self._random.choice(tuple(self._groups))
            self._world.note(f"drop group {'/'.join(one)}")
            self._dropped.add(one)
            for pod in await self._members(*one):
                await self._delete_one(kinds.POD, one[0], pod["metadata"]["name"])

    async def _delete_one(self, kind: Kind, namespace: str, name: str) -> None:
        try:
            await self._kube.delete(kind, namespace, name)
        except NotFoundError:
            return

    async def _members(self, namespace: str, name: str) -> list[Object]:
        label = load.GROUP["label"]
        return (
            await self._kube.list(kinds.POD, namespace=namespace, labels=f"{label}={name}")
        ).items

    async def _look_after(self, context: object) -> None:
        """Replace what groups have lost, until they have ended."""
        del context
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for (namespace, name), group in tuple(self._groups.items()):
                if (namespace, name) in self._dropped or await self._has_ended(namespace, name):
                    continue
                counted = sum(map(_counts, await self._members(namespace, name)))
                for _ in range(group["total"] - counted):
                    await self._make_member(namespace, group)

    async def _has_ended(self, namespace: str, name: str) -> bool:
        try:
            return is_true(await self._kube.get(kinds.WORKLOAD, namespace, name), FINISHED)
        except NotFoundError:
            return False

    # The end

    async def wind_up(self) -> None:
        """Take the pods of what would run forever. Nothing fails any more, and the judge is strict."""
        still = FAULT_SECONDS + PAUSE_SECONDS[1] - asyncio.get_running_loop().time()
        self._pods.begin(in_seconds=max(0.0, still))
        for one in self._lasting:
            await self._resize(*one, replicas=0)

    async def run_again(self) -> list[str]:
        """Let what lasts run once more, now that its quota is free, and end it; return what did not run."""
        loop = asyncio.get_running_loop()
        until = loop.time() + AGAIN_SECONDS
        while (missing := [one async for one in self._incomplete()]) and loop.time() < until:
            for one in self._lasting:
                await self._resize(*one, replicas=REPLICAS)
            await asyncio.sleep(1.0)
        for kind, namespace, name in self._lasting:
            self._world.note(f"delete {kind.kind} {namespace}/{name}")
            await self._delete_one(kind, namespace, name)
        return missing

    async def _resize(self, kind: Kind, namespace: str, name: str, *, replicas: int) -> None:
        """Change the number of pods, unless it is so or has to wait for the end of others."""
        obj = await self._kube.get(kind, namespace, name)
        if obj["spec"]["replicas"] != replicas:
            self._world.note(f"scale {kind.kind} {namespace}/{name} to {replicas}")
            with suppress(RefusedError):  # Pods of a group are as many as they are, or none.
                await self._kube.patch(kind, namespace, name, {"spec": {"replicas": replicas}})

    async def _incomplete(self) -> AsyncIterator[str]:
        """Yield what lasts and has too few pods."""
        for kind, namespace, name in self._lasting:
            pods = (
                await self._kube.list(kinds.POD, namespace=namespace, labels=f"app={name}")
            ).items
            running = sum(_runs(pod) for pod in pods)
            if running != REPLICAS:
                yield (
                    f"{kind.kind} {namespace}/{name} has {running} of {REPLICAS} pods, and nothing else "
                    "needs its quota"
                )

    async def left(self) -> list[str]:
        """Return what has not ended, or was not let go."""
        unended = [
            f"group {namespace}/{name}"
            for namespace, name in self._groups
            if (namespace, name) not in self._dropped and not await self._has_ended(namespace, name)
        ]
        pods = (await self._kube.list(kinds.POD, labels=f"{MANAGED_LABEL}=true")).items
        kept = [
            f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in pods
            if MANAGED_LABEL in (pod["metadata"].get("finalizers") or ())
        ]
        return unended + kept

    def problems(self, message_logs: MessageLogs) -> list[str]:
        """Return what had quota without pods or pods without quota, and groups nobody ever heard of."""
        known = {(one.message.namespace, one.message.name) for one in message_logs.workloads}
        unknown = self._groups.keys() - known - self._dropped
        return self._pods.problems() + [
            f"group {namespace}/{name} was created, and no workload is known for it"
            for namespace, name in unknown
        ]


def _runs(pod: Object) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _counts(pod: Object) -> bool:
    phase = pod["status"].get("phase")
    return phase == "Succeeded" or (
        phase != "Failed" and "deletionTimestamp" not in pod["metadata"]
    )
