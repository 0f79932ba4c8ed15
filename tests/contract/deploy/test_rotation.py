"""Keys and certificates change while messages flow: what docs/how-to/rotate-keys.md says, a real server."""

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import nats
import pytest
import trustme
from nats.aio.client import Client
from nats.errors import Error as NatsError
from typer.testing import CliRunner

from services.ctl.main import app
from services.ctl.setup.permissions import FILE, key_file
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats import broker
from shared.bus.nats.bus import NatsBus
from shared.bus.port import Entry
from shared.contracts.messages.spokes import Heartbeat
from shared.settings.access import Access, new_key, public_key
from shared.settings.ports import reserve_port
from shared.testing.deployed import bus_of
from shared.testing.waiting import eventually
from tests.contract.deploy.test_nats import mounted, pod_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "rotate-keys.md"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
USER = "patcher"


class Installation:
    """A server as it is deployed, its folder of keys, and what watches its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls = folder / "tls"
        self.permissions = folder / "nats-permissions"
        self.keys = folder / "nats-keys"
        for made in (self.tls, self.permissions):
            made.mkdir()
        self.authority = trustme.CA()
        self.certify(self.authority)
        self.authority.cert_pem.write_to_path(self.tls / "ca.crt")
        self.leaf_port = reserve_port()
        pod = pod_of(folder) | {"port: 7422": f"port: {self.leaf_port}"}
        self.server = EmbeddedServer(folder, config=mounted(folder, ("spokes",), pod))
        self.permit()

    def certify(self, authority: trustme.CA) -> None:
        """New certificates of server and clients, as cert-manager renews them."""
        server = authority.issue_cert("127.0.0.1", "localhost")
        client = authority.issue_cert("client.example.com")
        for name, made in (("tls", server), ("client", client)):
            (self.tls / f"{name}.key").write_bytes(made.private_key_pem.bytes())
            (self.tls / f"{name}.crt").write_bytes(made.cert_chain_pems[0].bytes())

    def permit(self, *options: str) -> None:
        """Run `sluice bus permissions`, and give the server what it prints."""
        command = ["bus", "permissions", "--keys", str(self.keys), *options]
        done = CliRunner().invoke(app, command, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        self._read_before = self.times_read
        self.give(done.output)

    @property
    def times_read(self) -> int:
        """How often the server has read its users again."""
        return self.server.log.count("Reloaded server configuration")

    async def is_told(self) -> None:
        """Wait until the script has told the server, twice, what `permit` changed."""
        await eventually(lambda: self.times_read >= self._read_before + 2)

    def give(self, configuration: str) -> None:
        """Change the server's users, as Kubernetes changes a mount: all at once."""
        beside = self.folder / FILE
        beside.write_text(configuration)
        beside.replace(self.permissions / FILE)

    def access(self, user: str) -> Access:
        return Access(
            nkey=key_file(self.keys, user),
            ca=self.tls / "ca.crt",
            certificate=self.tls / "client.crt",
            private_key=self.tls / "client.key",
        )

    def bus(self, user: str) -> NatsBus:
        return bus_of(user, self.server.url, self.access(user), now=lambda: NOON)

    async def connect(self, seed: str, *, certificate: str = "client") -> Client:
        """A connection with this key and this certificate, which is not made again once it is lost."""
        access = replace(
            self.access(USER),
            certificate=self.tls / f"{certificate}.crt",
            private_key=self.tls / f"{certificate}.key",
        )
        options = {**access.options(), "nkeys_seed_str": seed}
        options |= {"allow_reconnect": False, "max_reconnect_attempts": 1}
        for _ in range(2):
            # A connection that is just being made while the server reads its users is refused.
            with suppress(NatsError):
                return await nats.connect(self.server.url, **options)
            await asyncio.sleep(0.1)
        return await nats.connect(self.server.url, **options)

    async def refuses(self, seed: str, *, certificate: str = "client") -> bool:
        """Whether the server does not take a key."""
        return not await self.takes(seed, certificate=certificate)

    async def takes(self, seed: str, *, certificate: str = "client") -> bool:
        """Whether the server takes a key."""
        try:
            client = await self.connect(seed, certificate=certificate)
        except (NatsError, OSError):
            return False
        await client.close()
        return True

    def seed(self, user: str) -> str:
        """The present key of a user."""
        return key_file(self.keys, user).read_text().strip()


