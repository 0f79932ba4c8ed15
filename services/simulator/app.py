"""Builds the simulator. The only module that knows all of its parts, and the only clock."""

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

__all__ = ["Simulator"]

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
        """Open nothing yet.

        `speed` 60 makes a simulated minute last a second. `services` says where the Services are
        that webhook configurations name; there is no network of pods here. It listens on the loopback
        interface only, unless `host` says otherwise; `known_as` is then its name for others.
        `journal` is a file from which a simulator goes on where one that died left off.
        """
        random = Random(seed)
        self.api = Api(now=_now, random=random)
        self._journal = None if journal is None else Journal(journal, self.api)
        if self._journal is not None and (version := self._journal.open()):
            # The same seed again would give uids that are taken.
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
        """Where the API server is. Known once it has started."""
        return self._server.url

    def kubeconfig(self) -> str:
        """Return a kubeconfig that leads here."""
        cluster: dict[str, object] = {"server": self.url}
        if self._authority is not None:
            cluster["certificate-authority"] = str(self._authority)
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": CONTEXT, "cluster": cluster}],
                "users": [{"name": CONTEXT, "user": {}}],
                "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
                "current-context": CONTEXT,
            }
        )

    async def start(self) -> None:
        """Serve. Returns when requests are answered."""
        self._webhooks.start()
        await self._server.start()
        if self.behaviour is not None:
            self.behaviour.start()

    async def stop(self) -> None:
        """Stop everything that was started."""
        if self.behaviour is not None:
            await self.behaviour.stop()
        await self._server.stop()
        await self._webhooks.stop()
        if self._journal is not None:
            self._journal.close()

    async def restart(self, *, down_seconds: float = 0.0, forget_events: bool = False) -> None:
        """Let the API server go down and come back under the same URL, with the same objects.

        The controllers go on meanwhile. With `forget_events` nobody can resume a watch from before.
        """
        await self._server.stop()
        await asyncio.sleep(down_seconds)
        if forget_events:
            self.api.store.forget_events()
        await self._server.start()


def _now() -> datetime:
    return datetime.now(UTC)
