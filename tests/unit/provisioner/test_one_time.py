"""Keys that are fetched once: the store in memory, and the service with real TLS and real curl."""

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


class Store:
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
async def store() -> AsyncIterator[Store]:
    store = Store()
    yield store
    for bus in store.buses:
        await bus.stop()


async def test_what_one_replica_keeps_another_gives_out_once(store: Store) -> None:
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


async def test_neither_the_key_nor_the_password_is_on_the_bus(store: Store) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    await keys.release(await keys.claim(secret["otp"]))

    assert b"canary-7d1f" not in store.stored()
    assert secret["otp"].encode() not in store.stored()


async def test_while_it_is_being_delivered_nobody_else_gets_it(store: Store) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    results = await asyncio.gather(
        *(keys.claim(secret["otp"]) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, ClaimedError) for result in results) == 4


async def test_a_claim_that_nobody_confirms_runs_out_also_over_a_restart(store: Store) -> None:
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


async def test_a_key_that_is_not_fetched_in_time_is_dropped(store: Store) -> None:
    keys = await store.replica()
    secret = await keys.deliver(KEY)
    await keys.deliver(KEY)
    assert await keys.delete_expired() == 0

    store.clock.passes(3600)

    with pytest.raises(UnknownPasswordError):
        await keys.claim(secret["otp"])
    assert await keys.delete_expired() == 2
    await asyncio.sleep(0.05)  # The view is behind the log: the ends come a little later.
    await keys.delete_expired()
    assert store.server.streams["KEYS_NOW"].messages == {}


@pytest.mark.parametrize("password", ["", "x" * 20, "a.b.>", "0" * 21, "ä" * 20])
async def test_what_is_no_password_of_ours_gets_nothing(store: Store, password: str) -> None:
    keys = await store.replica()
    with pytest.raises(UnknownPasswordError):
        await keys.claim(password)


async def test_what_is_too_long_to_be_a_key_is_not_kept(store: Store) -> None:
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
        """As the build script calls it (`research/tekton.md` 2.2); returns status and answer."""
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
def serve(store: Store, tmp_path: Path) -> Serve:
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
async def test_the_scripts_curl_gets_the_key_once(
    serve: Serve, store: Store, tmp_path: Path
) -> None:
    async with serve() as service:
        secret = await service.keys.deliver(KEY)
        (tmp_path / "otp").write_text(secret["otp"])

        assert await service.curl(f"@{tmp_path / 'otp'}") == (200, KEY)
        await eventually(lambda: b"delivered" in store.stored() or store.stored() == b"")
        assert await service.curl(secret["otp"]) == (400, b"no key for this password\n")


@pytest.mark.skipif(CURL is None, reason="there is no curl")
async def test_wrong_requests_are_refused_in_few_words(serve: Serve) -> None:
    async with serve() as service:
        assert (await service.curl("x" * 20))[0] == 400
        assert (await service.curl("x" * 300))[0] == 413
        assert (await service.curl("x", "-X", "GET"))[0] == 405
        assert (await service.curl("x", "-H", "Content-Length: -1"))[0] == 411
        assert (await service.curl("x", "-H", f"A: {'x' * 9000}"))[0] == 400


async def test_an_answer_that_is_lost_can_be_fetched_again(serve: Serve, store: Store) -> None:
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
