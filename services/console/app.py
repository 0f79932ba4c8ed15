"""Builds the console from its parts and runs it. This is the only module that reads the clock."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Final

import structlog
from starlette.applications import Starlette

from services.classifier.projection.policy import Policy
from services.console.access.reviews import AllowAll, KubeReviewer, Reviewer
from services.console.access.shares import share
from services.console.http.aggregation import AggregatedServer
from services.console.http.handlers import console_app
from services.console.http.sign_in import SignIn
from services.console.metrics import CONNECTIONS_REFUSED
from services.console.nats_api import console_service
from services.console.pages.service import PageService
from services.console.pages.timeline import Links
from services.console.query_service import SIMULATION_LIMITS, QueryService
from services.console.settings import ConsoleSettings
from services.console.view import View
from services.quota.queries.replica import ReadReplica
from shared.bus.nats.answering.nats_service import NatsService
from shared.bus.port import Bus
from shared.kube.client import HttpKube
from shared.runtime.certificates import CertificateFolder
from shared.runtime.connections import ConnectionLimits
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts, Program, utc_now
from shared.runtime.web import WebServer
from shared.settings.configuration import Configuration, read_configuration

log = structlog.get_logger(__name__)

STOP_SECONDS: Final = 1
"""How long a stop waits for open connections. Event streams never end by themselves; a page reconnects."""

PER_ADDRESS_BESIDE_STREAMS: Final = 100
"""Connections for questions, where one proxy holds all live streams."""


class Console:
    """Follows the streams and answers over NATS. `main` runs the HTTP server beside it."""

    def __init__(
        self,
        *,
        bus: Bus,
        queries: QueryService,
        service: NatsService,
        listening: Callable[[], bool],
        pages: PageService,
    ) -> None:
        self._bus = bus
        self._service = service
        self._listening = listening
        self.queries = queries
        self.pages = pages

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queries.view.run())
            group.create_task(self._service.serve(self._bus))
            group.create_task(self.pages.trends.run())

    def ready(self) -> str | None:
        """None once the server listens. The streams are read only when somebody asks."""
        return None if self._listening() else "the console does not listen yet"


def assemble(
    *,
    settings: ConsoleSettings,
    bus: Bus,
    now: Callable[[], datetime],
    access: Reviewer,
    configuration: Configuration | None = None,
    listening: Callable[[], bool] = lambda: True,
) -> Console:
    """Wire the parts. Opens no connection."""
    view = View(
        bus=bus,
        now=now,
        new_replica=lambda: ReadReplica(configuration=configuration),
        idle_seconds=settings.console_idle_seconds,
    )
    limits = SIMULATION_LIMITS
    if settings.console_authorization == "none":  # There is one user, who has nobody to share with.
        limits = replace(limits, of_user=limits.most)
    queries = QueryService(
        view=view,
        access=access,
        cluster=settings.cluster,
        policy=Policy.of(configuration or Configuration()),
        simulation_seconds=settings.console_simulation_seconds,
        simulation_limits=limits,
    )
    service = console_service(queries, version=version("sluicegate"), started=now())
    links = Links(trace=settings.console_trace_url, job=settings.console_job_url)
    pages = PageService(
        queries=queries, bus=bus, links=links, prometheus=settings.console_prometheus_url
    )
    return Console(bus=bus, queries=queries, service=service, listening=listening, pages=pages)


def program(overrides: Overrides = NO_OVERRIDES) -> Program:
    """The console as `sluice run` starts it, set by the environment and by `overrides`."""
    settings = ConsoleSettings(**overrides)
    configuration = read_configuration(settings.configuration)

    def build(parts: Parts) -> Console:
        kube = _kube(parts, settings)
        listening: list[WebServer] = []
        console = assemble(
            settings=settings,
            bus=parts.bus,
            now=utc_now,
            access=AllowAll() if kube is None else KubeReviewer(kube),
            configuration=configuration,
            listening=lambda: bool(listening) and listening[0].listening,
        )
        folder = settings.console_certificates
        certificates = None if folder is None else CertificateFolder(folder, settings.console_names)
        new_server = partial(
            WebServer,
            host=settings.console_host,
            now=utc_now,
            certificates=certificates,
            limits=connection_limits(settings),
            stop_seconds=STOP_SECONDS,
        )
        server = new_server(_asgi_app(console, settings), port=settings.console_port)
        listening.append(server)
        if settings.console_visibility_port is not None and certificates and kube:
            at_its_port = partial(new_server, port=settings.console_visibility_port)
            parts.beside(AggregatedServer(console.queries, kube, at_its_port).run)
        parts.beside(_listen(server, settings.console_host, tls=certificates is not None))
        parts.on_stop(server.stop)
        return console

    return Program(name="console", settings=settings, build=build)


def connection_limits(settings: ConsoleSettings) -> ConnectionLimits:
    """What connections may cost before anybody has shown a token."""
    of_address = settings.console_connections_per_address
    return ConnectionLimits(
        per_address_max=of_address or settings.console_streams + PER_ADDRESS_BESIDE_STREAMS,
        on_refused=lambda rule: CONNECTIONS_REFUSED.labels(cause=rule.label).inc(),
    )


def main() -> int:
    """Entry point of `sluice run console`."""
    return run_service(program())


def _kube(parts: Parts, settings: ConsoleSettings) -> HttpKube | None:
    """The API server that authorizes users; None: authorization is off."""
    if settings.console_authorization != "kubernetes":
        log.warning(
            "no authorisation: everybody on this machine sees everything",
            console_authorization=settings.console_authorization,
        )
        return None
    kube = HttpKube.for_service(settings.kubeconfig, settings.kube_context)
    parts.on_stop(kube.close)
    return kube


def _asgi_app(console: Console, settings: ConsoleSettings) -> Starlette:
    sign_in = SignIn(
        issuer=settings.console_oidc_issuer,
        client_id=settings.console_oidc_client_id,
        scopes=settings.console_oidc_scopes,
        origins=settings.console_oidc_origins,
    )
    streams, alone = settings.console_streams, settings.console_authorization == "none"
    return console_app(
        console.queries,
        console.pages,
        streams_max=streams,
        streams_per_user=None if alone else settings.console_streams_per_user or share(streams),
        local_only=alone,
        sign_in=sign_in,
    )


def _listen(server: WebServer, host: str, *, tls: bool) -> Callable[[], Awaitable[None]]:
    async def serve() -> None:
        port = await server.start()
        log.info("console listens", url=f"{'https' if tls else 'http'}://{host}:{port}/")
        await asyncio.Event().wait()

    return serve
