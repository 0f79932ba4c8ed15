"""The server's configuration, as the pods find it mounted: each mixture of components, on real servers."""

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import nats
import pytest
import trustme

from services.ctl.setup.nats_files import files
from services.ctl.setup.permissions import FILE, key_file, rendered
from shared.bus.admin.apply import Report, apply_at
from shared.bus.embedded import EmbeddedServer, server_command
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import ApiError, call
from shared.bus.nats.stream_drift import check
from shared.bus.port import Entry, UnavailableError
from shared.bus.streams import DATA, load
from shared.contracts.messages.admissions import Admission, AdmissionState, Term
from shared.contracts.messages.base import EPOCH
from shared.settings.access import Access, inbox_of, public_key
from shared.settings.ports import reserve_port
from shared.testing.deployed import bus_of
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.contract.deploy.rendering import COMPONENTS, kustomized

SERVERS: Final = 3
ALL_SECONDS: Final = 600
NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)


def mounted(folder: Path, components: tuple[str, ...], replaced: dict[str, str]) -> Path:
    """What /etc/nats holds, with `replaced` for what is said of a pod's surroundings; the entry."""
    [files] = [
        one["data"]
        for one in kustomized("hub", components)
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("nats-config-")
    ]
    (folder / "nats").mkdir(parents=True)
    for name, text in files.items():
        for old, new in replaced.items():
            text = text.replace(old, new)  # noqa: PLW2901 - one after the other
        (folder / "nats" / name).write_text(text)
    return folder / "nats" / "pod.conf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates and users, as Secrets and a ConfigMap give them to the pods."""
    tls = tmp_path / "tls"
    tls.mkdir()
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    authority.cert_pem.write_to_path(tls / "ca.crt")
    server.cert_chain_pems[0].write_to_path(tls / "tls.crt")
    server.private_key_pem.write_to_path(tls / "tls.key")
    configuration, _ = rendered(tmp_path / "keys", ())
    (tmp_path / "nats-permissions").mkdir()
    (tmp_path / "nats-permissions" / FILE).write_text(configuration)
    return tmp_path


def pod_of(folder: Path) -> dict[str, str]:
    """What a pod has where the configuration says something else, on this machine."""
    return {
        "/etc/nats-tls": str(folder / "tls"),
        "$POD_NAME": "nats-0",
        "$NATS_ENCRYPTION_KEY": '"a key of the test"',
        "8222": "-1",
        "0.0.0.0": "127.0.0.1",
    }


