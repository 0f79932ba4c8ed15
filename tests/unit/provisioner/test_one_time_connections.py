"""Idle and hostile connections to the one-time key service: each ends, and others get their keys."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from services.provisioner.keys import one_time_server
from services.provisioner.keys.one_time import OneTimeKeyStore
from services.provisioner.keys.one_time_server import OneTimeKeyServer
from shared.runtime.certificates import CertificateFolder, ReloadingContext
from shared.testing.waiting import PATIENCE_SECONDS
from shared.testing.world.memory_bus import MemoryBus, MemoryServer

KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----\n"
CURL = shutil.which("curl")
PER_ADDRESS = 4
ATTACKER, HONEST = "127.0.0.1", "127.0.0.2"


class Service:
    """A running service, its clients, and what it refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = CertificateFolder(folder, ["localhost", "127.0.0.1"])
        self._folder.ensure(datetime.now(UTC))
        self.refused: Counter[str] = Counter()
        self.port = 0
        self.keys: OneTimeKeyStore
        self.server: OneTimeKeyServer
        self._bus = MemoryBus(MemoryServer(), instance="provisioner")

    async def start(self) -> None:
        await self._bus.start()
        self.keys = OneTimeKeyStore(
            cluster="hub", bus=self._bus, url="https://otp/otp", authority=lambda: "CA",
            life_seconds=3600, now=lambda: datetime.now(UTC), entropy=Random(1).randbytes,
        )  # fmt: skip
        tls = ReloadingContext(self._folder.certificate, self._folder.key)
        self.server = OneTimeKeyServer(
            self.keys, host="127.0.0.1", port=0, tls=lambda: tls.context, per_address=PER_ADDRESS,
            on_refused=lambda reason: self.refused.update([reason]),
        )  # fmt: skip
        self.port = await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()
        await self._bus.stop()

    def connect(self, source: str = ATTACKER) -> socket.socket:
        """A connection that has sent nothing."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS, (source, 0))

    def encrypted(self, source: str = ATTACKER) -> ssl.SSLSocket:
        """A connection after the TLS handshake."""
        context = ssl.create_default_context(cafile=str(self._folder.authority_certificate))
        return context.wrap_socket(self.connect(source), server_hostname="localhost")

    async def fetches_key(self) -> bool:
        """Whether a build script at the honest address gets its key."""
        assert CURL is not None
        secret = await self.keys.deliver(KEY)
        process = await asyncio.create_subprocess_exec(
            CURL, "--silent", "--cacert", str(self._folder.authority_certificate), "--interface",
            HONEST, "-d", secret["otp"], f"https://localhost:{self.port}/otp",
            stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        return out == KEY


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path)
    await service.start()
    yield service
    await service.stop()


async def closed(connection: socket.socket) -> bool:
    """Read until the service closes. Raises TimeoutError if it does not."""

    def read() -> bool:
        try:
            while connection.recv(4096):
                pass
        except (ConnectionError, ssl.SSLEOFError):
            return True
        return True

    return await asyncio.to_thread(read)


@pytest.mark.skipif(CURL is None, reason="there is no curl")
@pytest.mark.parametrize("phase", ["before TLS", "before the request"])
async def test_address_with_all_its_connections_idle_leaves_room_for_others(
    service: Service, phase: str
) -> None:
    with ExitStack() as stack:
        for _ in range(PER_ADDRESS):
            connect = service.connect if phase == "before TLS" else service.encrypted
            stack.enter_context(await asyncio.to_thread(connect))
        more = stack.enter_context(service.connect())
        assert await closed(more), "it has its share"
        assert service.refused == {"address": 1}
        assert await service.fetches_key()
    assert await service.fetches_key()


async def test_address_gets_its_places_back(service: Service) -> None:
    for _ in range(3 * PER_ADDRESS):
        with await asyncio.to_thread(service.encrypted) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert (await asyncio.to_thread(connection.recv, 4096)).startswith(b"HTTP/1.1 405")
    assert service.refused == {"request": 3 * PER_ADDRESS}


@pytest.mark.parametrize(
    ("phase", "sent", "refusal"),
    [
        ("HANDSHAKE_SECONDS", None, "handshake"),
        ("REQUEST_SECONDS", b"POST /otp HTT", "slow"),
        ("REQUEST_SECONDS", b"POST /otp HTTP/1.1\r\nContent-Length: 20\r\n\r\nabc", "slow"),
        ("REFUSED_SECONDS", b"GET / HTTP/1.1\r\n\r\n", "request"),
        ("REFUSED_SECONDS", b"POST /otp HTTP/1.1\r\nContent-Length: 1\r\n\r\na", "request"),
    ],
)
async def test_connection_that_stands_still_is_closed_in_each_phase(
    service: Service, monkeypatch: pytest.MonkeyPatch, phase: str, sent: bytes | None, refusal: str
) -> None:
    monkeypatch.setattr(one_time_server, phase, 0.2)
    monkeypatch.setattr(one_time_server, "REFUSED_SECONDS", 0.2)
    connection = await asyncio.to_thread(service.connect if sent is None else service.encrypted)
    with connection:
        if sent is not None:
            connection.sendall(sent)
        assert await closed(connection)
    assert service.refused == {refusal: 1}


@pytest.mark.skipif(CURL is None, reason="there is no curl")
@pytest.mark.parametrize("phase", ["before TLS", "refused", "waits for a key that another gets"])
async def test_connection_without_a_key_gives_way_when_all_places_are_taken(
    service: Service, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    monkeypatch.setattr(one_time_server, "CONNECTIONS_MAX", 4)
    connect = service.connect if phase == "before TLS" else service.encrypted
    password = "x" * 20
    if phase != "refused":
        password = (await service.keys.deliver(KEY))["otp"]
        await service.keys.claim(password)
    with ExitStack() as stack:
        idle = [stack.enter_context(await asyncio.to_thread(connect)) for _ in range(4)]
        for connection in () if phase == "before TLS" else idle:
            connection.sendall(
                f"POST /otp HTTP/1.1\r\nContent-Length: 20\r\n\r\n{password}".encode()
            )
        if phase == "refused":
            await asyncio.to_thread(idle[-1].recv, 12)
        assert await service.fetches_key()
        assert await closed(idle[0])
    assert service.refused["total"] == 1


@pytest.mark.skipif(CURL is None, reason="there is no curl")
async def test_connection_with_a_key_keeps_its_place(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_time_server, "CONNECTIONS_MAX", 2)
    secret = await service.keys.deliver(KEY)
    with await asyncio.to_thread(service.encrypted) as first, service.connect():
        first.sendall(f"POST /otp HTTP/1.1\r\nContent-Length: 20\r\n\r\n{secret['otp']}".encode())
        head = await asyncio.to_thread(first.recv, 12)
        assert await service.fetches_key()
        assert head == b"HTTP/1.1 200"
        assert KEY in await asyncio.to_thread(first.recv, 4096)


async def test_plain_text_is_no_tls_and_ends(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"POST /otp HTTP/1.1\r\n\r\n")
        assert await closed(connection)
    assert service.refused == {"handshake": 1}


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:0:1:2::3", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_connections_are_counted_by_address_of_a_machine(peer: str, counted: str) -> None:
    assert one_time_server.count_key(peer) == counted
