"""Objects and clusters for the simulator's tests; everything has a default."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from services.simulator.behaviour.conditions import condition
from services.simulator.behaviour.manager import ControllerManager
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import JOBS, PIPELINERUNS, SECRETS
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.simulation import DURATION, OUTCOME
from shared.testing.world.loop import run_virtual

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
CONFIG_MAP = {"metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"}}


def api(seed: int = 1, *, history_max: int = 1000) -> Api:
    return Api(now=lambda: START, random=Random(seed), history_max=history_max)


def kind(cluster: Api, plural: str, group: str = "") -> Kind:
    return cluster.kinds.by_resource(group, plural)


def config_map(name: str = "a", **metadata: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": "default", **metadata}, "data": {"k": "v"}}


def job(name: str = "j", *, seconds: float | None = 10, fail: bool = False, **spec: Any) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": wishes(seconds, fail)},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox"}],
                }
            },
            **spec,
        },
    }


def pipeline_run(
    name: str = "p", *, seconds: float | None = 10, fail: bool = False, **spec: Any
) -> Obj:
    spec = spec if "pipelineRef" in spec else {"pipelineSpec": {"tasks": [{"name": "a"}]}, **spec}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": wishes(seconds, fail)},
        "spec": spec,
    }


def wishes(seconds: float | None, fail: bool) -> dict[str, str]:
    found = {} if seconds is None else {DURATION: f"{seconds}s"}
    return found | ({OUTCOME: "fail"} if fail else {})


class Cluster:
    """A cluster with behaviour, in virtual time: `after` moves it."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.api = Api(now=lambda: START + timedelta(seconds=self.loop.time()), random=Random(seed))
        self.behaviour = ControllerManager(self.api, random=Random(seed))

    async def create(self, kind_: Kind, body: Obj) -> Stored:
        return await self.api.create(kind_, kind_.storage_version, "default", body)

    async def merge(self, kind_: Kind, name: str, patch: Obj, subresource: str = "") -> Stored:
        return await self.api.patch(
            kind_, kind_.storage_version, "default", name, patch, "merge", subresource=subresource
        )

    async def after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def get(self, kind_: Kind, name: str) -> Obj:
        return self.api.get(kind_, "default", name).obj

    def job(self, name: str = "j") -> Obj:
        return self.get(JOBS, name)

    def run(self, name: str = "p") -> Obj:
        return self.get(PIPELINERUNS, name)

    async def give_machine(self, taskrun: str, **data: str) -> None:
        body = {
            "metadata": {"name": f"multi-platform-ssh-{taskrun}", "namespace": "default"},
            "stringData": data or {"host": "u@10.0.0.1"},
        }
        await self.create(SECRETS, body)


def in_cluster(story: Callable[[Cluster], Awaitable[None]], seed: int = 1) -> None:
    """Run a story in a cluster of its own, to its end, in no real time."""

    async def told() -> None:
        cluster = Cluster(seed)
        cluster.behaviour.start()
        try:
            await story(cluster)
        finally:
            await cluster.behaviour.stop()

    run_virtual(told())


def verdict(obj: Obj, type_: str = "Succeeded") -> tuple[str, str]:
    """Status and reason of a condition; both empty if it is not there."""
    found = condition(obj, type_)
    return ("", "") if found is None else (found["status"], found["reason"])
