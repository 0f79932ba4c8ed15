"""Each service's user on a real server, over TLS: it can do its work, and nothing that is another's."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from services.ctl.dev.secure import Secured, secure
from services.ctl.programs import SERVICES
from shared.bus.admin.apply import apply_at
from shared.bus.admin.permissions import (
    API,
    OWN_API,
    permissions,
    rights_of,
)
from shared.bus.embedded import EmbeddedServer
from shared.bus.filters import covers
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.port import UnavailableError
from shared.bus.stream_reader import StreamReaderError, open_stream_reader
from shared.bus.streams import load, view_of
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import DeadLetter
from shared.runtime.certificates import issue_authority, issue_client
from shared.settings.access import Access, new_key
from shared.settings.ports import reserve_port
from shared.testing.deployed import bus_of
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.clock import now

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
USERS = rights_of()
GIVEN = permissions(USERS)
FREE = {name for name, rights in USERS.items() if rights.everything}
WORKERS = tuple(program.value for program in SERVICES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[EmbeddedServer, Secured]]:
    secured = secure(folder / "users", (), now())
    running = await EmbeddedServer(folder, config=secured.config).start()
    try:
        report = await apply_at(running.url, access=secured.access("bus"))
        assert report.ok, report
        yield running, secured
    finally:
        await running.kill()


@asynccontextmanager
async def intruder(url: str, access: Access) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client with a user's key, and what the server says to it."""
    said: list[str] = []

    async def on_error(error: Exception) -> None:
        said.append(str(error).lower())

    client = await nats.connect(url, error_cb=on_error, **access.options())
    try:
        yield client, said
    finally:
        await client.close()


def attempts(user: str) -> Iterator[str]:
    """A subject of each kind that another may publish to and this one may not, and what nobody may."""
    return (one for one in _anothers(user) if not allowed(user, one))


def allowed(user: str, subject: str) -> bool:
    """Whether the file gives it to this user as well, as it gives the door's keeper what spokes ask."""
    given = GIVEN[user]
    covered = any(covers(mine, subject) for mine in given.publish)
    return covered and not any(covers(never, subject) for never in given.never)


def _anothers(user: str) -> Iterator[str]:
    for given in GIVEN.values():
        yield from map(concrete, given.publish)
    for log in load().logs:
        yield f"$JS.API.STREAM.DELETE.{log}"
        yield f"$JS.API.STREAM.PURGE.{log}"
        yield f"$JS.API.STREAM.UPDATE.{view_of(log)}"
        yield f"$JS.API.STREAM.MSG.DELETE.{log}"
        if log not in USERS[user].reads:
            yield f"$JS.API.CONSUMER.CREATE.{view_of(log)}.thief"
            yield f"$JS.API.STREAM.MSG.GET.{view_of(log)}"
        if log not in USERS[user].purges:
            yield f"$JS.API.STREAM.PURGE.{view_of(log)}"
    for other, rights in USERS.items():
        for log, durables in rights.works.items() if other != user else ():
            for durable in durables:
                yield f"$JS.API.CONSUMER.DELETE.{view_of(log)}.{durable}"
                yield f"$JS.API.CONSUMER.MSG.NEXT.{view_of(log)}.{durable}"
                yield f"$JS.ACK.{view_of(log)}.{durable}.1.1.1.1.0"
    yield "$JS.API.STREAM.CREATE.MINE"
    yield "sluice.workload"
    yield "elsewhere"


def concrete(pattern: str) -> str:
    return pattern.replace("*", "any").replace(">", "any.one")


async def refused_all(client: Client, said: list[str], subjects: list[str]) -> list[str]:
    """Publish to all; return those to which the server did not say no."""
    for subject in subjects:
        await client.publish(subject, b"{}", reply="_INBOX.x")
        await client.flush(timeout=60)
    left = subjects
    for _ in range(6000):
        await client.flush(timeout=60)
        told = "\n".join(said)
        left = [one for one in left if not any(f'publish to "{n}"' in told for n in names(one))]
        if not left:
            break
        await asyncio.sleep(0.01)
    return left


def names(subject: str) -> tuple[str, str]:
    """As the user says it, and as its account maps it."""
    return subject.lower(), subject.replace(API, OWN_API, 1).lower()


