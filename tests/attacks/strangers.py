"""Attacks of whoever reaches the ports of NATS (T4), and of a client that poses as a server."""

import asyncio
from collections.abc import Iterator

from nats.errors import Error as NatsError

from services.ctl.setup.permissions import key_file, rendered
from shared.settings.access import Access
from tests.attacks.attack import Act, Attack
from tests.attacks.ground import BreachError, Ground, without


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


CONNECT = b'CONNECT {"verbose":true,"pedantic":false}\r\nPING\r\nSUB > 1\r\n'


def attacks() -> Iterator[Attack]:
    """The rows."""
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