@asynccontextmanager
async def watched(place: Installation) -> AsyncIterator[None]:
    """Run the script that has the server read its files again."""
    script = ROOT / "deploy" / "nats" / "reload.sh"
    process = await asyncio.create_subprocess_exec(
        "sh", str(script), "0.2", str(place.permissions), str(place.tls),
        env={**os.environ, "PID": str(place.server.pid)},
    )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Installation]:
    monkeypatch.setattr(broker, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(broker, "RENEW_WITHIN_SECONDS", 0.1)
    made = Installation(tmp_path)
    await made.server.start()
    try:
        await apply_at(made.server.url, access=made.access("bus"))
        async with watched(made):
            await made.is_told()
            yield made
    finally:
        await made.server.kill()


def documented(option: str) -> list[str]:
    """The options of the page's command with that option, for the user and the folder of the test."""
    line = r"^ *sluice bus permissions --keys nats-keys (.*) --kubernetes > nats-users.yaml$"
    commands = re.findall(line, PAGE.read_text(), re.MULTILINE)
    [found] = [one for one in commands if option in one]
    return [USER if word == "quota" else word for word in shlex.split(found)]


class Flow:
    """Numbered messages, from one service to another, until it is told to end."""

    def __init__(self, sender: NatsBus, reader: NatsBus) -> None:
        self.sender = sender
        self.reader = reader
        self.sent = 0
        self.seen: list[int] = []

    async def send(self) -> None:
        while True:
            self.sent += 1
            await self.sender.publish(
                Heartbeat(spoke="hub", instance=USER, number=self.sent, at=NOON)
            )
            await asyncio.sleep(0.01)

    async def read(self) -> None:
        async for item in self.reader.replay("SPOKES"):
            if isinstance(item, Entry):
                self.seen.append(item.read(Heartbeat).number)


@asynccontextmanager
async def flowing(place: Installation) -> AsyncIterator[Flow]:
    sender, reader = place.bus(USER), place.bus("operator")
    flow = Flow(sender, reader)
    tasks: list[asyncio.Task[None]] = []
    for bus in (sender, reader):
        await bus.start()
    try:
        tasks += [asyncio.create_task(flow.send()), asyncio.create_task(flow.read())]
        await eventually(lambda: len(flow.seen) > 5)
        yield flow
        last = flow.sent
        await eventually(lambda: flow.seen[-1] > last)
        assert flow.seen == list(range(1, len(flow.seen) + 1)), "lost, or twice"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for bus in (sender, reader):
            await bus.stop()


async def test_rotated_key_is_taken_up_while_messages_flow(place: Installation) -> None:
    before = key_file(place.keys, USER).read_text().strip()
    async with flowing(place) as flow:
        place.permit(*documented("--rotate"))
        await eventually(lambda: flow.sender.connection.epoch == 1)
        await eventually(lambda: flow.sender.connection.ready)
        assert await place.takes(before)
        place.permit(*documented("--retire"))
        last = flow.sent
        await eventually(lambda: place.refuses(before))
        await eventually(lambda: flow.seen[-1] > last + 5)
        assert flow.sender.connection.epoch == 1, "one connection more, and no other one"
        assert flow.reader.connection.epoch == 0, "who keeps its key keeps its connection"


async def test_service_whose_key_was_retired_before_it_had_the_new_one_comes_back(
    place: Installation,
) -> None:
    mounted_later = key_file(place.keys, USER).read_text()
    async with flowing(place) as flow:
        place.permit("--rotate", USER)
        renewed = key_file(place.keys, USER).read_text()
        place.permit("--retire", USER)
        key_file(place.keys, USER).write_text(mounted_later)
        await eventually(lambda: not flow.sender.connection.ready)
        key_file(place.keys, USER).write_text(renewed)
        await eventually(lambda: flow.sender.connection.ready)


async def test_service_whose_user_was_left_out_for_a_moment_comes_back(place: Installation) -> None:
    sound = (place.permissions / FILE).read_text()
    other = new_key()[1]
    without = sound.replace(public_key(key_file(place.keys, USER).read_text().strip()), other)
    async with flowing(place) as flow:
        place.give(without)
        await eventually(lambda: not flow.sender.connection.ready)
        await asyncio.sleep(2 * broker.RECONNECT_SECONDS)  # It has been refused by then.
        place.give(sound)
        await eventually(lambda: flow.sender.connection.ready)


async def test_retired_key_and_revoked_spoke_lose_their_connections_and_get_no_new_ones(
    place: Installation,
) -> None:
    """What docs/explanation/security.md says that a retired key can still do: nothing."""
    spokes = ("--spoke", "west", "--spoke", "east")
    place.permit(*spokes)
    await place.is_told()  # A reading closes connections that are just being made.
    keys = [place.seed(user) for user in (USER, "spoke-west", "spoke-east")]
    for key in keys:
        await eventually(partial(place.takes, key))
    former, west, east = [await place.connect(key) for key in keys]
    try:
        place.permit(*spokes, "--rotate", USER)
        await place.is_told()
        await eventually(lambda: place.takes(place.seed(USER)))
        await former.flush()
        place.permit(*spokes, "--retire", USER)
        await eventually(lambda: former.is_closed)
        assert await place.refuses(keys[0])
        await west.flush()
        place.permit("--spoke", "east")
        await eventually(lambda: west.is_closed)
        assert await place.refuses(keys[1])
        await east.flush()
        await eventually(lambda: place.takes(place.seed(USER)))  # And everybody else goes on.
    finally:
        for client in (former, west, east):
            await client.close()


async def test_certificate_is_revoked_with_its_authority_and_opens_nothing_without_a_key(
    place: Installation,
) -> None:
    for part in ("crt", "key"):
        shutil.copy(place.tls / f"client.{part}", place.tls / f"former.{part}")
    key, other = place.seed(USER), trustme.CA()
    assert await place.refuses(new_key()[0], certificate="former"), "a certificate alone"
    client = await place.connect(key, certificate="former")
    try:
        bundle = place.authority.cert_pem.bytes() + other.cert_pem.bytes()
        (place.tls / "ca.crt").write_bytes(bundle)
        place.certify(other)
        await eventually(lambda: place.takes(key))
        (place.tls / "ca.crt").write_bytes(other.cert_pem.bytes())
        await eventually(lambda: place.refuses(key, certificate="former"))
        assert await place.takes(key)
        await client.flush()  # NATS looks at a certificate when a connection begins.
        place.permit("--rotate", USER)
        place.permit("--retire", USER)
        await eventually(lambda: client.is_closed)
    finally:
        await client.close()


async def test_authority_is_exchanged_while_messages_flow(place: Installation) -> None:
    async with flowing(place) as flow:
        other = trustme.CA()
        bundle = place.authority.cert_pem.bytes() + other.cert_pem.bytes()
        (place.tls / "ca.crt").write_bytes(bundle)
        await asyncio.sleep(1.0)  # As the page says: both are trusted before the first is used.
        place.certify(other)
        await asyncio.sleep(1.0)
        (place.tls / "ca.crt").write_bytes(other.cert_pem.bytes())
        await asyncio.sleep(1.0)
        assert (flow.sender.connection.epoch, flow.reader.connection.epoch) == (0, 0)
        fresh = place.bus("quota")
        await fresh.start()
        await fresh.stop()
        # The next connection of a service that runs uses what is there now.
        nc = flow.sender.connection.nc
        await nc._process_op_err(NatsError("lost"))
        await eventually(lambda: flow.sender.connection.epoch == 1)
        await eventually(lambda: flow.sender.connection.ready)
