"""The one-time password service on a real server: replicas, restarts, and curl as the build script has it."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_bytes

import pytest

from services.provisioner.keys.one_time import OneTimeKeyStore
from services.provisioner.keys.one_time_server import OneTimeKeyServer
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.streams import load
from shared.runtime.certificates import CertificateFolder, ReloadingContext
from shared.testing.nats_server import nats_server

CURL = shutil.which("curl")
KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\ncanary-31c0\n-----END OPENSSH PRIVATE KEY-----\n"
SCRIPT = "curl --cacert otp-ca -XPOST -d @otp $(cat otp-server)"
"""The step of the upstream build script: one request, whose response is used as the key."""

REFUSED = b"no key for this password\n"

pytestmark = pytest.mark.skipif(CURL is None, reason="there is no curl")


class Replica:
    """One process of the service, as far as keys go."""

    def __init__(self, keys: OneTimeKeyStore, server: OneTimeKeyServer) -> None:
        self.keys = keys
        self._server = server
        self.url = ""

    async def listen(self) -> None:
        self.url = f"https://localhost:{await self._server.start()}/otp"


@asynccontextmanager
async def replica(server: EmbeddedServer, name: str, folder: Path) -> AsyncIterator[Replica]:
    certificates = CertificateFolder(folder, ["localhost"])
    certificates.ensure(datetime.now(UTC))
    tls = ReloadingContext(certificates.certificate, certificates.key)
    bus = NatsBus(
        url=server.url, instance=name, service="provisioner", now=lambda: datetime.now(UTC)
    )
    await bus.start()
    keys = OneTimeKeyStore(
        cluster="hub", bus=bus, url="https://otp.example/otp",
        authority=lambda: certificates.ca_bundle().decode(), life_seconds=600,
        now=lambda: datetime.now(UTC), entropy=token_bytes,
    )  # fmt: skip
    listener = OneTimeKeyServer(keys, host="127.0.0.1", port=0, tls=lambda: tls.context)
    running = Replica(keys, listener)
    try:
        await running.listen()
        yield running
    finally:
        await listener.stop()
        await bus.stop()


def mount(folder: Path, secret: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for key, value in secret.items():
        (folder / key).write_text(value)


async def fetch(folder: Path, secret: dict[str, str], url: str) -> tuple[int, bytes]:
    """What the script does with its secret; returns curl's status and what it wrote."""
    mount(folder, {**secret, "otp-server": url})
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", SCRIPT, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out


async def test_key_survives_replica_and_server_and_is_delivered_once(
    tmp_path: Path,
) -> None:
    tls = tmp_path / "tls"
    async with nats_server() as server:
        async with replica(server, "one", tls) as one:
            secret = dict(await one.keys.deliver(KEY))
        await server.kill()
        await server.start()
        async with replica(server, "two", tls) as two, replica(server, "three", tls) as three:
            assert await fetch(tmp_path / "ssh", secret, two.url) == (0, KEY)
            assert await fetch(tmp_path / "ssh", secret, three.url) == (0, REFUSED)


async def test_of_concurrent_requests_to_replicas_one_gets_key(tmp_path: Path) -> None:
    async with nats_server() as server, AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(replica(server, f"otp-{n}", tmp_path / "tls"))
            for n in range(3)
        ]
        secret = dict(await replicas[0].keys.deliver(KEY))
        results = await asyncio.gather(
            *(fetch(tmp_path / f"ssh-{n}", secret, replicas[n % 3].url) for n in range(6))
        )
        assert sorted(out for _, out in results) == [KEY, *[REFUSED] * 5]


async def test_request_waits_while_bus_server_is_away(tmp_path: Path) -> None:
    async with nats_server() as server, replica(server, "one", tmp_path / "tls") as one:
        secret = dict(await one.keys.deliver(KEY))
        await server.kill()
        fetching = asyncio.create_task(fetch(tmp_path / "ssh", secret, one.url))
        await asyncio.sleep(3)
        assert not fetching.done()
        await server.start()
        assert await fetching == (0, KEY)


def test_stream_age_limit_fits_key_lifetime() -> None:
    days = load().logs["KEYS"].max_age_days
    assert days is not None
    assert days * 24 <= 6
