"""What shall be secret never goes over the wire in plain text, whatever the server offers."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.broker import Connection
from shared.bus.port import UnavailableError
from shared.bus.stream_reader import SilentError, open_stream_reader
from shared.runtime.certificates import issue_authority
from shared.settings.access import OPEN, Access

SENTENCE = "the server offers no TLS"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A nats-server in plain text."""
    server = await EmbeddedServer(tmp_path / "nats").start()
    yield server
    await server.stop()


def access_with_ca(folder: Path) -> Access:
    (folder / "ca.crt").write_bytes(issue_authority(datetime.now(UTC)).certificate_pem())
    return Access(ca=folder / "ca.crt")


@pytest.mark.parametrize("asked_by", ["a URL with tls://", "a CA"])
async def test_a_command_does_not_go_on_in_plain_text(
    server: EmbeddedServer, tmp_path: Path, asked_by: str
) -> None:
    secret = server.url.replace("nats://", "tls://")
    url, access = (server.url, access_with_ca(tmp_path)) if asked_by == "a CA" else (secret, OPEN)
    with pytest.raises(SilentError, match=SENTENCE):
        async with open_stream_reader(url, access=access):
            pass
    with pytest.raises(UnavailableError, match=SENTENCE):
        await apply_at(url, access=access)


async def test_a_service_waits_for_a_server_with_tls(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    connection = Connection(url=server.url, name="quota-1", access=access_with_ca(tmp_path))
    starting = asyncio.create_task(connection.open())
    await asyncio.sleep(2)
    assert not connection.ready
    starting.cancel()
    await connection.close()


async def test_a_connection_that_need_not_be_secret_goes_in_plain_text(
    server: EmbeddedServer,
) -> None:
    async with open_stream_reader(server.url) as reader:
        assert reader.nc.is_connected
