"""Plays the scheduler and the kubelet of one node: binds pods, runs their containers, ends them.

What a container does is in its arguments:

* `sleep=3` runs so many seconds, `hold` until the play says `end`, `index-sleep=0:4` one index of a Job;
* `fail` ends with an error, `fail-index=1` that of one index, `fail-first=2` the first tries of a task;
* `term=5` takes so long to end once it is deleted, `stay` until the play says `let_go`;
* `result=name:value` is a result of a task.
"""

import asyncio
import json
import re
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tests.controllers.servers.client import Client, Json, RequestError, path_of

NAME: Final = "n1"
LEAST_SECONDS: Final = 0.2
AGAIN_SECONDS: Final = 0.5
OWNERS: Final = ("job-name", "tekton.dev/pipelineRun")
INDEX: Final = "batch.kubernetes.io/job-completion-index"
KILLED: Final = 143
RESULT, INTERNAL = 1, 3
"""Types of Tekton's entries in the message of a container that ended."""


@dataclass(slots=True)
class Orders:
    """What the containers of a pod do, all together."""

    seconds: float = 0.0
    holds: bool = False
    fails: bool = False
    stays: bool = False
    end_seconds: float = 0.0
    results: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Name of a container to names and values."""


def orders(pod: Json) -> Orders:
    """Read them from the arguments."""
    found = Orders()
    annotations = pod["metadata"].get("annotations") or {}
    tried = re.search(r"-retry(\d+)$", pod["metadata"]["name"])
    for container in pod["spec"]["containers"]:
        arguments = container.get("args") or []
        if "--" in arguments:  # Before it are those of Tekton's entrypoint.
            arguments = arguments[arguments.index("--") + 1 :]
        for argument in arguments:
            word, _, value = argument.partition("=")
            match word:
                case "sleep":
                    found.seconds += float(value)
                case "hold":
                    found.holds = True
                case "stay":
                    found.stays = True
                case "term":
                    found.end_seconds = float(value)
                case "fail":
                    found.fails = True
                case "fail-index":
                    found.fails |= annotations.get(INDEX) == value
                case "fail-first":
                    found.fails |= int(tried[1] if tried else 0) < int(value)
                case "index-sleep":
                    index, _, seconds = value.partition(":")
                    if annotations.get(INDEX) == index:
                        found.seconds, found.holds = float(seconds), False
                case "result":
                    name, _, text = value.partition(":")
                    found.results.setdefault(container["name"], []).append((name, text))
                case _:
                    pass
    return found


@dataclass(slots=True)
class _Life:
    pod: Json
    deleted: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Node:
    """The only node. `problems` says what the API server refused."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lives: dict[str, _Life] = {}
        self._ends: dict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)
        self._goes: dict[tuple[str, str], asyncio.Event] = defaultdict(asyncio.Event)
        self.problems: list[str] = []

    def end(self, namespace: str, owner: str) -> None:
        """Let the containers end that hold, of a Job or PipelineRun."""
        self._ends[namespace, owner].set()

    def let_go(self, namespace: str, owner: str) -> None:
        """Let the deleted pods end that stay, of a Job or PipelineRun."""
        self._goes[namespace, owner].set()

    async def run(self) -> None:
        """Play until cancelled."""
        try:
            while True:
                with suppress(RequestError):
                    listing = await self._client.list("Pod")
                    for pod in listing["items"]:
                        self._observe(pod)
                    version = listing["metadata"]["resourceVersion"]
                    async for what, pod in self._client.watch("Pod", version):
                        if what == "DELETED":
                            self._forget(pod)
                        elif what != "BOOKMARK":
                            self._observe(pod)
                await asyncio.sleep(AGAIN_SECONDS)
        finally:
            for life in self._lives.values():
                if life.task is not None:
                    life.task.cancel()

    def _observe(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        life = self._lives.setdefault(uid, _Life(pod))
        life.pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            life.deleted.set()
        if life.task is None and not pod["spec"].get("schedulingGates"):
            life.task = asyncio.create_task(self._live(life))

    def _forget(self, pod: Json) -> None:
        life = self._lives.get(pod["metadata"]["uid"])
        if life is not None:
            life.deleted.set()
            life.gone.set()

    async def _live(self, life: _Life) -> None:
        """From binding to the end of a pod."""
        pod = life.pod
        if not pod["spec"].get("nodeName") and not await self._bind(pod):
            return
        if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            await self._play(life, orders(pod))
        await life.deleted.wait()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._send(life, "DELETE", "", body)

    async def _play(self, life: _Life, told: Orders) -> None:
        pod, started = life.pod, _stamp()
        if not life.deleted.is_set():
            ready = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            status = {
                "phase": "Running",
                "startTime": started,
                "podIP": "10.9.0.1",
                "hostIP": "192.0.2.2",
                "conditions": [_condition(one, "True") for one in ready],
                "initContainerStatuses": _initial(pod, started),
                "containerStatuses": _running(pod, started),
            }
            await self._send(life, "PATCH", "/status", {"status": status})
        await self._work(life, told)
        code = int(told.fails)
        if life.deleted.is_set():
            await self._go(life, told)
            code = KILLED
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [
                _condition("PodScheduled", "True"),
                _condition("Initialized", "True"),
                _condition("ContainersReady", "False"),
                _condition("Ready", "False"),
            ],
            "containerStatuses": _ended(pod, started, told, code),
        }
        await self._send(life, "PATCH", "/status", {"status": status})

    async def _work(self, life: _Life, told: Orders) -> None:
        """Until the work is done or the pod is deleted."""
        waits = [asyncio.create_task(life.deleted.wait())]
        if told.holds:
            ends = [self._ends[key].wait() for key in _keys(life.pod)]
            waits += [asyncio.create_task(one) for one in ends]
        seconds = None if told.holds else max(told.seconds, LEAST_SECONDS)
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    async def _go(self, life: _Life, told: Orders) -> None:
        """What a deleted pod does before it ends."""
        if told.stays:
            for key in _keys(life.pod):
                await self._goes[key].wait()
        await asyncio.sleep(told.end_seconds)

    async def _bind(self, pod: Json) -> bool:
        metadata = pod["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NAME},
        }
        path = path_of("Pod", metadata["namespace"], metadata["name"])
        while True:
            try:
                await self._client.call("POST", f"{path}/binding", body)
            except RequestError as error:
                if error.status in {404, 409}:
                    return error.status == 409  # 409: it is bound already.
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return True

    async def _send(self, life: _Life, method: str, below: str, body: Json) -> None:
        """Send until it is taken, or nobody is there to take it."""
        metadata = life.pod["metadata"]
        path = path_of("Pod", metadata["namespace"], metadata["name"]) + below
        content = "application/json"
        if method == "PATCH":
            body = {"metadata": {"uid": metadata["uid"]}, **body}
            content = "application/merge-patch+json"
        while not life.gone.is_set():
            try:
                await self._client.call(method, path, body, content=content)
            except RequestError as error:
                if error.status in {404, 409}:
                    return
                if 400 <= error.status < 500:
                    self.problems.append(f"{metadata['name']}: {error}")
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return


