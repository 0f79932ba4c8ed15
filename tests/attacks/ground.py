"""A hub as it is deployed, with two spokes, and a judge who sees what an attack changed."""

import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import nats
import trustme
from nats.aio.client import Client
from nats.errors import Error as NatsError

from services.ctl.setup.permissions import FILE, key_file, rendered
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.filters import covers
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.spoke_gateway import SpokeGateway
from shared.bus.streams import load
from shared.settings.access import Access
from shared.settings.ports import reserve_port
from shared.testing.deployed import bus_of
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.contract.deploy.test_nats import mounted

SPOKES: Final = ("east", "west")
SETTLE_SECONDS: Final = 0.4
"""What the server does behind an attack's back has happened by then. Later harm shows in the next row."""

HOSTS_DURABLE: Final = "patcher-hub-host"
SPOKES_DURABLES: Final = {
    "HOSTS_NOW": "patcher-east-host",
    "DISPATCHES_NOW": "patcher-east-dispatch",
}
"""Durables of a spoke's patcher, by view."""

THIEF: Final = "thief"
"""Prefix of the consumers that an attack makes for itself."""

THERE: Final = {
    "sluice.admission.hub.team.w": b'{"state": "admitted"}',
    "sluice.term.quota": b'{"number": 1}',
    "sluice.host.hub.team.b": b"{}",
    "sluice.host.hub.team.c": b"{}",
    "sluice.key.hub.a.b": b'{"sealed": "secret"}',
    "sluice.dispatch.west.a.w": b'{"order": "secret of west"}',
    "sluice.check.hub.team.w.machines": b"{}",
    "sluice.observed.hub.team.j.jobs_batch": b'{"secret": "of a tenant"}',
    "sluice.lease.quota": b"quota-0/1",
    "sluice.lease.watcher-west": b"watcher-west/1",
    "$O.objects.C.chunk": b"part of a body",
}

Json = dict[str, Any]


class BreachError(Exception):
    """An attack got what it wanted."""


@dataclass(kw_only=True)
class Ground:
    """One server, and everybody's keys."""

    folder: Path
    server: EmbeddedServer
    leaf_port: int
    monitor_port: int
    stack: AsyncExitStack
    before: Json = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return self.server.url

    def access(self, user: str) -> Access:
        """The key of a user of the hub, or of ``spoke-<name>``, and a client's certificate."""
        tls = self.folder / "tls"
        return Access(
            nkey=key_file(self.folder / "keys", user),
            ca=tls / "ca.crt",
            certificate=tls / "client.crt",
            private_key=tls / "client.key",
        )

    async def client(self, user: str) -> Client:
        """A raw connection, without our library. Errors that the server reports are in `refusals`."""
        return await self.connected(self.access(user))

    async def connected(self, access: Access, **options: Any) -> Client:
        """As `client`, with any credentials."""

        async def quiet(_error: Exception) -> None:
            pass

        client = await nats.connect(
            self.url,
            error_cb=quiet,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            connect_timeout=10,
            **{**access.options(), **options},
        )
        self.stack.push_async_callback(client.close)
        return client

    async def bus(self, user: str) -> NatsBus:
        """A service of ours with its user."""
        bus = bus_of(user, self.url, self.access(user))
        await bus.start()
        self.stack.push_async_callback(bus.stop)
        return bus

    async def permit(self, spokes: tuple[str, ...] = SPOKES) -> None:
        """Make the users again, and have the server read them, as deploy/nats/reload.sh does."""
        users, _ = rendered(self.folder / "keys", spokes)
        (self.folder / "nats-permissions" / FILE).write_text(users)
        for _ in range(2):
            done = self.server.log.count("Reloaded server configuration") + 1
            self.server.signal(signal.SIGHUP)
            await eventually(partial(self._has_read, done))

    def _has_read(self, times: int) -> bool:
        return self.server.log.count("Reloaded server configuration") >= times

    async def spoke_is_served(self) -> None:
        """Keep the spokes' gateway, as the dispatcher does."""
        keeping = asyncio.create_task(SpokeGateway(await self.bus("dispatcher")).run())

        async def end() -> None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

        self.stack.push_async_callback(end)
        spoke = await self.client("spoke-east")
        await eventually(lambda: ask(spoke, "$JS.API.STREAM.INFO.OBSERVED"))

    async def judge(self, own: tuple[str, ...] = ()) -> None:
        """Raise `BreachError` if anything but messages to `own` subjects has changed."""
        await asyncio.sleep(SETTLE_SECONDS)
        now = await self.state()
        for what in sorted(self.before.keys() | now.keys()):
            if any(covers(pattern, what) for pattern in own):
                continue
            if what.startswith((f"consumer {THIEF}", "consumer reader-")):
                continue
            was, found = self.before.get(what), now.get(what)
            if was != found:
                raise BreachError(f"{what}: {was} became {found}"[:300])
        self.before = now

    async def state(self) -> Json:
        """How the streams are declared, what each subject has in the logs, and how far consumers are."""
        operator = await self.client("operator")
        found: Json = {}
        for stream in load().configs():
            try:
                info = await call(operator, f"STREAM.INFO.{stream}", {"subjects_filter": ">"})
            except Exception as error:  # noqa: BLE001 - what is gone is a finding, too
                found[f"stream {stream}"] = repr(error)
                continue
            found[f"stream {stream}"] = {"config": info["config"], "created": info["created"]}
            for subject, count in (info["state"].get("subjects") or {}).items():
                if stream.endswith("_NOW"):
                    continue
                at_home = any(covers(one, subject) for one in info["config"]["subjects"])
                key = subject if at_home else f"stray in {stream}: {subject}"
                found[key] = count if stream != "LEASES" else await _last(operator, subject)
            consumers = await call(operator, f"CONSUMER.LIST.{stream}", {"offset": 0})
            for one in consumers["consumers"]:
                found[f"consumer {one['name']} of {stream}"] = {
                    "delivered": one["delivered"]["consumer_seq"],
                    "config": one["config"],
                    "acknowledged": one["ack_floor"]["stream_seq"],
                    "pending": one["num_ack_pending"],
                    "waiting": one.get("num_waiting", 0),
                }
        names = await call(operator, "STREAM.NAMES", {"offset": 0})
        found["streams"] = sorted(names["streams"])
        await operator.close()
        return found


