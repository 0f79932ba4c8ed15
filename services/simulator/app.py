"""Builds the simulator from its parts. The only module that reads the real clock."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

import yaml

from services.simulator.behaviour.manager import ControllerManager
from services.simulator.cluster.api import Api
from services.simulator.http.application import Application
from services.simulator.http.server import HOST, Server
from services.simulator.http.webhooks import ServiceAddresses, Webhooks
from services.simulator.journal import Journal
from shared.contracts.simulation import PATCHER_CONTEXT
from shared.contracts.webhook import PATCHER_USER

CONTEXT: Final = "simulator"


class Simulator:
    """A whole cluster in this process: an API server and the controllers that act on it."""

    def __init__(
        self,
        *,
        host: str = HOST,
        port: int = 0,
        known_as: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
        certificate: Path | None = None,
        key: Path | None = None,
        behaviour: bool = True,
        services: ServiceAddresses | None = None,
        journal: Path | None = None,
    ) -> None:
        """Build everything without opening a file or a port, except the journal.

        With `speed` 60 a simulated minute takes a second. `services` has the addresses of the Services
        that webhook configurations name, because there is no pod network. `host` is the interface to
        listen on, `known_as` the host name in URLs. `journal` is a file that keeps the objects over a
        restart of the process.
        """
        random = Random(seed)
        self.api = Api(now=_now, random=random)
        self._journal = None if journal is None else Journal(journal, self.api)
        if self._journal is not None and (version := self._journal.open()):
            # The same seed would draw uids that are in use.
            random.seed(f"{seed}/{version}")
        self.behaviour = (
            ControllerManager(self.api, random=random, speed=speed) if behaviour else None
        )
        self._webhooks = Webhooks(self.api, random=random, services=services or {})
        self.application = Application(self.api, now=_now)
        self._server = Server(
            self.application,
            host=host,
            port=port,
            known_as=known_as,
            certificate=certificate,
            key=key,
        )
        self._authority = certificate

    @property
    def url(self) -> str:
        """URL of the API server; valid after `start`."""
        return self._server.url

    def kubeconfig(self) -> str:
        """Return a kubeconfig for this API server, with a context for the patcher's service account."""
        cluster: dict[str, object] = {"server": self.url}
        if self._authority is not None:
            cluster["certificate-authority"] = str(self._authority)
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": CONTEXT, "cluster": cluster}],
                "users": [
                    {"name": CONTEXT, "user": {}},
                    {"name": PATCHER_CONTEXT, "user": {"token": PATCHER_USER}},
                ],
                "contexts": [
                    {"name": name, "context": {"cluster": CONTEXT, "user": name}}
                    for name in (CONTEXT, PATCHER_CONTEXT)
                ],
                "current-context": CONTEXT,
            }
        )

    async def start(self) -> None:
        """Start the server and the controllers; return when requests are answered."""
        self._webhooks.start()
        await self._server.start()
        if self.behaviour is not None:
            self.behaviour.start()

    async def stop(self) -> None:
        """Stop the controllers and the server, and close the journal."""
        if self.behaviour is not None:
            await self.behaviour.stop()
        await self._server.stop()
        await self._webhooks.stop()
        if self._journal is not None:
            self._journal.close()

    async def restart(self, *, down_seconds: float = 0.0, forget_events: bool = False) -> None:
        """Stop the API server and start it again under the same URL, with the same objects.

        The controllers keep running. With `forget_events` no client can resume an earlier watch.
        """
        await self._server.stop()
        await asyncio.sleep(down_seconds)
        if forget_events:
            self.api.store.forget_events()
        await self._server.start()


def _now() -> datetime:
    return datetime.now(UTC)