async def test_user_cannot_publish_to_subjects_of_others(folder: Path) -> None:
    async with server(folder) as (running, secured):
        tried = 0
        for user in sorted(USERS.keys() - FREE):
            wrong = [*dict.fromkeys(attempts(user))]
            assert len(wrong) > 50, user
            async with intruder(running.url, secured.access(user)) as (client, said):
                assert await refused_all(client, said, wrong) == [], user
            tried += len(wrong)
        async with open_stream_reader(running.url, access=secured.access("operator")) as look:
            for log in load().logs:
                info = await look.call(f"STREAM.INFO.{log}")
                assert info["state"]["messages"] == 0, f"something got into {log}"
        assert tried > 500


async def test_user_can_publish_to_all_its_own_subjects(folder: Path) -> None:
    async with server(folder) as (running, secured):
        for user, rights in USERS.items():
            async with intruder(running.url, secured.access(user)) as (client, said):
                for pattern in rights.writes:
                    reply = await client.request(concrete(pattern), b"{}", timeout=PATIENCE_SECONDS)
                    assert b'"seq"' in reply.data, (user, pattern)
                for log in rights.reads if rights.consumers else ():
                    created = await call(
                        client,
                        f"CONSUMER.CREATE.{view_of(log)}.reader-{user}",
                        {
                            "stream_name": view_of(log),
                            "config": {"name": f"reader-{user}", "ack_policy": "none"},
                        },
                    )
                    assert created["name"] == f"reader-{user}"
                assert said == [], user


async def test_user_cannot_subscribe_to_inboxes_of_others(folder: Path) -> None:
    async with server(folder) as (running, secured):
        async with intruder(running.url, secured.access("quota")) as (quota, _):
            theirs = quota.new_inbox()
        for user in (*WORKERS, "viewer"):
            async with intruder(running.url, secured.access(user)) as (client, said):
                own = client.new_inbox()
                await client.subscribe(own)
                await client.flush()
                assert said == [], "its own"
                for wrong in ("_INBOX.>", ">", "sluice.key.>", "$JS.API.>", theirs):
                    if user == "quota" and wrong == theirs:
                        continue
                    said.clear()
                    await client.subscribe(wrong)
                    await client.flush()
                    await eventually(partial(bool, said), f"{user} hears {wrong}")


@pytest.mark.parametrize("wide", ["sluice.>", "sluice.*.*.any.>", "sluice.*.any.any.*"])
async def test_viewer_reads_a_namespace_but_neither_keys_nor_requests(
    folder: Path, wide: str
) -> None:
    async with server(folder) as (running, secured):
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def on_message(message: Msg) -> None:
            await heard.put(message.subject)

        async with (
            intruder(running.url, secured.access("viewer")) as (viewer, said),
            intruder(running.url, secured.access("operator")) as (operator, _),
        ):
            await viewer.subscribe(wide, cb=on_message)
            await viewer.flush()
            patterns = (*USERS["viewer"].deaf, "sluice.admission.>")
            async with asyncio.timeout(PATIENCE_SECONDS):
                # Once in some dozen times the server sends none of the first few.
                while heard.empty():
                    for pattern in patterns:
                        await operator.publish(f"{pattern.removesuffix('>')}any.any.one", b"{}")
                    await operator.flush()
                    await viewer.flush()
            while not heard.empty():
                assert heard.get_nowait() == "sluice.admission.any.any.one"
            assert said == []


async def test_service_reads_works_answers_and_releases_its_lease_as_its_own_user(
    folder: Path,
) -> None:
    async with server(folder) as (running, secured):

        def bus(user: str) -> NatsBus:
            return bus_of(user, running.url, secured.access(user))

        quota, patcher = bus("quota"), bus("patcher")
        watcher = bus("watcher")

        async def answer(data: bytes) -> bytes:
            return data.upper()

        await quota.respond("sluice.rpc.quota.explain", answer)
        buses = (quota, patcher, watcher)
        for one in buses:
            await one.start()
        body = b"x" * 300_000
        ref = await watcher.put_body("big", body)
        assert await patcher.get_body(ref) == body
        await watcher.drop_body(ref)
        await watcher.publish(Synced(cluster="hub", epoch="1", kinds=[], at=NOON))
        letter = DeadLetter(
            service="patcher",
            original_subject="sluice.admission.hub.a.w",
            original_sequence=1,
            body="",
            reason="no",
            at=NOON,
        )
        await patcher.publish(letter)
        lease = await watcher.lease("watcher-hub")
        await lease.release()
        async with open_stream_reader(running.url, access=secured.access("viewer")) as look:
            assert await look.ask("sluice.rpc.quota.explain", b"why") == b"WHY"
            await eventually(lambda: look.now("OBSERVED"))
            assert [seen.subject for seen in await look.replay("DEAD")]
        for one in buses:
            await one.stop()
        assert "Violation" not in running.log


