"""Builds the classifier. The only module that knows all of its parts."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import structlog
from starlette.applications import Starlette

from services.classifier.cel import CelEngine
from services.classifier.evaluation.budget import Budget
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.metrics import REVIEWS_REFUSED
from services.classifier.projection.handlers import Projection
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.rules import CONFIGURATION_FILE
from services.classifier.rules.holder import RulesHolder, follow_rules
from services.classifier.settings import ClassifierSettings
from services.classifier.webhook.app import webhook_app
from services.classifier.webhook.namespace_defaults import NamespaceDefaults
from services.classifier.webhook.reviewing.reviewer import Reviewer
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from services.classifier.webhook.tracing import trace_review
from shared.bus.port import Bus
from shared.runtime.certificates import CertificateFolder
from shared.runtime.connections import ConnectionLimits
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.runtime.web import WebServer
from shared.settings.configuration import read_configuration
from shared.telemetry.traceparent import new_traceparent

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 60.0
"""For a request from its headers to the last byte of its answer: an API server waits 30 at most."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """The parts that need the bus. `main` runs the webhook's server beside them."""

    runners: tuple[Callable[[], Coroutine[Any, Any, None]], ...]
    webhook_ready: Callable[[], str | None]

    async def run(self) -> None:
        """Run all parts until cancelled."""
        async with asyncio.TaskGroup() as group:
            for runner in self.runners:
                group.create_task(runner())

    def ready(self) -> str | None:
        """Return why the webhook is not ready, or None. The projection catches up by itself."""
        return self.webhook_ready()


def assemble(
    *,
    bus: Bus,
    cluster: str,
    policy: Policy = DEFAULT_POLICY,
    webhook_ready: Callable[[], str | None] = lambda: None,
    namespace_defaults: NamespaceDefaults | None = None,
) -> Classifier:
    """Connect the parts; open no connection.

    `cluster`: of the hub. `namespace_defaults`: None without a webhook.
    """
    projection = Projection(bus=bus, cluster=cluster, policy=policy)
    if namespace_defaults is None:
        return Classifier((projection.run,), webhook_ready)
    return Classifier((projection.run, partial(namespace_defaults.follow, bus)), webhook_ready)


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The classifier as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = ClassifierSettings(**overrides)

    def build(parts: Parts) -> Classifier:
        policy = Policy.of(read_configuration(settings.configuration))
        if settings.classifier_config is None:
            return assemble(bus=parts.bus, cluster=settings.cluster, policy=policy)
        return _with_webhook(parts, settings, policy, settings.classifier_config)

    return Program(name="classifier", settings=settings, build=build, ready_without_bus=True)


def _with_webhook(
    parts: Parts, settings: ClassifierSettings, policy: Policy, configuration: Path
) -> Classifier:
    """Build the classifier and its webhook, with the rules in the folder `configuration`."""
    namespace_defaults = NamespaceDefaults(
        cluster=settings.cluster,
        policy=policy,
        job_default_queue=settings.job_default_queue,
        patchers=settings.patcher_users,
        request_editors=settings.request_editors,
    )
    rules = RulesHolder(CelEngine(), last_good=settings.last_good_rules)
    rules.restore()
    pool = EvaluationPool(
        cpu_seconds=settings.webhook_cpu_seconds,
        memory_bytes=settings.webhook_memory_bytes,
        bytes_waiting_max=settings.webhook_bytes_in_flight // 2,
    )
    app = webhook_app(
        rules,
        reviewer=_reviewer(settings, pool, namespace_defaults),
        bytes_in_flight_max=settings.webhook_bytes_in_flight,
        body_seconds=settings.webhook_body_seconds,
        on_mutation=partial(trace_review, parts.tracing, utc_now),
    )
    server = _web_server(settings, app)
    parts.beside(partial(_serve, server, pool))
    parts.beside(partial(follow_rules, rules, configuration / CONFIGURATION_FILE))
    parts.on_stop(server.stop)
    parts.on_stop(pool.close)
    return assemble(
        bus=parts.bus,
        cluster=settings.cluster,
        policy=policy,
        webhook_ready=partial(why_not_ready, rules, server),
        namespace_defaults=namespace_defaults,
    )


def _reviewer(
    settings: ClassifierSettings, pool: EvaluationPool, namespace_defaults: NamespaceDefaults
) -> Reviewer:
    random = SystemRandom()
    here = WithinBudget(
        budget=Budget(
            values_max=settings.webhook_values,
            expression_values_max=settings.webhook_expression_values,
            items_max=settings.webhook_items,
        ),
        new_traceparent=lambda: new_traceparent(random, utc_now()),
        context_of=namespace_defaults.context,
    )
    return Reviewer(here=here, pool=pool)


def _web_server(settings: ClassifierSettings, app: Starlette) -> WebServer:
    return WebServer(
        app,
        limits=ConnectionLimits(
            connections_max=settings.webhook_connections,
            per_address_max=settings.webhook_connections_per_address,
            header_seconds=settings.webhook_header_seconds,
            request_seconds=REQUEST_SECONDS,
            on_refused=lambda rule: REVIEWS_REFUSED.labels(cause=rule.label).inc(),
        ),
        host=settings.webhook_host,
        port=settings.webhook_port,
        certificates=CertificateFolder(settings.webhook_certificates, settings.webhook_names),
        now=utc_now,
    )


def main() -> int:
    """Entry point of `sluice run classifier`."""
    return run_service(program())


async def _serve(server: WebServer, pool: EvaluationPool) -> None:
    pool.start()
    port = await server.start()
    log.info("webhook listens", port=port)
    await asyncio.Event().wait()


def why_not_ready(rules: RulesHolder, server: WebServer) -> str | None:
    """Return why the webhook cannot answer, or None if it can."""
    if rules.current is None:
        return f"no rules in force: {rules.error or 'not read yet'}"
    return None if server.listening else "the webhook does not listen yet"
