"""Plays Tekton and the Job controller on an API server that has neither, and takes note of what it sees."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import workload_name
from shared.integrations import JOB, PIPELINE_RUN, Integration
from shared.kube.port import ConflictError, Kube, NotFoundError, RefusedError, UnavailableError

LOOK_SECONDS: Final = 0.3
RUN_SECONDS: Final = 1.0


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_: str, status: str, reason: str) -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": reason,
        "lastTransitionTime": stamp(),
    }


def pods_of(job: Object) -> int:
    return int(job["spec"].get("parallelism") or 1)


def run_started(_run: Object) -> Object:
    return {
        "startTime": stamp(),
        "conditions": [condition("Succeeded", "Unknown", "Running")],
    }


def run_done(_run: Object) -> Object:
    return {
        "completionTime": stamp(),
        "conditions": [condition("Succeeded", "True", "Succeeded")],
    }


def job_started(job: Object) -> Object:
    return {"startTime": stamp(), "active": pods_of(job), "ready": pods_of(job), "conditions": []}


def job_done(job: Object) -> Object:
    """As the API server's own rules want it: criteria first, then complete, and nobody active."""
    done = [condition(type_, "True", "Done") for type_ in ("SuccessCriteriaMet", "Complete")]
    return {
        "active": None,
        "ready": 0,
        "terminating": 0,
        "succeeded": int(job["spec"]["completions"]),
        "completionTime": stamp(),
        "conditions": done,
    }


def job_stopped(_job: Object) -> Object:
    return {"startTime": None, "active": None, "ready": 0, "conditions": []}


@dataclass(slots=True)
class Player:
    """Starts what is not held, ends it a moment later, and looks whether it had leave to start."""

    kube: Kube
    starts: dict[str, int] = field(default_factory=dict)
    """uid to how often it was started."""

    ended: set[str] = field(default_factory=set)
    without_leave: list[str] = field(default_factory=list)
    """Those that were let go before their Workload said that they were admitted."""

    _began: dict[str, float] = field(default_factory=dict)

    async def play(self) -> None:
        """Until cancelled. A server that does not answer is asked again."""
        while True:
            for integration in (PIPELINE_RUN, JOB):
                with suppress(UnavailableError):
                    for obj in (await self.kube.list(integration.kind)).items:
                        await self._move(integration, obj)
            await asyncio.sleep(LOOK_SECONDS)

    async def _move(self, integration: Integration, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        running = uid in self._began
        is_job = integration is JOB
        if uid in self.ended:
            return
        if integration.held(obj):
            if running:
                await self._write(integration.kind, obj, job_stopped(obj))
                del self._began[uid]
            return
        now = asyncio.get_running_loop().time()
        if not running:
            await self._look(integration, obj)
            await self._write(
                integration.kind, obj, job_started(obj) if is_job else run_started(obj)
            )
            self.starts[uid] = self.starts.get(uid, 0) + 1
            self._began[uid] = now
        elif now - self._began[uid] >= RUN_SECONDS:
            await self._write(integration.kind, obj, job_done(obj) if is_job else run_done(obj))
            self.ended.add(uid)

    async def _look(self, integration: Integration, obj: Object) -> None:
        metadata, kind = obj["metadata"], integration.kind
        name = workload_name(
            kind=kind.kind, group=kind.group, name=metadata["name"], uid=metadata["uid"]
        )
        try:
            workload = await self.kube.get(kinds.WORKLOAD, metadata["namespace"], name)
        except NotFoundError:
            self.without_leave.append(f"{name}: there is no Workload")
            return
        conditions = (workload.get("status") or {}).get("conditions") or []
        if not any(c["type"] == "Admitted" and c["status"] == "True" for c in conditions):
            self.without_leave.append(f"{name}: {conditions}")

    async def _write(self, kind: Kind, obj: Object, status: Object) -> None:
        metadata = obj["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        # Gone or changed meanwhile: the next look sees it.
        with suppress(ConflictError, NotFoundError):
            try:
                await self.kube.patch(
                    kind, metadata["namespace"], metadata["name"], patch, subresource="status"
                )
            except RefusedError as error:
                raise AssertionError(f"the player plays badly: {error}") from error


@asynccontextmanager
async def playing(kube: Kube) -> AsyncIterator[Player]:
    player = Player(kube)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(player.play())
        yield player
        task.cancel()
