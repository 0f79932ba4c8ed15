"""A TaskRun on a static host, with all real parts: bus server, SSH, one-time password, curl, a cluster."""

import asyncio
import base64
import io
import json
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from secrets import token_bytes
from typing import Any, Protocol

import pytest
import structlog

from services.patcher import app as patcher
from services.patcher.settings import PatcherSettings
from services.provisioner import app as provisioner
from services.provisioner.hosts.ssh import SshHosts
from services.provisioner.keys.one_time import OneTimeKeyStore
from services.provisioner.keys.one_time_server import OneTimeKeyServer
from services.provisioner.settings import ProvisionerSettings
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp
from shared.bus.streams import load
from shared.contracts.kube.kinds import CONFIG_MAP, EVENT, NAMESPACE, SECRET, TASK_RUN, Kind, Object
from shared.contracts.messages.observed import Synced
from shared.kube.port import NotFoundError
from shared.runtime.certificates import CertificateFolder, ReloadingContext
from shared.testing.builders import observed_object
from shared.testing.nats_server import nats_server
from shared.testing.waiting import eventually
from tests.clock import now
from tests.unit.provisioner.harness import NAMESPACE as OPERATOR
from tests.unit.provisioner.harness import done, task_run
from tests.unit.provisioner.ssh_host import SshHost, ssh_host

CURL = shutil.which("curl")
PREFIX = "build.appstudio.redhat.com/"


class Runnable(Protocol):
    async def run(self) -> None: ...


