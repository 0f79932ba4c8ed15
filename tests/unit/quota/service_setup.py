"""The quota service on a bus in memory; the test plays watcher, classifier and patcher."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry

from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.follow import read
from shared.bus.port import CaughtUp, LogEnd, UnavailableError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.explain import ExplainAnswer, ExplainRequest
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.windows import CONTROLLER as WINDOWS
from shared.testing.builders import observed, workload
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


SETTINGS = QuotaSettings(reason_delay_seconds=0)


class Setup:
    """A bus with one queue of two cpus on it; the test plays watcher, classifier and patcher."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.bus = MemoryBus(self.server, instance="test")
        self._processes: list[tuple[asyncio.Task[None], MemoryBus]] = []
        self._version = 0

    async def start_quota(
        self,
        name: str = "a",
        *,
        bus: MemoryBus | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        bus = bus or MemoryBus(self.server, instance=f"quota-{name}")
        service = assemble(
            settings=SETTINGS, bus=bus, now=lambda: datetime.now(UTC), registry=registry
        )
        service.register_retries(bus, lambda: datetime.now(UTC))
        await bus.start()
        self._processes.append((asyncio.create_task(service.run()), bus))

    async def stop_quota(self) -> None:
        task, bus = self._processes.pop(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()

    async def close(self) -> None:
        while self._processes:
            await self.stop_quota()
        await self.bus.stop()

    async def cluster(
        self, *, cpus: int = 2, checks: Sequence[str] = (), cohort: str | None = None
    ) -> None:
        flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}
        group = {"coveredResources": ["cpu"], "flavors": [flavor]}
        queue: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group]}
        queue |= {"preemption": PREEMPTION, "cohortName": cohort}
        await self.observe(kinds.NAMESPACE, "team", {})
        for name in checks:
            await self.observe(kinds.ADMISSION_CHECK, name, {"controllerName": WINDOWS})
        queue["admissionChecksStrategy"] = {"admissionChecks": [{"name": n} for n in checks]}
        await self.observe(kinds.RESOURCE_FLAVOR, "f", {})
        await self.observe(kinds.CLUSTER_QUEUE, "cq", queue)
        await self.observe(kinds.LOCAL_QUEUE, "q", {"clusterQueue": "cq"}, namespace="team")
        await self.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))

    async def observe(
        self,
        kind: Kind,
        name: str,
        spec: dict[str, Any],
        *,
        namespace: str | None = None,
        deleted: bool = False,
    ) -> None:
        self._version += 1
        await self.bus.publish(
            observed(kind, name, spec, namespace, version=self._version, deleted=deleted)
        )

    async def workload(self, name: str, **more: Any) -> WorkloadState:
        state = workload(name, **({"queue": "q"} | more))
        await self.bus.publish(state)
        return state

    async def outcome(self, admission: Admission, action: str, result: Any, **more: Any) -> None:
        await self.bus.publish(outcome_of(admission, action, result, **more))

    async def log(self) -> list[Admission]:
        found = []
        async with aclosing(self.bus.replay("ADMISSIONS", "sluice.admission.>")) as items:
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                if (admission := read(item, Admission)) is not None:
                    found.append(admission)
        return found

    async def states(self, name: str) -> list[str]:
        return [a.state for a in await self.log() if a.name == name]

    async def last(self, name: str) -> Admission:
        return [a for a in await self.log() if a.name == name][-1]


PREEMPTION = {"withinClusterQueue": "LowerPriority"}


def outcome_of(admission: Admission, action: str, result: Any, **more: Any) -> Outcome:
    """What a patcher says of a decision about a workload of `team`."""
    return Outcome(
        cluster="hub", namespace="team", name=admission.name, uid=admission.uid,
        action=action, result=result, term=admission.term, number=admission.number,
        **{"at": NOON, **more},
    )  # fmt: skip


async def became(setup: Setup, name: str, state: str) -> None:
    async def yes() -> bool:
        return (await setup.states(name))[-1:] == [state]

    await eventually(yes)


class AskedBus(MemoryBus):
    """Counts how often it is asked how full a log is, and may not say."""

    says = True
    asked = 0

    async def log_end(self, stream: str) -> LogEnd:
        self.asked += 1
        if not self.says:
            raise UnavailableError("no answer")
        return await super().log_end(stream)


async def asked_again(bus: AskedBus) -> None:
    """Wait until each log was asked for twice: what is so now is known."""
    seen = bus.asked
    await eventually(lambda: bus.asked > seen + 6)


async def says(setup: Setup, name: str, what: str) -> None:
    """Wait until the explanation of a workload has these words."""

    async def so() -> bool:
        items = (await explained(setup, name)).items
        return any(what in item.message for item in items)

    await eventually(so)


async def explained(setup: Setup, name: str) -> ExplainAnswer:
    question = ExplainRequest(namespace="team", name=name).model_dump_json().encode()
    data = await setup.bus.request(
        ExplainRequest.subject, question, timeout_seconds=PATIENCE_SECONDS
    )
    return ExplainAnswer.model_validate_json(data)
