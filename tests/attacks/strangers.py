"""Attacks of whoever reaches the ports of NATS (T4), and of a client that poses as a server."""

import asyncio
from collections.abc import Iterator

from nats.errors import Error as NatsError

from services.ctl.setup.permissions import key_file, rendered
from shared.bus.embedded import EmbeddedServer
from shared.settings.access import Access
from shared.settings.ports import reserve_port
from shared.testing.waiting import eventually
from tests.attacks.attack import Act, Attack
from tests.attacks.ground import BreachError, Ground, monitored, without
from tests.contract.deploy.test_nats import mounted


def connecting(lacks: str) -> Act:
    """Connect with less than a user of the hub has."""

    async def act(ground: Ground) -> None:
        whole = ground.access("viewer")
        rendered(ground.folder / "other", ())
        access = {
            "anything": Access(),
            "a certificate and a key": without(whole, "certificate", "private_key", "nkey"),
            "a certificate": without(whole, "certificate", "private_key"),
            "a key": without(whole, "nkey"),
            "a key that the hub knows": Access(
                ca=whole.ca,
                certificate=whole.certificate,
                private_key=whole.private_key,
                nkey=key_file(ground.folder / "other", "operator"),
            ),
        }[lacks]
        try:
            await ground.connected(access)
        except (NatsError, OSError, TimeoutError):
            return
        raise BreachError("the server let it in")

    return act


async def by_password(ground: Ground) -> None:
    """Users of tutorials."""
    bare = without(ground.access("viewer"), "nkey")
    for user, password in (("hub", "hub"), ("admin", "s3cr3t!"), ("operator", ""), ("", "")):
        try:
            await ground.connected(bare, user=user, password=password)
        except (NatsError, OSError, TimeoutError):
            continue
        raise BreachError(f"{user}:{password} was let in")


def knocking(port: str, words: bytes, *signs: bytes) -> Act:
    """Send words to a port without any certificate."""

    async def act(ground: Ground) -> None:
        number = {
            "leaf nodes": ground.leaf_port,
            "monitor": ground.monitor_port,
            "clients": int(ground.url.rpartition(":")[2]),
        }[port]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
        except OSError:
            return
        writer.write(words)
        found = b""
        try:
            async with asyncio.timeout(3):
                while data := await reader.read(65536):
                    found += data
                    if any(sign in found for sign in signs):
                        raise BreachError(f"{port}: {found[:100]!r}")
        except (TimeoutError, OSError):
            pass
        finally:
            writer.close()

    return act


async def joins_the_cluster(ground: Ground) -> None:
    """Start a server with a client's certificate that joins the hub's: it would act for every account."""
    port, monitor = reserve_port(), reserve_port()
    own = ground.folder / f"servers-{port}"
    tls = ground.folder / "tls"
    entry = mounted(
        own,
        ("ha",),
        {
            "/etc/nats-tls": str(tls),
            "$POD_NAME": "nats-0",
            "8222": str(monitor),
            "0.0.0.0:6222": f"127.0.0.1:{port}",
            "nats-0.nats:6222": f"localhost:{port}",
        },
    )
    (own / "nats-permissions").symlink_to(ground.folder / "nats-permissions")
    evil = own / "evil"
    evil.mkdir()
    (evil / "evil.conf").write_text(
        f"""
        server_name: evil
        cluster {{
          name: sluicegate, listen: "127.0.0.1:-1", routes: ["nats://localhost:{port}"]
          tls {{ cert_file: "{tls}/client.crt", key_file: "{tls}/client.key", ca_file: "{tls}/ca.crt" }}
        }}
        accounts {{ HUB {{ users: [ {{ user: evil, password: evil }} ] }} }}
        """
    )
    servers = (EmbeddedServer(own, config=entry), EmbeddedServer(evil, config=evil / "evil.conf"))
    try:
        for server in servers:
            await server.start()
        await eventually(lambda: "Route connection" in servers[1].log, servers[1].log)
        for _ in range(20):
            if await routes_of(monitor):
                raise BreachError("a server with a client's certificate is in the cluster")
            await asyncio.sleep(0.1)
    finally:
        for server in servers:
            await server.kill()


async def routes_of(monitor: int) -> int:
    """How many routes a server has."""
    return int((await monitored(monitor, "routez"))["num_routes"])


CONNECT = b'CONNECT {"verbose":true,"pedantic":false}\r\nPING\r\nSUB > 1\r\n'


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T3",
        way="service joins the cluster of servers with its certificate",
        act=joins_the_cluster,
    )
    for lacks in (
        *("anything", "a certificate and a key", "a certificate", "a key"),
        "a key that the hub knows",
    ):
        yield Attack(threat="T4", way=f"stranger connects without {lacks}", act=connecting(lacks))
    yield Attack(threat="T4", way="stranger connects with a password", act=by_password)
    yield Attack(
        threat="T4",
        way="stranger talks to the port of clients without TLS",
        act=knocking("clients", CONNECT, b"PONG", b"+OK"),
    )
    yield Attack(
        threat="T4",
        way="stranger talks to the port of leaf nodes without TLS",
        act=knocking("leaf nodes", CONNECT, b"PONG", b"+OK"),
    )
    yield Attack(
        threat="T4",
        way="stranger opens a websocket",
        act=knocking(
            "clients",
            b"GET / HTTP/1.1\r\nHost: n\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            b"101 Switching",
        ),
    )
