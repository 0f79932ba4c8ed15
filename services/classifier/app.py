"""Builds the classifier. The only module that knows all of its parts."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import structlog

from services.classifier.cel import CelEngine
from services.classifier.projection.handlers import Projection
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.rules.reload import follow_rules
from services.classifier.rules.rules import RulesHolder
from services.classifier.settings import ClassifierSettings
from services.classifier.webhook.app import webhook_app
from services.classifier.webhook.namespace_defaults import Vicinity
from services.classifier.webhook.tracing import trace_review
from shared.bus.port import Bus
from shared.runtime.certificates import CertificateFolder
from shared.runtime.host import Parts, run_service
from shared.runtime.web import WebServer
from shared.settings.configuration import read_configuration
from shared.telemetry.tracing import new_traceparent

__all__ = ["Classifier", "assemble", "main", "not_ready"]

log = structlog.get_logger(__name__)


class Classifier:
    """Projects what was observed; beside it `main` runs the webhook."""

    def __init__(
        self,
        projection: Projection,
        webhook_ready: Callable[[], str | None],
        follow: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._projection = projection
        self._webhook_ready = webhook_ready
        self._follow = follow

    async def run(self) -> None:
        """Project, and follow what the webhook must know, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._projection.run())
            if self._follow is not None:
                group.create_task(self._follow())

    def ready(self) -> str | None:
        """Ready when the webhook can answer: the projection catches up by itself."""
        return self._webhook_ready()


def assemble(
    *,
    bus: Bus,
    now: Callable[[], datetime],
    policy: Policy = DEFAULT_POLICY,
    webhook_ready: Callable[[], str | None] = lambda: None,
    vicinity: Vicinity | None = None,
) -> Classifier:
    """Wire the parts. Opens nothing. `vicinity`: what the webhook knows, where there is a webhook."""
    projection = Projection(bus=bus, now=now, policy=policy)
    follow = None if vicinity is None else partial(vicinity.follow, bus)
    return Classifier(projection, webhook_ready, follow)


def main() -> int:
    """Entry point of `sluice run classifier`."""
    settings = ClassifierSettings()

    def now() -> datetime:
        return datetime.now(UTC)

    def build(parts: Parts) -> Classifier:
        policy = Policy.of(read_configuration(settings.configuration))
        if settings.classifier_config is None:
            return assemble(bus=parts.bus, now=now, policy=policy)
        vicinity = Vicinity(
            cluster=settings.cluster, policy=policy, job_default_queue=settings.job_default_queue
        )
        rules = RulesHolder(CelEngine(), last_good=settings.last_good_rules)
        rules.restore()
        random = SystemRandom()
        server = WebServer(
            webhook_app(
                rules,
                new_traceparent=lambda: new_traceparent(random, now()),
                place_of=vicinity.place,
                traced=partial(trace_review, parts.tracing, now),
            ),
            host=settings.webhook_host,
            port=settings.webhook_port,
            certificates=CertificateFolder(settings.webhook_certificates, settings.webhook_names),
            now=now,
        )
        parts.beside(_webhook(server))
        parts.beside(_rules(rules, settings.classifier_config / "config.yaml"))
        parts.on_stop(server.stop)
        return assemble(
            bus=parts.bus,
            now=now,
            policy=policy,
            webhook_ready=lambda: not_ready(rules, server),
            vicinity=vicinity,
        )

    return run_service("classifier", settings, build, ready_without_bus=True)


def _webhook(server: WebServer) -> Callable[[], Awaitable[None]]:
    async def serve() -> None:
        port = await server.start()
        log.info("webhook listens", port=port)
        await asyncio.Event().wait()

    return serve


def _rules(rules: RulesHolder, path: Path) -> Callable[[], Awaitable[None]]:
    async def follow() -> None:
        await follow_rules(rules, path)

    return follow


def not_ready(rules: RulesHolder, server: WebServer) -> str | None:
    """Why the webhook cannot answer; None when it can."""
    if rules.current is None:
        return f"no rules in force: {rules.error or 'not read yet'}"
    return None if server.listening else "the webhook does not listen yet"
