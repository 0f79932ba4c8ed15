"""Listens for the API server, which hands on what its users ask of Kueue's visibility API (an APIService)."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog
from starlette.requests import Request

from services.console.access.front_proxy import FrontProxy, read_front_proxy
from services.console.access.reviews import User
from services.console.http.handlers import visibility_app
from services.console.query_service import QueryService
from shared.kube.port import Kube, KubeError
from shared.runtime.connections import CLIENT_NAME
from shared.runtime.web import WebServer

log = structlog.get_logger(__name__)

REREAD_SECONDS: Final = 600.0
"""How long a changed authority of the API server may go unnoticed: it changes once in years."""

RETRY_SECONDS: Final = 10.0


class AggregatedServer:
    """One listener, which starts anew where the API server says something else of itself."""

    def __init__(
        self,
        queries: QueryService,
        kube: Kube,
        new_server: Callable[..., WebServer],
        *,
        reread_seconds: float = REREAD_SECONDS,
    ) -> None:
        """`new_server`: makes one that speaks TLS, from an application and `client_authority`."""
        self._queries = queries
        self._kube = kube
        self._new_server = new_server
        self._reread_seconds = reread_seconds
        self._server: WebServer | None = None
        self._believed: FrontProxy | None = None
        self.port: int | None = None
        """None while it does not listen."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(RETRY_SECONDS if self.port is None else self._reread_seconds)
        finally:
            await self._close()

    async def _look(self) -> None:
        try:
            found = await read_front_proxy(self._kube)
        except (KubeError, ValueError) as error:
            log.error("cannot read how the API server vouches for its users", error=str(error))
            return
        if found == self._believed:
            return
        await self._close()
        self._server = self._new_server(
            visibility_app(self._queries, identify=self._identify(found)),
            client_authority=found.authority,
        )
        self.port = await self._server.start()
        self._believed = found
        log.info("console listens for the API server", port=self.port)

    def _identify(self, proxy: FrontProxy) -> Callable[[Request], Any]:
        async def identify(request: Request) -> User:
            certificate = getattr(request.state, CLIENT_NAME, None)
            user = proxy.user(certificate, request.headers)
            await self._queries.wait_until_read()
            return user

        return identify

    async def _close(self) -> None:
        server, self._server, self._believed, self.port = self._server, None, None, None
        if server is not None:
            await server.stop()