def _keys(pod: Json) -> list[tuple[str, str]]:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    owners = [labels[one] for one in OWNERS if one in labels] or [metadata["name"]]
    return [(metadata["namespace"], owner) for owner in owners]


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(type_: str, status: str) -> Json:
    return {"type": type_, "status": status, "lastTransitionTime": _stamp()}


def _container(pod: Json, container: Json, state: Json, *, runs: bool) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"example.test/image@sha256:{'0' * 64}",
        "containerID": f"play://{pod['metadata']['uid']}/{container['name']}",
        "restartCount": 0,
        "ready": runs,
        "started": runs,
        "state": state,
    }


def _initial(pod: Json, moment: str) -> list[Json]:
    over = {
        "terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment,
        }
    }  # fmt: skip
    containers = pod["spec"].get("initContainers") or []
    return [_container(pod, each, over, runs=False) for each in containers]


def _running(pod: Json, started: str) -> list[Json]:
    state = {"running": {"startedAt": started}}
    return [_container(pod, each, state, runs=True) for each in pod["spec"]["containers"]]


def _ended(pod: Json, started: str, told: Orders, code: int) -> list[Json]:
    found = []
    for container in pod["spec"]["containers"]:
        entries = [
            {"key": name, "value": value, "type": RESULT}
            for name, value in told.results.get(container["name"], ())
        ]
        entries.append({"key": "StartedAt", "value": started, "type": INTERNAL})
        over = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": started,
            "finishedAt": _stamp(),
            "message": json.dumps(entries),
        }
        found.append(_container(pod, container, {"terminated": over}, runs=False))
    return found
