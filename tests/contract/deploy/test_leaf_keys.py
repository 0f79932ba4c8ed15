"""Leaf nodes whose key is retired, or whose spoke is left out, can do nothing; they are found and closed."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from services.ctl.admin.leaf_nodes import disconnect_retired
from services.ctl.doctor.bus import leaf_nodes
from services.ctl.setup.permissions import FILE, rendered
from shared.bus.admin.accounts import leaf_configuration
from shared.bus.admin.leaf_nodes import disconnect, without_key
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.jetstream_api import call
from shared.bus.stream_reader import open_stream_reader
from shared.settings.access import Access
from shared.settings.ports import reserve_port
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.attacks.ground import monitored
from tests.contract.deploy.test_nats import folder, three, user_of
from tests.contract.deploy.test_rotation import Installation, place

__all__ = ["folder", "place"]

SPOKES = ("--spoke", "west", "--spoke", "east")
DURABLE = "patcher-west-dispatch"
PULL = f"$JS.API.CONSUMER.MSG.NEXT.DISPATCHES_NOW.{DURABLE}"
ORDER = "sluice.dispatch.west.a.w"


Dial = Callable[[str, str], Awaitable["Leaf"]]
"""Spoke, and a name for the folder of its leaf node."""


class Leaf:
    """A spoke's own server, which dials the hub, and a client of it."""

    def __init__(self, server: EmbeddedServer, client: Client, spoke: str) -> None:
        self.server = server
        self.client = client
        self._lease = f"sluice.lease.watcher-{spoke}"

    async def works(self) -> bool:
        """Whether the hub stores what a spoke may write without the gateway."""
        try:
            answer = await self.client.request(self._lease, b"x", timeout=1)
        except (NatsError, TimeoutError):
            return False
        return "seq" in json.loads(answer.data)

    async def is_mute(self) -> bool:
        return not await self.works()

    @property
    def refused(self) -> bool:
        """Whether the hub has refused its key."""
        return "Authorization Violation" in self.server.log


def configured(own: Path, text: str) -> Path:
    own.mkdir()
    config = own / "leaf.conf"
    config.write_text(text)
    return config


@asynccontextmanager
async def leaf_node(own: Path, port: int, access: Access, spoke: str) -> AsyncIterator[Leaf]:
    """With the key that `access` names now."""
    config = configured(own, leaf_configuration(f"tls://127.0.0.1:{port}", access))
    server = await EmbeddedServer(own, config=config).start()
    try:
        client = await nats.connect(server.url)
        yield Leaf(server, client, spoke)
        await client.close()
    finally:
        await server.kill()


@pytest.fixture
async def dial(place: Installation) -> AsyncIterator[Dial]:
    """Has a spoke's leaf node connect with its present key."""
    async with AsyncExitStack() as stack:

        async def dialed(spoke: str, name: str) -> Leaf:
            made = leaf_node(
                place.folder / name, place.leaf_port, place.access(f"spoke-{spoke}"), spoke
            )
            leaf = await stack.enter_async_context(made)
            await eventually(leaf.works)
            return leaf

        place.permit(*SPOKES)
        await place.is_told()
        yield dialed


async def findings(place: Installation) -> list[str]:
    """What `sluice doctor` finds, as viewer."""
    async with open_stream_reader(place.server.url, access=place.access("viewer")) as reader:
        return [f"{one.where}: {one.problem}" for one in await leaf_nodes(reader)]


