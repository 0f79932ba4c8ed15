"""Hub and spoke as they are deployed: who is there, who gets in, and that a spoke's pair reaches the hub."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from services.ctl.setup.permissions import FILE, key_file, rendered
from shared.bus.admin.accounts import leaf_configuration
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import BusError, UnavailableError
from shared.bus.spoke_gateway import SpokeGateway
from shared.contracts.messages.spokes import Heartbeat
from shared.settings.access import Access
from shared.settings.ports import reserve_port
from shared.testing.waiting import eventually
from tests.contract.deploy.network import Outside, allows
from tests.contract.deploy.rendering import Json, kustomized, named, pods
from tests.contract.deploy.test_nats import folder, mounted

__all__ = ["folder"]

OPEN = ("spokes",)
SPOKE = "spoke-1"
ABROAD = Outside("spoke", {})
BEAT = f"sluice.beat.{SPOKE}._._"
SECONDS = 600


def test_spoke_has_watcher_and_patcher_and_no_service() -> None:
    documents = kustomized("spoke")
    assert pods(documents).keys() == {"watcher", "patcher"}
    assert [d for d in documents if d["kind"] in {"Service", "MutatingWebhookConfiguration"}] == []
    told = next(
        d["data"]
        for d in documents
        if d["kind"] == "ConfigMap" and d["metadata"]["name"].startswith("sluicegate-")
    )
    assert told["SLUICE_CLUSTER"] == SPOKE
    assert told["NATS_URL"].startswith("tls://")


def policies(documents: tuple[Json, ...]) -> list[Json]:
    return [one for one in documents if one["kind"] == "NetworkPolicy"]


def test_spoke_pods_may_connect_out_and_accept_no_connection() -> None:
    documents = kustomized("spoke")
    hub = Outside("hub", {"nats": 4222})
    for pod in pods(documents).values():
        assert allows(policies(documents), pod, hub, 4222, "TCP")
        assert not allows(policies(documents), hub, pod, 8081, "TCP")


def test_hub_accepts_connections_of_spokes_at_nats_only() -> None:
    closed, opened = kustomized("hub"), kustomized("hub", OPEN)
    for name, pod in pods(opened).items():
        for port in pod.ports.values():
            before = allows(policies(closed), ABROAD, pods(closed).get(name, pod), port, "TCP")
            now = allows(policies(opened), ABROAD, pod, port, "TCP")
            assert now == (before or (name == "nats" and port in {4222, 7422})), (name, port)
    service = named(opened)["Service", "nats-spokes"]["spec"]
    there = pods(opened)["nats"].ports.keys()
    assert {port["targetPort"] for port in service["ports"]} == {"client", "leafnodes"} <= there


@asynccontextmanager
async def hub(folder: Path) -> AsyncIterator[tuple[EmbeddedServer, Access, int]]:
    """The server that a hub with spokes runs, its door kept; how the spoke proves itself; the leaf port."""
    leaf_port = reserve_port()
    replaced = {
        "/etc/nats-tls": str(folder / "tls"), "$POD_NAME": "nats-0", "8222": "-1",
        "port: 7422": f"port: {leaf_port}", "host: 0.0.0.0": "host: 127.0.0.1",
    }  # fmt: skip
    entry = mounted(folder, OPEN, replaced)
    configuration, _ = rendered(folder / "keys", (SPOKE,))
    (folder / "nats-permissions" / FILE).write_text(configuration)
    tls = folder / "tls"
    access = Access(
        nkey=key_file(folder / "keys", f"spoke-{SPOKE}"),
        ca=tls / "ca.crt",
        certificate=tls / "tls.crt",
        private_key=tls / "tls.key",
    )
    server = await EmbeddedServer(folder, config=entry).start()
    door = bus(server.url, replace(access, nkey=key_file(folder / "keys", "dispatcher")), "door")
    try:
        await apply_at(server.url, access=replace(access, nkey=key_file(folder / "keys", "bus")))
        await door.start()
        keeping = asyncio.create_task(SpokeGateway(door).run())
        try:
            yield server, access, leaf_port
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await door.stop()
    finally:
        await server.kill()


def bus(url: str, access: Access, instance: str) -> NatsBus:
    return NatsBus(url=url, instance=instance, access=access, now=lambda: datetime.now(UTC))


async def heard(one: NatsBus, number: int) -> bool:
    """Say that the spoke lives, and read it again through the door."""
    await one.publish(
        Heartbeat(spoke=SPOKE, instance="patcher", number=number, at=datetime.now(UTC))
    )
    entry = await one.latest("SPOKES", BEAT)
    return entry is not None and Heartbeat.decode(entry.data).number == number


async def test_spoke_connects_with_its_key_and_the_certificate_of_the_hub(folder: Path) -> None:
    async with asyncio.timeout(SECONDS), hub(folder) as (server, access, _):
        spoke = bus(server.url, access, "spoke")
        await spoke.start()
        assert await heard(spoke, 1)
        await spoke.stop()
        with pytest.raises(UnavailableError):
            await apply_at(server.url, access=replace(access, nkey=None))


async def test_leaf_node_of_a_spoke_connects_with_its_key(folder: Path) -> None:
    async with asyncio.timeout(SECONDS), hub(folder) as (_, access, leaf_port):
        own = folder / "leaf"
        own.mkdir()
        config = own / "leaf.conf"
        config.write_text(leaf_configuration(f"tls://127.0.0.1:{leaf_port}", access))
        server = await EmbeddedServer(own, config=config).start()
        try:
            spoke = bus(server.url, Access(), "spoke")
            await spoke.start()
            await eventually(lambda: reached(spoke))
            await spoke.stop()
        finally:
            await server.kill()


async def reached(spoke: NatsBus) -> bool:
    """Whether the leaf node has found its hub."""
    try:
        return await heard(spoke, 2)
    except BusError:
        return False