class Setup:
    """Plays the watcher, Tekton, and the build script."""

    def __init__(self, bus: NatsBus, kube: LocalKube, host: SshHost, folder: Path) -> None:
        self.bus = bus
        self.kube = kube
        self.host = host
        self.folder = folder
        self._version = 0

    async def observe(self, kind: Kind, obj: Object) -> None:
        self._version += 1
        await self.bus.publish(observed_object(kind, obj, version=self._version))

    async def create_build(self, name: str) -> Object:
        wanted = task_run(name, "linux/ppc64le")
        created = await self.kube.create(
            TASK_RUN, {key: wanted[key] for key in ("apiVersion", "kind", "metadata", "spec")}
        )
        status = {"status": wanted["status"]}
        await self.kube.patch(TASK_RUN, "team-a", name, status, subresource="status")
        obj = {**wanted, "metadata": created["metadata"]}
        await self.observe(TASK_RUN, obj)
        return obj

    async def secret(self, name: str) -> dict[str, str]:
        data: dict[str, str] = {}

        async def there() -> bool:
            try:
                secret = await self.kube.get(SECRET, "team-a", f"multi-platform-ssh-{name}")
            except NotFoundError:
                return False
            data.update(
                {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
            )
            return True

        await eventually(there)
        return data

    async def fetch(self, secret: dict[str, str]) -> bytes:
        """Run the shell steps of the build script of konflux-ci/multi-platform-controller@c28c4a01."""
        ssh = self.folder / "ssh"
        ssh.mkdir(exist_ok=True)
        for key, value in secret.items():
            (ssh / key).write_text(value)
        script = (
            f"cd {ssh}; if [ -e error ]; then cat error; exit 1; fi\n"
            f"curl --cacert otp-ca -XPOST -d @otp $(cat otp-server) > id_rsa\n"
            "echo >> id_rsa; chmod 0400 id_rsa"
        )
        process = await asyncio.create_subprocess_exec("sh", "-ec", script)
        assert await process.wait() == 0
        return (ssh / "id_rsa").read_bytes()

    async def everything_on_the_bus(self) -> bytes:
        texts = []
        for log in load().logs:
            async for entry in self.bus.replay(log):
                if isinstance(entry, CaughtUp):
                    break
                texts.append(entry.data + json.dumps(dict(entry.headers)).encode())
        return b"\n".join(texts)


class Traces:
    """Collects the text of all spans."""

    def __init__(self) -> None:
        self.spans: list[str] = []

    def span(self, name: str, **said: Any) -> None:
        self.spans.append(f"{name} {said}")

    def close(self) -> None:
        """Does nothing: spans are not sent."""


@asynccontextmanager
async def running(tmp_path: Path, traces: "Traces") -> AsyncIterator[Setup]:
    async with AsyncExitStack() as stack:
        url = (await stack.enter_async_context(nats_server())).url
        host = await stack.enter_async_context(ssh_host(tmp_path / "host"))
        kube = LocalKube(Api(now=now, random=Random(1)))
        for name in ("team-a", OPERATOR):
            await kube.create(NAMESPACE, {"metadata": {"name": name}})

        async def bus(instance: str) -> NatsBus:
            made = NatsBus(url=url, instance=instance, service=instance, now=now)
            stack.push_async_callback(made.stop)
            return made

        ours, theirs, test = [await bus(name) for name in ("provisioner", "patcher", "test")]
        folder = CertificateFolder(tmp_path / "otp", ["localhost"])
        folder.ensure(now())
        tls = ReloadingContext(folder.certificate, folder.key)
        keys = OneTimeKeyStore(
            cluster="hub", bus=ours, url="", authority=lambda: folder.ca_bundle().decode(),
            life_seconds=600, now=now, entropy=token_bytes,
        )  # fmt: skip
        server = OneTimeKeyServer(keys, host="127.0.0.1", port=0, tls=lambda: tls.context)
        keys._url = f"https://localhost:{await server.start()}/otp"
        stack.push_async_callback(server.stop)
        services: list[Runnable] = [
            provisioner.assemble(
                settings=ProvisionerSettings(sweep_seconds=1), bus=ours, providers={},
                hosts=SshHosts(host.secrets), keys=keys, now=now, random=Random(1),
                tracing=traces,
            ),
            patcher.assemble(
                settings=PatcherSettings(), bus=theirs, kube=kube, now=now, tracing=traces
            ),
        ]  # fmt: skip
        for one in (ours, theirs, test):
            await one.start()
        tasks = [asyncio.create_task(service.run()) for service in services]
        stack.push_async_callback(_cancel, tasks)
        setup = Setup(test, kube, host, tmp_path)
        config = {
            "host.power-1.address": "127.0.0.1",
            "host.power-1.port": str(host.port),
            "host.power-1.host-key": host.host_key,
            "host.power-1.user": "admin",
            "host.power-1.platform": "linux/ppc64le",
            "host.power-1.secret": "power-ssh",
            "host.power-1.concurrency": "1",
        }
        metadata = {"name": "host-config", "namespace": OPERATOR, "uid": "config"}
        await setup.observe(CONFIG_MAP, {"metadata": metadata, "data": config})
        await setup.bus.publish(Synced(cluster="hub", epoch="1", kinds=[], at=now()))
        yield setup


async def _cancel(tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def all_logs() -> Iterator[io.StringIO]:
    """Everything that is logged meanwhile."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger().addHandler(handler)
    before = structlog.get_config()
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(heard), cache_logger_on_first_use=False
    )
    try:
        yield heard
    finally:
        structlog.configure(**before)
        logging.getLogger().removeHandler(handler)


@pytest.mark.skipif(CURL is None, reason="there is no curl")
async def test_build_logs_in_with_upstream_script_and_no_key_leaks(
    tmp_path: Path,
) -> None:
    with all_logs() as heard:
        traces = Traces()
        async with running(tmp_path, traces) as setup:
            build = await setup.create_build("build")
            secret = await setup.secret("build")
            assert sorted(secret) == ["host", "otp", "otp-ca", "otp-server", "user-dir"]
            user, _, address = secret["host"].partition("@")
            assert (address, secret["user-dir"]) == ("127.0.0.1", f"/home/{user}")

            private_key = await setup.fetch(secret)
            assert await setup.host.log_in(user, private_key) == user

            async def marked() -> bool:
                marks = (await setup.kube.get(TASK_RUN, "team-a", "build"))["metadata"]
                return bool(
                    marks.get("labels", {}).get(f"{PREFIX}assigned-host") == "power-1"
                    and marks.get("finalizers") == ["appstudio.io/multi-platform-finalizer"]
                )

            await eventually(marked)
            waiting = await setup.create_build("second")

            async def is_pending() -> bool:
                events = (await setup.kube.list(EVENT, namespace="team-a")).items
                return any(
                    event["reason"] == "Pending" and "are busy" in event["message"]
                    for event in events
                )

            await eventually(is_pending)
            await setup.observe(TASK_RUN, done(build))
            second = await setup.secret("second")
            assert await setup.host.log_in(
                second["host"].partition("@")[0], await fresh(setup, second)
            )
            assert not setup.host.authorized(user), "the user is removed before the slot is reused"

            async def free() -> bool:
                marks = (await setup.kube.get(TASK_RUN, "team-a", "build"))["metadata"]
                left = {f"{PREFIX}target-platform": "linux-ppc64le"}
                return not marks.get("finalizers") and marks.get("labels") == left

            await eventually(free)
            await setup.observe(TASK_RUN, done(waiting))

            async def empty() -> bool:
                return not any(setup.host.home.iterdir())

            await eventually(empty)
            written = await setup.everything_on_the_bus()
            events = json.dumps((await setup.kube.list(EVENT, namespace="team-a")).items)
    spans = "\n".join(traces.spans)
    assert "machine allocate" in spans
    assert "machine hold" in spans
    said = written + events.encode() + heard.getvalue().encode() + spans.encode()
    for line in private_key.splitlines()[1:-2]:
        assert line not in said
    assert secret["otp"].encode() not in said
    assert b"PRIVATE KEY" not in said
    assert b"HostAssigned" in said, "the search would find a leak"


async def fresh(setup: Setup, secret: dict[str, str]) -> bytes:
    for path in (setup.folder / "ssh").iterdir():
        path.chmod(0o600)
        path.unlink()
    return await setup.fetch(secret)


def test_host_script_has_valid_syntax() -> None:
    result = subprocess.run(["sh", "-n", "services/provisioner/hosts/host.sh"], check=False)
    assert result.returncode == 0