async def close_them(place: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `sluice bus disconnect` as operator."""
    access = place.access("operator")
    for name in ("nkey", "ca", "certificate", "private_key"):
        monkeypatch.setenv(f"SLUICE_NATS_{name.upper()}", str(getattr(access, name)))
    await disconnect_retired(url=place.server.url, directory=place.folder)


async def test_leaf_node_with_retired_key_can_do_nothing_is_found_and_closed(
    place: Installation,
    dial: Dial,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    former, east = await dial("west", "former"), await dial("east", "east")
    place.permit(*SPOKES, "--rotate", "spoke-west")
    await place.is_told()
    present = await dial("west", "present")
    assert await former.works(), "both keys are taken"
    assert await findings(place) == []
    place.permit(*SPOKES, "--retire", "spoke-west")
    await place.is_told()
    await eventually(former.is_mute)
    assert await present.works()
    assert await east.works()
    [found] = await findings(place)
    assert found.startswith("leaf node N")
    assert "its key is no longer accepted (SPOKE-west-" in found
    await close_them(place, monkeypatch)
    assert "closed (SPOKE-west-" in capsys.readouterr().out
    await eventually(lambda: former.refused, lambda: former.server.log)
    assert await findings(place) == []
    await close_them(place, monkeypatch)
    assert capsys.readouterr().out == "the key of every leaf node is accepted\n"
    assert (present.refused, east.refused) == (False, False)
    assert await present.works()
    assert await east.works()


async def test_leaf_node_of_revoked_spoke_that_is_closed_gets_nothing_that_it_asked_for_before(
    place: Installation, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    west, east = await dial("west", "west"), await dial("east", "east")
    operator = await nats.connect(place.server.url, **place.access("operator").options())
    await make_durable(operator)
    answers = await west.client.subscribe("answers")
    wanted = json.dumps({"batch": 10, "expires": 10**12}).encode()
    await west.client.publish(PULL, wanted, reply="answers")
    await operator.request(ORDER, b"before", timeout=PATIENCE_SECONDS)
    assert (await answers.next_msg(timeout=PATIENCE_SECONDS)).data == b"before"
    place.permit("--spoke", "east")
    await place.is_told()
    await eventually(west.is_mute)
    await close_them(place, monkeypatch)
    await eventually(lambda: west.refused, lambda: west.server.log)
    await operator.request(ORDER, b"after", timeout=PATIENCE_SECONDS)
    await eventually(partial(have_come, operator, 2))
    durable = await call(operator, f"CONSUMER.INFO.DISPATCHES_NOW.{DURABLE}", {})
    assert durable["delivered"]["consumer_seq"] == 1
    assert await east.works()
    await operator.close()


async def make_durable(operator: Client) -> None:
    """Make the durable of its patcher, as the gateway does."""
    config = {
        "name": DURABLE, "durable_name": DURABLE, "ack_policy": "explicit",
        "filter_subject": "sluice.dispatch.west.>",
    }  # fmt: skip
    body = {"stream_name": "DISPATCHES_NOW", "config": config, "action": ""}
    await call(operator, f"CONSUMER.CREATE.DISPATCHES_NOW.{DURABLE}", body)


async def have_come(operator: Client, orders: int) -> bool:
    """Whether the view from which it pulled has had so many."""
    info = await call(operator, "STREAM.INFO.DISPATCHES_NOW", {})
    return bool(info["state"]["last_seq"] >= orders)


async def test_leaf_nodes_of_all_three_servers_are_found_and_closed(folder: Path) -> None:
    ports = [(reserve_port(), reserve_port()) for _ in range(3)]
    replaced = [
        {"8222": str(monitor), "port: 7422": f"port: {port}", "host: 0.0.0.0": "host: 127.0.0.1"}
        for port, monitor in ports
    ]
    permissions = folder / "nats-permissions" / FILE
    give(permissions, folder, ("west",))
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(
            three(folder, components=("spokes",), replaced_at=replaced)
        )
        for number, (port, _) in enumerate(ports):
            own = folder / f"leaf-{number}"
            access = user_of(folder, "spoke-west")
            await stack.enter_async_context(leaf_node(own, port, access, "west"))
        await eventually(partial(counted, ports, 1))
        operator = await nats.connect(servers[0].url, **user_of(folder, "operator").options())
        assert await without_key(operator) == []
        give(permissions, folder, ())
        for server in servers:
            server.signal(signal.SIGHUP)
        await eventually(partial(found_at, operator, 3))
        for leaf in await without_key(operator):
            await disconnect(operator, leaf)
        await eventually(partial(counted, ports, 0))
        assert await without_key(operator) == []
        await operator.close()


def give(permissions: Path, folder: Path, spokes: tuple[str, ...]) -> None:
    permissions.write_text(rendered(folder / "keys", spokes)[0])


async def counted(ports: list[tuple[int, int]], number: int) -> bool:
    """Whether each server has so many leaf nodes."""
    said = await asyncio.gather(*(monitored(monitor, "leafz") for _, monitor in ports))
    return all(one["leafnodes"] == number for one in said)


async def found_at(operator: Client, servers: int) -> bool:
    return len({leaf.server for leaf in await without_key(operator)}) == servers
