"""The stage for the seeds' statements: one simulated cluster, our services, virtual time.

A test is a story about a `Stage`:

    @says("000:62")
    @story()
    async def test_third_run_waits_for_a_slot(stage: Stage) -> None:
        await stage.create(*pool("pipelines", {"tekton.dev/pipelineruns": 2}))
        ...

A world is calm unless a story says otherwise; a minute in it takes some milliseconds.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec

from services.simulator.manifests import read_folder
from services.simulator.scenarios.system import RULES, System
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE, workload_name
from shared.contracts.simulation import DURATION
from shared.kube.port import NotFoundError
from shared.settings.configuration import Configuration
from shared.testing.world.world import World

__all__ = ["EXAMPLES", "Stage", "example", "job", "pipeline_run", "pool", "priority", "story"]

P = ParamSpec("P")

PATIENCE_SECONDS: Final = 120.0
LINE_MAX: Final = 240
SERVICES: Final = ("watcher", "classifier", "quota", "patcher")
EXAMPLES: Final = Path(__file__).parents[3] / "deploy" / "examples" / "seeds"
JOBS: Final = ("Job", "PipelineRun", "Workload")
KINDS: Final = {
    (kind.group, kind.kind): kind for kind in vars(kinds).values() if isinstance(kind, Kind)
}


class Stage:
    """A cluster as its users have it, and questions about it."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.kube = system.kube

    def now(self) -> float:
        """Seconds since the world began."""
        return asyncio.get_running_loop().time()

    async def create(self, *objects: Object) -> Object:
        """Create what manifests say, namespaces where they are missing; return the last.

        A second passes after a job: the order of creation is kept in seconds.
        """
        made: Object = {}
        for obj in objects:
            namespace = obj["metadata"].get("namespace")
            if namespace is not None and not await self._is_there(kinds.NAMESPACE, None, namespace):
                await self.kube.create(
                    kinds.NAMESPACE,
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
                )
            if obj["kind"] == "ResourceFlavor" and await self._is_there(
                kinds.RESOURCE_FLAVOR, None, obj["metadata"]["name"]
            ):
                continue  # Two pools may share one.
            made = await self.kube.create(self.kind(obj), obj)
            if obj["kind"] in JOBS:
                await asyncio.sleep(1.0)
        return made

    def kind(self, obj: Object) -> Kind:
        """The kind of a manifest, in the version that it is written in."""
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        served = (
            one for one in self.system.api.kinds if (one.group, one.kind) == (group, obj["kind"])
        )
        known = KINDS.get((group, obj["kind"])) or next(served)
        return Kind(
            group=group,
            version=version,
            plural=known.plural,
            kind=known.kind,
            namespaced=known.namespaced,
        )

    async def fresh(self, obj: Object) -> Object:
        """The object as it is now."""
        metadata = obj["metadata"]
        return await self.kube.get(self.kind(obj), metadata.get("namespace"), metadata["name"])

    async def patch(self, obj: Object, patch: Any, *, subresource: str | None = None) -> Object:
        """Patch as a user does."""
        metadata = obj["metadata"]
        return await self.kube.patch(
            self.kind(obj),
            metadata.get("namespace"),
            metadata["name"],
            patch,
            subresource=subresource,
        )

    async def delete(self, obj: Object) -> None:
        """Delete as a user does."""
        metadata = obj["metadata"]
        await self.kube.delete(self.kind(obj), metadata.get("namespace"), metadata["name"])

    async def workload(self, owner: Object) -> Object:
        """The Workload object of a job, or a Workload itself; empty if there is none."""
        metadata = owner["metadata"]
        name = metadata["name"]
        if owner["kind"] != kinds.WORKLOAD.kind:
            group = str(owner["apiVersion"]).rpartition("/")[0]
            name = workload_name(kind=owner["kind"], group=group, name=name, uid=metadata["uid"])
        try:
            return await self.kube.get(kinds.WORKLOAD, metadata["namespace"], name)
        except NotFoundError:
            return {}

    async def condition(self, obj: Object, type_: str) -> Object:
        """A condition of the Workload behind `obj`; empty if it has none of that type."""
        return _condition(await self.workload(obj), type_)

    async def is_admitted(self, *objects: Object) -> bool:
        """Whether all of these are admitted."""
        return all(
            [(await self.condition(obj, "Admitted")).get("status") == "True" for obj in objects]
        )

    async def waits(self, obj: Object) -> str:
        """Why the Workload behind `obj` has no quota, in words; empty if it has, or was not told."""
        reserved = await self.condition(obj, "QuotaReserved")
        return str(reserved.get("message", "")) if reserved.get("status") == "False" else ""

    async def runs(self, obj: Object) -> bool:
        """Whether a job was released and not taken off again."""
        spec = (await self.fresh(obj)).get("spec") or {}
        if obj["kind"] == kinds.PIPELINE_RUN.kind:
            return spec.get("status") != "PipelineRunPending"
        return not spec.get("suspend")

    async def finished(self, obj: Object) -> bool:
        """Whether the Workload behind `obj` is finished."""
        return bool((await self.condition(obj, "Finished")).get("status") == "True")

    async def events(self, obj: Object, reason: str) -> list[str]:
        """The messages of events about `obj` of that reason."""
        found = await self.kube.list(kinds.EVENT, namespace=obj["metadata"]["namespace"])
        return [
            event["message"]
            for event in found.items
            if event["involvedObject"]["uid"] == obj["metadata"]["uid"]
            and event["reason"] == reason
        ]

    async def until(
        self, what: Callable[[], Awaitable[object]], *, seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait until `what` is so. Fails, with what happened last, if it is not in time."""
        deadline = self.now() + seconds
        while not await what():
            if self.now() >= deadline:
                log = "\n".join(line[:LINE_MAX] for line in self.system.world.log[-60:])
                raise AssertionError(f"after {seconds:g} s it is not so:\n{log}")
            await asyncio.sleep(0.25)

    async def until_admitted(self, *objects: Object, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until all of these are admitted."""
        await self.until(lambda: self.is_admitted(*objects), seconds=seconds)

    async def until_waits(self, obj: Object, reason: str = "") -> str:
        """Wait until `obj` is told why it waits, by these words; return all of them."""

        async def told() -> bool:
            message = await self.waits(obj)
            return bool(message) and reason in message

        await self.until(told)
        return await self.waits(obj)

    async def until_finished(self, *objects: Object, seconds: float = 600) -> None:
        """Wait until all of these are finished."""
        for obj in objects:
            await self.until(functools.partial(self.finished, obj), seconds=seconds)

    async def settle(self, seconds: float = 10.0) -> None:
        """Let everything happen that is going to."""
        await asyncio.sleep(seconds)

    async def _is_there(self, kind: Kind, namespace: str | None, name: str) -> bool:
        try:
            await self.kube.get(kind, namespace, name)
        except NotFoundError:
            return False
        return True


def story(
    *,
    rules: str = RULES,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    configuration: Mapping[str, Any] | None = None,
    services: tuple[str, ...] = SERVICES,
    refuses_starts: bool = False,
    seed: int = 1,
) -> Callable[[Callable[Concatenate[Stage, P], Awaitable[None]]], Callable[P, None]]:
    """Make a test of a story: play it in a world of its own, and hold the world to no failures.

    `services` are those that run: whoever tells of spokes or machines adds the dispatcher or the
    provisioner. `rules` configures the classifier, `settings` the services, by service and name, and
    `configuration` is Kueue's document for all of them. With `refuses_starts` the webhook refuses what
    starts without admission; without, the services deal with it.
    """

    def decorate(tell: Callable[Concatenate[Stage, P], Awaitable[None]]) -> Callable[P, None]:
        def test(*args: P.args, **kwargs: P.kwargs) -> None:
            with World(seed) as world:
                system = System(
                    world,
                    rules=rules,
                    settings=settings,
                    configuration=Configuration.model_validate(configuration or {}),
                    refuses_starts=refuses_starts,
                )

                async def drive() -> None:
                    for service in services:
                        system.serve(service)
                    await tell(Stage(system), *args, **kwargs)

                world.run(drive)
                assert not world.failures, "\n".join(world.failures)

        functools.update_wrapper(test, tell)
        # pytest asks for what the signature names; the stage is not a fixture.
        del test.__wrapped__  # type: ignore[attr-defined]
        signature = inspect.signature(tell)
        rest = [p for name, p in signature.parameters.items() if name != "stage"]
        test.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test

    return decorate


# What manifests have in common ---------------------------------------------------------------------


def example(name: str) -> list[Object]:
    """The manifests of a file in `deploy/examples/seeds`: those of the documents."""
    return [obj for _, obj in read_folder(EXAMPLES / name)]


def pool(
    name: str,
    quota: Mapping[str, object],
    *,
    namespaces: tuple[str, ...] = ("team-a",),
    local: str = "",
    flavor: str = "default-flavor",
    **spec: Any,
) -> list[Object]:
    """A ClusterQueue with one flavor, that flavor, and a LocalQueue in each namespace.

    The LocalQueues are called `local`, or as the ClusterQueue. `spec` goes into the ClusterQueue.
    """
    resources = [{"name": key, "nominalQuota": str(value)} for key, value in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": flavor, "resources": resources}]}
    objects = [
        _kueue("ResourceFlavor", flavor, spec={}),
        _kueue(
            "ClusterQueue",
            name,
            spec={"namespaceSelector": {}, "resourceGroups": [group], **spec},
        ),
    ]
    for namespace in namespaces:
        queue = _kueue("LocalQueue", local or name, spec={"clusterQueue": name})
        queue["metadata"]["namespace"] = namespace
        objects.append(queue)
    return objects


def priority(name: str, value: int) -> Object:
    """A WorkloadPriorityClass."""
    return _kueue("WorkloadPriorityClass", name, value=value)


def _kueue(kind: str, name: str, **more: Any) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        **more,
    }


def job(
    name: str,
    queue: str | None,
    requests: Mapping[str, object] | None = None,
    *,
    namespace: str = "team-a",
    seconds: float = 3600,
    parallelism: int = 1,
    completions: int | None = None,
    priority_class: str = "",
    pod: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A batch Job whose pods run for `seconds`. `pod` goes into the pod's spec."""
    all_labels = dict(labels or {})
    if queue is not None:
        all_labels[QUEUE] = queue
    if priority_class:
        all_labels[PRIORITY_CLASS_LABEL] = priority_class
    asked = {key: str(value) for key, value in (requests or {}).items()}
    container: Object = {"name": "work", "image": "none"}
    if asked:
        container["resources"] = {"requests": asked}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": all_labels,
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism if completions is None else completions,
            "template": {
                "metadata": {"annotations": {DURATION: f"{seconds:g}s"}},
                "spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})},
            },
        },
    }


def pipeline_run(
    name: str,
    *,
    namespace: str = "team-a",
    seconds: float = 3600,
    tasks: int = 1,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A PipelineRun of tasks without parameters, each for `seconds`. `spec` goes into its spec."""
    work = {"steps": [{"name": "work", "image": "none"}]}
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": {DURATION: f"{seconds:g}s", **(annotations or {})},
        },
        "spec": {
            "pipelineSpec": {
                "tasks": [{"name": f"task-{n}", "taskSpec": work} for n in range(1, tasks + 1)]
            },
            **spec,
        },
    }


def _condition(obj: Object, type_: str) -> Object:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == type_), {})