@pytest.mark.parametrize("components", [(), *((one,) for one in COMPONENTS), COMPONENTS])
def test_nats_server_accepts_the_mounted_configuration(
    folder: Path, components: tuple[str, ...]
) -> None:
    entry = mounted(folder, components, pod_of(folder))
    done = subprocess.run(
        [*server_command(folder, port=-1, config=entry), "-t"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@asynccontextmanager
async def three(
    folder: Path,
    *,
    components: tuple[str, ...] = (),
    replaced_at: Sequence[dict[str, str]] = ({}, {}, {}),
) -> AsyncIterator[list[EmbeddedServer]]:
    """What the pods of components/ha run, on three ports instead of three addresses."""
    ports = [reserve_port() for _ in range(SERVERS)]
    routes = {f"nats-{n}.nats:6222": f"localhost:{port}" for n, port in enumerate(ports)}
    servers = []
    for number, port in enumerate(ports):
        replaced = routes | {
            "/etc/nats-tls": str(folder / "tls"),
            "$POD_NAME": f"nats-{number}",
            "0.0.0.0:6222": f"127.0.0.1:{port}",
            "8222": "-1",
            **replaced_at[number],
        }
        own = folder / str(number)
        entry = mounted(own, ("ha", *components), replaced)
        (own / "nats-permissions").symlink_to(folder / "nats-permissions")
        servers.append(EmbeddedServer(own, config=entry))
    try:
        await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        await asyncio.gather(*(server.kill() for server in servers))


async def test_three_servers_store_stale_decision_and_every_reader_drops_it(folder: Path) -> None:
    handled: list[Admission] = []

    async def handle(entry: Entry) -> None:
        handled.append(entry.read(Admission))

    async with three(folder) as servers, asyncio.timeout(ALL_SECONDS), AsyncExitStack() as stack:
        await applied(servers[0].url, user_of(folder, "bus"))
        old, new, patcher, tracer = (
            bus_of(user, one.url, user_of(folder, user), now=lambda: NOON)
            for one, user in zip((*servers, servers[0]), USERS, strict=True)
        )
        patcher.work(
            "ADMISSIONS", "patcher-hub-admission", handle, filters=("sluice.admission.hub.>",)
        )
        for bus in (old, new, patcher, tracer):
            await bus.start()
            stack.push_async_callback(bus.stop)
        last = await old.publish(Term(term=1, holder="old", began_at=NOON), expect_last=0)
        last = await old.publish(decision("a", 1, "admitted"), expect_last=last)
        last = await new.publish(Term(term=2, holder="new", began_at=NOON), expect_last=last)
        last = await new.publish(decision("b", 2, "admitted"), expect_last=last)
        # On its way since before: what it predicted has come true.
        stale = await old.publish(decision("a", 1, "released"), expect_last=last)
        assert stale == last + 1, "three servers cannot refuse it"
        await new.publish(decision("c", 2, "admitted"), expect_last=stale)

        seen: list[Admission] = []
        items = await stack.enter_async_context(aclosing(tracer.replay("ADMISSIONS")))
        while not seen or seen[-1].name != "c":
            item = await anext(items)
            if isinstance(item, Entry) and "admission" in item.subject:
                seen.append(item.read(Admission))
        assert [(one.name, one.state) for one in seen] == [(n, "admitted") for n in "abc"]
        await eventually(lambda: any(one.name == "c" for one in handled))
        assert all(one.state == "admitted" for one in handled)
        [void] = await tracer.void("ADMISSIONS")
        assert (void.entry.sequence, void.valid and void.valid.sequence) == (stale, 2)
        await no_answer_counts_without_the_others(servers, (old, new, patcher))


async def no_answer_counts_without_the_others(
    servers: Sequence[EmbeddedServer], buses: Sequence[NatsBus]
) -> None:
    """The leader of a log that hears from no other server goes on answering for some seconds."""
    subject = decision("c", 2, "admitted").subject
    info = await call(buses[0].connection.nc, "STREAM.INFO.ADMISSIONS")
    leader = int(info["cluster"]["leader"].removeprefix("nats-"))
    others = [one for number, one in enumerate(servers) if number != leader]

    async def is_refused() -> bool:
        try:
            return await buses[leader].latest("ADMISSIONS", subject, current=True) is None
        except UnavailableError as error:
            return "has not heard from the others" in str(error)

    assert await buses[leader].latest("ADMISSIONS", subject, current=True) is not None
    for one in others:
        one.signal(signal.SIGSTOP)
    try:
        await eventually(is_refused)
    finally:
        for one in others:
            one.signal(signal.SIGCONT)


USERS: Final = ("quota", "quota", "patcher", "tracer")


def user_of(folder: Path, name: str) -> Access:
    """The access of a user of the hub."""
    tls = folder / "tls"
    return Access(
        nkey=key_file(folder / "keys", name),
        ca=tls / "ca.crt",
        certificate=tls / "tls.crt",
        private_key=tls / "tls.key",
    )


async def applied(url: str, access: Access) -> Report:
    """Make the streams on three servers, as soon as these have found one another."""

    async def made() -> Report | None:
        with suppress(ApiError, UnavailableError, nats.errors.Error):
            return await apply_at(url, replicas=SERVERS, cluster="hub", access=access)
        return None

    return await first_value(made, look_seconds=0.1)


def decision(name: str, term: int, state: AdmissionState) -> Admission:
    return Admission(
        cluster="hub", namespace="team-a", name=name, uid=f"u-{name}", state=state, term=term,
        number=ord(name) * 100 + ord(state[0]), decided_at=NOON,
    )  # fmt: skip


async def test_default_hub_refuses_clients_without_certificate_or_user(folder: Path) -> None:
    tls = folder / "tls"
    certificate = Access(
        ca=tls / "ca.crt", certificate=tls / "tls.crt", private_key=tls / "tls.key"
    )
    user = Access(ca=tls / "ca.crt", nkey=key_file(folder / "keys", "bus"))
    stranger = replace(certificate, nkey=stranger_key(folder))
    entry = mounted(folder, (), pod_of(folder))
    server = await EmbeddedServer(folder, config=entry).start()
    try:
        for access in (Access(), Access(ca=tls / "ca.crt"), certificate, user, stranger):
            with pytest.raises(UnavailableError):
                await apply_at(server.url, access=access)
        both = replace(certificate, nkey=key_file(folder / "keys", "bus"))
        assert (await apply_at(server.url, access=both)).ok
    finally:
        await server.kill()


def stranger_key(folder: Path) -> Path:
    """A key that is well formed, and that the hub has never heard of."""
    rendered(folder / "other-keys", ())
    return key_file(folder / "other-keys", "bus")


async def test_encryption_component_keeps_bodies_unreadable_on_disk(folder: Path) -> None:
    access, operator = user_of(folder, "bus"), user_of(folder, "operator")
    on_disk = {}
    for components in ((), ("encryption",)):
        own = folder / "-".join(("store", *components))
        entry = mounted(own, components, pod_of(folder))
        (own / "nats-permissions").symlink_to(folder / "nats-permissions")
        server = await EmbeddedServer(own, config=entry).start()
        try:
            assert (await apply_at(server.url, access=access)).ok
            client = await nats.connect(server.url, **operator.options())
            jetstream = client.jetstream(timeout=PATIENCE_SECONDS)
            await jetstream.publish("sluice.workload.hub.a.b", b"a body to look for")
            await client.close()
        finally:
            await server.stop()
        stored = (path.read_bytes() for path in own.rglob("*.blk"))
        on_disk[components] = any(b"a body to look for" in block for block in stored)
    assert on_disk == {(): True, ("encryption",): False}


def test_encryption_component_repeats_every_other_setting_of_jetstream() -> None:
    [files] = [
        one["data"]
        for one in kustomized("hub", ("encryption",))
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("nats-config-")
    ]
    ours, theirs = (settings_of(files[name]) for name in ("server.conf", "encryption.conf"))
    assert theirs - ours == {"cipher: chachapoly", "key: $NATS_ENCRYPTION_KEY"}
    assert ours <= theirs


def settings_of(text: str) -> set[str]:
    """The lines of the block `jetstream`, without comments."""
    block = text.partition("jetstream {")[2].partition("}")[0]
    lines = (line.strip() for line in block.splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def test_files_for_the_nats_command_match_streams_yaml() -> None:
    there = {path: json.loads(path.read_text()) for path in DATA.glob("*/*.json")}
    assert there == files(), "run `make contracts`"


async def test_streams_made_from_the_files_equal_those_of_sluice() -> None:
    async with nats_server(streams=False) as ours, nats_server() as theirs:
        by_file, by_sluice = await nats.connect(ours.url), await nats.connect(theirs.url)
        try:
            for path in sorted((DATA / "streams").glob("*.json")):
                await call(by_file, f"STREAM.CREATE.{path.stem}", json.loads(path.read_text()))
            for stream in load().configs():
                made = await call(by_file, f"STREAM.INFO.{stream}")
                known = await call(by_sluice, f"STREAM.INFO.{stream}")
                # A file cannot tell when its stream is made: without an epoch, it counts as the first.
                known["config"]["metadata"].pop(EPOCH, None)
                assert made["config"] == known["config"]
            assert await check(by_file) == []
        finally:
            await by_file.close()
            await by_sluice.close()


def test_every_user_has_a_context_with_its_inbox_prefix(folder: Path) -> None:
    for seed in (folder / "keys").glob("*.nk"):
        found = json.loads(seed.with_suffix(".json").read_text())
        assert found["nkey"] == str(seed)
        assert found["inbox_prefix"] == inbox_of(public_key(seed.read_text().strip()))
