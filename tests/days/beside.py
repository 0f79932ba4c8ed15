"""What runs beside the services of `make bench-days`, and is used: webhook, tracer and console.

The webhook reviews each job that comes, the tracer's collector takes all traces, and somebody looks at the
console's pages every hour. Left out are their sockets, and forecasts, which are played in a thread: a world
has none.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from random import Random

from services.classifier.cel import CelEngine
from services.classifier.rules import Rules, parse_rules
from services.classifier.webhook.namespace_defaults import NamespaceDefaults
from services.classifier.webhook.review import Outcome
from services.classifier.webhook.reviewing.reviewer import Reviewer
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from services.console import app as console
from services.console.access.reviews import AllowAll
from services.console.pages.trends import SPANS
from services.console.settings import ConsoleSettings
from services.simulator.scenarios.system import CLUSTER, RULES, System, set_up
from services.tracer.app import Tracer
from services.tracer.settings import TracerSettings
from shared.bus.port import Bus
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.contracts.refs import WorkloadRef
from shared.contracts.webhook import PATCHER_USER
from shared.telemetry.spans import Span
from shared.telemetry.traceparent import new_traceparent
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.world import ProcessContext

_Build = Callable[[System, ProcessContext, Bus], "ReviewingWebhook | Tracer | OpenConsole"]


class ReviewingWebhook:
    """The classifier's webhook without its server: what it knows, and its reviewer."""

    def __init__(self, bus: Bus, rules: Rules, new_trace: Callable[[], str]) -> None:
        self._bus = bus
        self._rules = rules
        self._defaults = NamespaceDefaults(cluster=CLUSTER, patchers=[PATCHER_USER])
        within = WithinBudget(new_traceparent=new_trace, context_of=self._defaults.context)
        self._reviewer = Reviewer(here=within)
        self.allowed = 0
        """Jobs that were let in."""

    async def run(self) -> None:
        """Follow what it has to know, until cancelled."""
        await self._defaults.follow(self._bus)

    async def review(self, kind: Kind, job: Body) -> None:
        """Answer the review of a job's creation."""
        request = {
            "uid": job["metadata"]["name"],
            "operation": "CREATE",
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "namespace": job["metadata"]["namespace"],
            "name": job["metadata"]["name"],
            "object": job,
        }
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        reply = await self._reviewer.mutate(json.dumps(body).encode(), self._rules, None)
        self.allowed += reply.outcome in (Outcome.MUTATED, Outcome.UNCHANGED)


class TakingCollector:
    """A collector that takes every trace."""

    def __init__(self) -> None:
        self.spans = 0

    async def export(self, spans: Sequence[Span]) -> bool:
        """Take all of them."""
        self.spans += len(spans)
        return True

    def close(self) -> None:
        """Nothing is open."""


class OpenConsole:
    """The console, and somebody who looks at every page each hour."""

    def __init__(self, running: console.Console, *, hour_seconds: float) -> None:
        self._running = running
        self._hour_seconds = hour_seconds
        self.rows = 0
        """Rows that were shown."""

    async def run(self) -> None:
        """Follow the streams, answer, and look, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._running.run())
            group.create_task(self._look_each_hour())

    async def _look_each_hour(self) -> None:
        while True:
            await asyncio.sleep(self._hour_seconds)
            await self._look()

    async def _look(self) -> None:
        queries, pages = self._running.queries, self._running.pages
        user = await queries.authenticate(None)
        workloads = (await queries.workloads(user)).items
        queues = (await queries.queues(user)).items
        self.rows += len(workloads) + len(queues)
        for span in SPANS:
            await pages.trend(user, span)
            for queue in queues:
                if queue.kind == "ClusterQueue":
                    await pages.use(user, CLUSTER, queue.name, span)
        for listing in (pages.alerts, pages.flavors, pages.spokes, pages.machines):
            await listing(user)
        for one in workloads[:1]:
            ref = WorkloadRef(CLUSTER, one.namespace, one.name)
            await pages.given(user, ref)
            self.rows += len((await pages.timeline(user, ref)).items)


class Beside:
    """The three in a world."""

    def __init__(self, system: System, *, hour_seconds: float) -> None:
        self._hour_seconds = hour_seconds
        self._running: dict[str, ReviewingWebhook | Tracer | OpenConsole] = {}
        self._taken = TakingCollector()
        for name, build in (
            ("webhook", self._webhook),
            ("tracer", self._tracer),
            ("console", self._console),
        ):
            self._serve(system, name, build)

    def _serve(self, system: System, name: str, build: _Build) -> None:
        async def start(context: ProcessContext) -> None:
            bus = MemoryBus(system.server, instance=context.instance, random=context.random)
            running = self._running[name] = build(system, context, bus)
            await bus.start()
            await running.run()

        system.world.process(f"{name}-1", start)

    async def review(self, kind: Kind, job: Body) -> None:
        """Let the webhook review a job that is created."""
        webhook = self._running["webhook"]
        assert isinstance(webhook, ReviewingWebhook)
        await webhook.review(kind, job)

    def problems(self, submitted: int) -> list[str]:
        """What they did not do."""
        webhook, shown = self._running["webhook"], self._running["console"]
        assert isinstance(webhook, ReviewingWebhook)
        assert isinstance(shown, OpenConsole)
        found = []
        if webhook.allowed != submitted:
            found.append(f"the webhook let {webhook.allowed} of {submitted} jobs in")
        if not self._taken.spans:
            found.append("the collector got no trace")
        if not shown.rows:
            found.append("the console showed nothing")
        return found

    @staticmethod
    def _webhook(_system: System, context: ProcessContext, bus: Bus) -> ReviewingWebhook:
        return ReviewingWebhook(
            bus, parse_rules(RULES, CelEngine()), partial(_new_trace, context.random, context.now)
        )

    def _tracer(self, _system: System, context: ProcessContext, bus: Bus) -> Tracer:
        settings = set_up(TracerSettings, context)
        return Tracer(
            bus=bus,
            collector=self._taken,
            now=context.now,
            settle_seconds=settings.trace_settle_seconds,
        )

    def _console(self, system: System, context: ProcessContext, bus: Bus) -> OpenConsole:
        settings = set_up(ConsoleSettings, context, cluster=CLUSTER, console_idle_seconds=0)
        running = console.assemble(
            settings=settings,
            bus=bus,
            now=context.now,
            access=AllowAll(),
            configuration=system.configuration,
        )
        return OpenConsole(running, hour_seconds=self._hour_seconds)


def _new_trace(random: Random, now: Callable[[], datetime]) -> str:
    return new_traceparent(random, now())
