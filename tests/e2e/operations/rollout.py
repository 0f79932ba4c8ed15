"""Plays the Deployment controller for the processes of `sluice dev`: updates them, one after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from services.ctl.dev.app import START_SECONDS
from services.ctl.dev.readiness import HOST, answers
from services.ctl.dev.supervisor import ChildSpec, Supervisor
from services.ctl.programs import SERVICES, Program
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from shared.kube.client import HttpKube
from shared.settings.ports import reserve_port

RECREATED: Final = Program.PATCHER
"""Stopped before the next one starts, as its Deployment says; of the others the next one starts first."""

DOUBLE: Final = (Program.QUOTA, Program.CLASSIFIER)
"""With two replicas, as in deploy/kubernetes/base."""

CHUNK_BYTES: Final = 1 << 16
WEBHOOK_PORT: Final = "SLUICE_WEBHOOK_PORT"


@dataclass(slots=True)
class Service:
    """A Kubernetes Service: new connections lead to the first backend that takes them."""

    ports: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for port in tuple(self.ports):
            with suppress(OSError):
                upstream, out = await asyncio.open_connection(HOST, port)
                await asyncio.gather(_copy(reader, out), _copy(upstream, writer))
                return
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


class Rollout:
    """The replicas of each program, and how all are replaced."""

    def __init__(self, supervisor: Supervisor, webhook: Service) -> None:
        self._supervisor = supervisor
        self._webhook = webhook
        self._specs: dict[Program, ChildSpec] = {
            program: supervisor._children[program.value].spec  # What `sluice dev` started it with.
            for program in SERVICES
        }
        self._replicas: dict[Program, list[ChildSpec]] = {
            program: [spec] for program, spec in self._specs.items()
        }
        webhook.ports.append(int(self._specs[Program.CLASSIFIER].environment[WEBHOOK_PORT]))

    async def scale(self) -> None:
        """Start the second replicas."""
        for program in DOUBLE:
            await self._start(program)

    async def replace_all(self) -> None:
        """New processes for all, one after the other, as `kubectl apply` of another image does."""
        for program, replicas in self._replicas.items():
            for old in tuple(replicas):
                if program is RECREATED:
                    await self._stop(program, old)
                await self._start(program)
                if program is not RECREATED:
                    await self._stop(program, old)

    async def _start(self, program: Program) -> None:
        first, replicas = self._specs[program], self._replicas[program]
        health, webhook, console = (reserve_port() for _ in range(3))
        spec = replace(
            first,
            name=f"{program.value}-{health}",
            environment={
                **first.environment,
                "SLUICE_INSTANCE": f"dev-{health}",
                "SLUICE_HEALTH_PORT": str(health),
                WEBHOOK_PORT: str(webhook),
                "SLUICE_CONSOLE_PORT": str(console),
            },
            ready=answers(health),
        )
        self._supervisor.start(spec)
        await self._supervisor.wait_ready([spec.name], timeout_seconds=START_SECONDS)
        replicas.append(spec)
        if program is Program.CLASSIFIER:
            self._webhook.ports.append(webhook)

    async def _stop(self, program: Program, spec: ChildSpec) -> None:
        if program is Program.CLASSIFIER:
            self._webhook.ports.remove(int(spec.environment[WEBHOOK_PORT]))
        await self._supervisor.drop(spec.name)
        self._replicas[program].remove(spec)


async def lead_webhooks_to(kube: HttpKube, port: int) -> None:
    """Let the API server ask this port of this machine."""
    for kind in (MUTATING_WEBHOOK, VALIDATING_WEBHOOK):
        for one in (await kube.list(kind)).items:
            hooks = [
                {"op": "replace", "path": f"/webhooks/{number}/clientConfig/url", "value": url}
                for number, hook in enumerate(one["webhooks"])
                for url in [_moved(hook["clientConfig"]["url"], port)]
            ]
            await kube.patch(kind, None, one["metadata"]["name"], hooks)


def _moved(url: str, port: int) -> str:
    path = url.rpartition("/")[2]
    return f"https://{HOST}:{port}/{path}"
