"""The server's configuration, as the pods find it mounted: each mixture of components, on real servers."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import nats
import pytest
import trustme

from services.ctl.setup.nats_files import files
from services.ctl.setup.permissions import FILE, key_file, rendered
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer, server_command
from shared.bus.nats.jetstream_api import ApiError, call
from shared.bus.nats.stream_drift import check
from shared.bus.port import UnavailableError
from shared.bus.streams import DATA, load
from shared.settings.access import Access, inbox_of, public_key
from shared.testing.nats_server import nats_server
from tests.contract.deploy.rendering import COMPONENTS, kustomized
from tests.contract.kubernetes.envtest import free_ports

SERVERS: Final = 3
ALL_SECONDS: Final = 120


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
    server = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tls / "ca.crt")
    server.cert_chain_pems[0].write_to_path(tls / "tls.crt")
    server.private_key_pem.write_to_path(tls / "tls.key")
    configuration, _ = rendered(tmp_path / "keys", ())
    (tmp_path / "nats-permissions").mkdir()
    (tmp_path / "nats-permissions" / FILE).write_text(configuration)
    return tmp_path


@pytest.mark.parametrize("components", [(), *((one,) for one in COMPONENTS), COMPONENTS])
def test_nats_server_accepts_the_mounted_configuration(
    folder: Path, components: tuple[str, ...]
) -> None:
    replaced = {"/etc/nats-tls": str(folder / "tls"), "$POD_NAME": "nats-0"}
    entry = mounted(folder, components, replaced)
    done = subprocess.run(
        [*server_command(folder, port=-1, config=entry), "-t"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@asynccontextmanager
async def three(folder: Path) -> AsyncIterator[list[EmbeddedServer]]:
    """What the pods of components/ha run, on three ports instead of three addresses."""
    ports = free_ports(SERVERS)
    routes = {f"nats-{n}.nats:6222": f"127.0.0.1:{port}" for n, port in enumerate(ports)}
    servers = []
    for number, port in enumerate(ports):
        replaced = routes | {
            "/etc/nats-tls": str(folder / "tls"),
            "$POD_NAME": f"nats-{number}",
            "0.0.0.0:6222": f"127.0.0.1:{port}",
            "8222": "-1",
        }
        own = folder / str(number)
        entry = mounted(own, ("ha", "nats-auth", "tls"), replaced)
        (own / "nats-permissions").symlink_to(folder / "nats-permissions")
        servers.append(EmbeddedServer(own, config=entry))
    try:
        await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        await asyncio.gather(*(server.kill() for server in servers))


async def test_three_servers_with_tls_and_users_replicate_every_stream(folder: Path) -> None:
    tls = folder / "tls"
    access = Access(
        nkey=key_file(folder / "keys", "bus"),
        ca=tls / "ca.crt",
        certificate=tls / "tls.crt",
        private_key=tls / "tls.key",
    )
    async with three(folder) as servers, asyncio.timeout(ALL_SECONDS):
        while True:
            try:
                report = await apply_at(servers[0].url, replicas=SERVERS, access=access)
                break
            except (ApiError, UnavailableError, nats.errors.Error):
                await asyncio.sleep(0.1)  # They have not found one another yet.
        assert report.ok, report
        client = await nats.connect(servers[1].url, **access.options())
        try:
            for stream in load().configs():
                found = await call(client, f"STREAM.INFO.{stream}")
                assert found["config"]["num_replicas"] == SERVERS, stream
        finally:
            await client.close()
        with pytest.raises(UnavailableError):
            await apply_at(servers[1].url, access=Access(ca=tls / "ca.crt"))


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