async def _last(operator: Client, subject: str) -> Any:
    stored = await call(operator, "STREAM.MSG.GET.LEASES", {"last_by_subj": subject})
    return stored["message"]["seq"]


async def say(
    client: Client,
    subject: str,
    body: bytes | Json = b"",
    *,
    reply: str = "",
    headers: Mapping[str, str] | None = None,
) -> None:
    """Publish, and let the server take it in. A refusal is no error here: the judge looks at the result."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with suppress(NatsError):
        await client.publish(subject, data, reply=reply, headers=dict(headers) if headers else None)
        await client.flush()


async def ask(
    client: Client, subject: str, body: bytes | Json = b"", *, seconds: float = 1.0
) -> Json | None:
    """The answer; None if there is none: refused by permission, or nobody there."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        reply = await client.request(subject, data, timeout=seconds)
        answer: Json = json.loads(reply.data)
    except (NatsError, ValueError):
        return None
    return None if "error" in answer else answer


async def look(operator: Client, subject: str, body: bytes | Json = b"") -> Json | None:
    """The same for who may ask: a server that is slow after an attack is waited for."""
    return await ask(operator, subject, body, seconds=PATIENCE_SECONDS)


@asynccontextmanager
async def ground() -> AsyncIterator[Ground]:
    """A hub with what is in `THERE`, and one durable of the patcher whose work waits."""
    async with AsyncExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="attacks-", ignore_cleanup_errors=True)
            )
        )
        certificates(folder / "tls")
        configuration, _ = rendered(folder / "keys", SPOKES)
        (folder / "nats-permissions").mkdir()
        (folder / "nats-permissions" / FILE).write_text(configuration)
        leaf_port, monitor_port = reserve_port(), reserve_port()
        entry = mounted(
            folder,
            ("spokes",),
            {
                "/etc/nats-tls": str(folder / "tls"),
                "$POD_NAME": "nats-0",
                "8222": str(monitor_port),
                "port: 7422": f"port: {leaf_port}",
                "0.0.0.0": "127.0.0.1",
            },
        )
        server = await EmbeddedServer(folder, config=entry).start()
        stack.push_async_callback(server.kill)
        found = Ground(
            folder=folder,
            server=server,
            leaf_port=leaf_port,
            monitor_port=monitor_port,
            stack=stack,
        )
        report = await apply_at(found.url, access=found.access("bus"))
        assert report.ok, report
        async with AsyncExitStack() as found.stack:
            await _furnish(found)
        yield found


async def _furnish(found: Ground) -> None:
    operator = await found.client("operator")
    for subject, body in THERE.items():
        await operator.request(subject, body, timeout=30)
    patcher = await found.client("patcher")
    config = {
        "name": HOSTS_DURABLE, "durable_name": HOSTS_DURABLE, "ack_policy": "explicit",
        "deliver_policy": "all", "ack_wait": 3600 * 10**9, "filter_subjects": ["sluice.host.hub.>"],
    }  # fmt: skip
    create = {"stream_name": "HOSTS_NOW", "config": config, "action": ""}
    await call(operator, f"CONSUMER.CREATE.HOSTS_NOW.{HOSTS_DURABLE}", create)
    for view, name in SPOKES_DURABLES.items():
        theirs = config | {
            "name": name,
            "durable_name": name,
            "filter_subjects": ["sluice.*.east.>"],
        }
        create = {"stream_name": view, "config": theirs, "action": ""}
        await call(operator, f"CONSUMER.CREATE.{view}.{name}", create)
    inbox = patcher.new_inbox()
    messages = await patcher.subscribe(inbox)
    next_one = f"$JS.API.CONSUMER.MSG.NEXT.HOSTS_NOW.{HOSTS_DURABLE}"
    await patcher.publish(next_one, b"1", inbox)
    await messages.next_msg(timeout=30)  # It works on the first; the second waits.
    await patcher.close()
    await asyncio.sleep(SETTLE_SECONDS)
    found.before = await found.state()


async def monitored(port: int, what: str) -> Json:
    """What a server tells its own pod, for example ``routez``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /{what} HTTP/1.0\r\n\r\n".encode())
    found: Json = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
    writer.close()
    return found


def certificates(folder: Path) -> None:
    """A server's certificate, and one for clients, of the same authority."""
    folder.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    server = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("sluicegate@clients")
    for name, pair in (("tls", server), ("client", client)):
        pair.cert_chain_pems[0].write_to_path(folder / f"{name}.crt")
        pair.private_key_pem.write_to_path(folder / f"{name}.key")


def stolen_name() -> str:
    """A name for a consumer that nobody has yet, and that the judge does not miss."""
    return f"{THIEF}-{uuid4().hex}"


def without(access: Access, *fields: str) -> Access:
    """Credentials that lack something."""
    return replace(access, **dict.fromkeys(fields))