async def test_nats_command_works_with_the_context_file_of_a_user(folder: Path) -> None:
    port = reserve_port()
    secured = secure(folder / "users", (), now(), url=f"nats://127.0.0.1:{port}")
    running = await EmbeddedServer(folder, port=port, config=secured.config).start()
    try:
        await apply_at(running.url, access=secured.access("bus"))
        for user in USERS:
            context = json.loads((secured.folder / f"{user}.json").read_text())
            tls = ssl.create_default_context(cafile=context["ca"])
            tls.load_cert_chain(context["cert"], context["key"])
            client = await nats.connect(
                context["url"],
                tls=tls,
                nkeys_seed=context["nkey"],
                inbox_prefix=context["inbox_prefix"],
                allow_reconnect=False,
            )
            assert await call(client, "STREAM.INFO.WORKLOADS")
            await client.close()
    finally:
        await running.kill()


def other_key(access: Access, folder: Path) -> Access:
    path = folder / "stranger.nk"
    path.write_text(new_key()[0])
    return replace(access, nkey=path)


def other_authority(access: Access, folder: Path) -> Access:
    path = folder / "other-ca.crt"
    path.write_bytes(issue_authority(now()).certificate_pem())
    return replace(access, ca=path)


def others_certificate(access: Access, folder: Path) -> Access:
    pair = issue_client(issue_authority(now()), "sluicegate", now())
    (folder / "other.crt").write_bytes(pair.certificate_pem())
    (folder / "other.key").write_bytes(pair.key_pem())
    return replace(access, certificate=folder / "other.crt", private_key=folder / "other.key")


REFUSED = {
    "a key that the server does not know": other_key,
    "no key": lambda access, _: replace(access, nkey=None),
    "no certificate": lambda access, _: replace(access, certificate=None, private_key=None),
    "a certificate of another authority": others_certificate,
    "a server whose authority is not ours": other_authority,
}


async def test_client_without_credentials_cannot_connect(folder: Path) -> None:
    async with server(folder) as (running, secured):
        good = secured.access("viewer")
        async with open_stream_reader(running.url, access=good) as look:
            assert (await look.call("STREAM.INFO.OBSERVED"))["state"]["messages"] == 0
        for what, spoil in REFUSED.items():
            with pytest.raises(StreamReaderError):
                async with open_stream_reader(running.url, access=spoil(good, folder)):
                    pytest.fail(what)
            with pytest.raises(UnavailableError):
                await apply_at(running.url, access=spoil(secured.access("bus"), folder))


async def test_client_without_tls_sends_nothing_to_a_server_that_requires_it(folder: Path) -> None:
    async with server(folder) as (running, secured):
        plain = replace(secured.access("viewer"), ca=None, certificate=None, private_key=None)
        with pytest.raises((NatsError, OSError, ssl.SSLError)):
            await nats.connect(
                running.url,
                allow_reconnect=False,
                max_reconnect_attempts=1,
                error_cb=quiet,
                **plain.options(),
            )


async def quiet(_error: Exception) -> None:
    """What is wrong is raised as well."""


async def test_renewed_certificate_is_used_at_the_next_connection(folder: Path) -> None:
    async with server(folder) as (running, secured):
        access = secured.access("watcher")
        bus = bus_of("watcher", running.url, access)
        await bus.start()
        # The new one is of another authority: the server must refuse it, which shows that it was read.
        pair = issue_client(issue_authority(now()), "renewed", now() + timedelta(hours=2))
        assert access.certificate is not None
        assert access.private_key is not None
        good = access.certificate.read_bytes(), access.private_key.read_bytes()
        access.certificate.write_bytes(pair.certificate_pem())
        access.private_key.write_bytes(pair.key_pem())
        await running.kill()
        await running.start()
        await eventually(lambda: "TLS handshake error" in running.log, "it is let in")
        assert not bus.connected
        access.certificate.write_bytes(good[0])
        access.private_key.write_bytes(good[1])
        await eventually(lambda: bus.connected, "it stays out")
        await bus.stop()
