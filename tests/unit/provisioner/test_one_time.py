"""One-time keys: the store on an in-memory bus, and the service with real TLS and curl."""

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from services.provisioner.keys.one_time import (
    CLAIM_SECONDS,
    KEY_BYTES_MAX,
    ClaimedError,
    OneTimeKeyStore,
    UnknownPasswordError,
)
from services.provisioner.keys.one_time_server import OneTimeKeyServer
from shared.runtime.certificates import CertificateFolder, ReloadingContext
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus, MemoryServer

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\ncanary-7d1f\n-----END OPENSSH PRIVATE KEY-----\n"
CURL = shutil.which("curl")


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class KeyStores:
    """Two replicas on one bus."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.clock = Clock()
        self.buses: list[MemoryBus] = []

    async def replica(self, url: str = "https://otp/otp", authority: str = "CA") -> OneTimeKeyStore:
        bus = MemoryBus(self.server, instance=f"provisioner-{len(self.buses)}")
        await bus.start()
        self.buses.append(bus)
        return OneTimeKeyStore(
            cluster="hub", bus=bus, url=url, authority=lambda: authority, life_seconds=3600,
            now=self.clock, entropy=Random(len(self.buses)).randbytes,
        )  # fmt: skip

    def stored(self) -> bytes:
        return b"".join(
            stored.data
            for name in ("KEYS", "KEYS_NOW")
            for stored in self.server.streams[name].messages.values()
        )


@pytest.fixture
async def store() -> AsyncIterator[KeyStores]:
    store = KeyStores()
    yield store
    for bus in store.buses:
        await bus.stop()


async def test_key_is_delivered_once_by_any_replica(store: KeyStores) -> None:
    one, two = await store.replica(), await store.replica()

    secret = await one.deliver(KEY)
    assert (secret["otp-ca"], secret["otp-server"]) == ("CA", "https://otp/otp")
    assert len(secret["otp"]) == 20

    claim = await two.claim(secret["otp"])
    assert claim.private_key == KEY
    await two.confirm(claim)
    for replica in (one, two):
        with pytest.raises(UnknownPasswordError):
            await replica.claim(secret["otp"])


async def test_bus_contains_neither_key_nor_password(store: KeyStores) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    await keys.release(await keys.claim(secret["otp"]))

    assert b"canary-7d1f" not in store.stored()
    assert secret["otp"].encode() not in store.stored()


async def test_claimed_key_is_given_to_one_request_only(store: KeyStores) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    results = await asyncio.gather(
        *(keys.claim(secret["otp"]) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, ClaimedError) for result in results) == 4


async def test_unconfirmed_claim_expires_also_in_another_replica(store: KeyStores) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    lost = await keys.claim(secret["otp"])

    other = await store.replica()
    with pytest.raises(ClaimedError):
        await other.claim(secret["otp"])
    store.clock.passes(CLAIM_SECONDS)
    assert (await other.claim(secret["otp"])).private_key == KEY
    await keys.confirm(lost)  # Too late: it changes nothing.
    store.clock.passes(CLAIM_SECONDS)
    assert (await keys.claim(secret["otp"])).private_key == KEY


async def test_expired_key_is_deleted(store: KeyStores) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    await keys.deliver(KEY)
    assert await keys.delete_expired() == 0

    store.clock.passes(3600)

    with pytest.raises(UnknownPasswordError):
        await keys.claim(secret["otp"])
    assert await keys.delete_expired() == 2

    async def view_is_empty() -> bool:
        await keys.delete_expired()  # Again: the view follows the log with a delay.
        return store.server.streams["KEYS_NOW"].messages == {}

    await eventually(view_is_empty)


@pytest.mark.parametrize("password", ["", "x" * 20, "a.b.>", "0" * 21, "ä" * 20])
async def test_wrong_password_gets_no_key(store: KeyStores, password: str) -> None:
    keys = await store.replica()
    with pytest.raises(UnknownPasswordError):
        await keys.claim(password)


async def test_too_long_key_is_refused(store: KeyStores) -> None:
    keys = await store.replica()
    with pytest.raises(ValueError, match="too many for a private key"):
        await keys.deliver(b"x" * (KEY_BYTES_MAX + 1))


# --- over HTTPS ------------------------------------------------------------------------------------


class Service:
    def __init__(self, keys: OneTimeKeyStore, port: int, authority: Path) -> None:
        self.keys = keys
        self.port = port
        self.authority = authority

    async def curl(self, password: str, *options: str) -> tuple[int, bytes]:
        """Call curl like the build script of multi-platform-controller. Returns status and body."""
        assert CURL is not None
        process = await asyncio.create_subprocess_exec(
            CURL, "--silent", "--cacert", str(self.authority), "-XPOST", "-d", password,
            "-w", "\n%{http_code}", *options, f"https://localhost:{self.port}/otp",
            stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        body, _, status = out.rpartition(b"\n")
        return int(status), body


Serve = Callable[[], AbstractAsyncContextManager[Service]]


@pytest.fixture
def serve(store: KeyStores, tmp_path: Path) -> Serve:
    @asynccontextmanager
    async def serve() -> AsyncIterator[Service]:
        keys = await store.replica()
        folder = CertificateFolder(tmp_path, ["localhost", "127.0.0.1"])
        folder.ensure(datetime.now(UTC))
        tls = ReloadingContext(folder.certificate, folder.key)
        server = OneTimeKeyServer(keys, host="127.0.0.1", port=0, tls=lambda: tls.context)
        port = await server.start()
        try:
            yield Service(keys, port, folder.authority_certificate)
        finally:
            await server.stop()

    return serve


@pytest.mark.skipif(CURL is None, reason="there is no curl")
async def test_curl_of_build_script_gets_key_once(
    serve: Serve, store: KeyStores, tmp_path: Path
) -> None:
    async with serve() as service:
        secret = await service.keys.deliver(KEY)
        (tmp_path / "otp").write_text(secret["otp"])

        assert await service.curl(f"@{tmp_path / 'otp'}") == (200, KEY)
        await eventually(lambda: b"delivered" in store.stored() or store.stored() == b"")
        assert await service.curl(secret["otp"]) == (400, b"no key for this password\n")


@pytest.mark.skipif(CURL is None, reason="there is no curl")
async def test_malformed_requests_are_refused(serve: Serve) -> None:
    async with serve() as service:
        assert (await service.curl("x" * 20))[0] == 400
        assert (await service.curl("x" * 300))[0] == 413
        assert (await service.curl("x", "-X", "GET"))[0] == 405
        assert (await service.curl("x", "-H", "Content-Length: -1"))[0] == 411
        assert (await service.curl("x", "-H", f"A: {'x' * 9000}"))[0] == 400


async def test_key_of_lost_response_can_be_fetched_again(serve: Serve, store: KeyStores) -> None:
    async with serve() as service:
        secret = await service.keys.deliver(KEY)
        await asyncio.to_thread(ask_and_break_off, service, secret["otp"])
        await eventually(lambda: b'"state":"waiting"' in list(
            store.server.streams["KEYS_NOW"].messages.values())[-1].data and
            len(store.server.streams["KEYS"].messages) == 3)  # fmt: skip

        claim = await service.keys.claim(secret["otp"])
        assert claim.private_key == KEY


def ask_and_break_off(service: Service, password: str) -> None:
    context = ssl.create_default_context(cafile=str(service.authority))
    raw = socket.create_connection(("127.0.0.1", service.port))
    sock = context.wrap_socket(raw, server_hostname="localhost")
    head = f"POST /otp HTTP/1.1\r\nHost: x\r\nContent-Length: {len(password)}\r\n\r\n{password}"
    sock.sendall(head.encode())
    # With a linger of 0 the connection is reset instead of closed.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.recv(1)
    sock.close()
