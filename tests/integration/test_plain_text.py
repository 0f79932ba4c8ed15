"""What shall be secret never goes over the wire in plain text, whatever the server offers."""

import asyncio
import ssl
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from nats.aio.client import Client, Srv
from nats.errors import Error as NatsError
from structlog.testing import capture_logs

from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.broker import Connection
from shared.bus.nats.tls import refuse_plain_text
from shared.bus.port import UnavailableError
from shared.bus.stream_reader import SilentError, open_stream_reader
from shared.runtime.certificates import issue_authority, issue_serving
from shared.settings.access import OPEN, Access
from shared.testing.waiting import eventually

SENTENCE = "the server offers no TLS"
NOW = datetime.now(UTC)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A nats-server in plain text."""
    server = await EmbeddedServer(tmp_path / "nats").start()
    yield server
    await server.stop()


def access_with_ca(folder: Path) -> Access:
    (folder / "ca.crt").write_bytes(issue_authority(NOW).certificate_pem())
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


ENTRIES = {
    "a service": """
from shared.bus.nats.broker import Connection
await asyncio.wait_for(Connection(url=url, name="quota-1", access=access).open(), 60)
""",
    "a command that looks": """
from shared.bus.stream_reader import open_stream_reader
async with open_stream_reader(url, access=access):
    pass
""",
    "a command that applies": """
from shared.bus.admin.apply import apply_at
await apply_at(url, access=access)
""",
}
"""What connects, each in a process that imports nothing else: the class of the library is one for all."""


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))
async def test_each_entry_refuses_plain_text_by_itself(
    server: EmbeddedServer, tmp_path: Path, entry: str
) -> None:
    access_with_ca(tmp_path)
    story = textwrap.indent(entry, "    ")
    code = f"""
import asyncio
from pathlib import Path
from shared.settings.access import Access
url, access = {server.url!r}, Access(ca=Path({str(tmp_path / "ca.crt")!r}))
async def story():
{story}
asyncio.run(story())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    told, _ = await process.communicate()
    assert SENTENCE in told.decode()
    assert process.returncode != 0


async def test_a_service_does_not_come_back_in_plain_text(tmp_path: Path) -> None:
    authority = issue_authority(NOW)
    serving = issue_serving(authority, ["127.0.0.1"], NOW)
    for name, content in (
        ("ca.crt", authority.certificate_pem()),
        ("s.crt", serving.certificate_pem()),
        ("s.key", serving.key_pem()),
        (
            "tls.conf",
            f'tls {{ cert_file: "{tmp_path}/s.crt", key_file: "{tmp_path}/s.key" }}'.encode(),
        ),
    ):
        (tmp_path / name).write_bytes(content)
    secret = await EmbeddedServer(tmp_path / "a", config=tmp_path / "tls.conf").start()
    connection = Connection(url=secret.url, name="quota-1", access=Access(ca=tmp_path / "ca.crt"))
    await connection.open()
    await secret.stop()
    port = int(secret.url.rpartition(":")[2])
    plain = EmbeddedServer(tmp_path / "b", port=port)
    try:
        with capture_logs() as lines:
            await plain.start()
            await eventually(lambda: any(SENTENCE in str(line.get("error")) for line in lines))
        assert not connection.ready
    finally:
        await plain.stop()
        await connection.close()


@pytest.mark.parametrize(
    ("url", "info", "refused"),
    [
        ("nats://h:1", {"tls_required": True}, False),
        ("nats://h:1", {"tls_available": True}, False),
        ("nats://h:1", {}, True),
        ("ws://h:1", {"tls_required": True}, True),
        ("ws://h:1", {"tls_available": True}, True),
        ("wss://h:1", {}, False),
    ],
)
async def test_what_counts_as_encrypted_where_a_ca_is_given(
    url: str, info: dict[str, Any], refused: bool
) -> None:
    client = Client()
    refuse_plain_text(Client)
    client.options = {"tls": ssl.create_default_context(), "dont_randomize": True, "no_echo": False}
    client._current_server = Srv(urlparse(url))
    client._server_info = info
    with pytest.raises(NatsError, match=SENTENCE) if refused else nullcontext():
        await client._process_info(info, initial_connection=True)


async def test_a_connection_that_need_not_be_secret_goes_in_plain_text(
    server: EmbeddedServer,
) -> None:
    async with open_stream_reader(server.url) as reader:
        assert reader.nc.is_connected
