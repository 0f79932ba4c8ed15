"""NATS's page of connections, subjects and streams asks nobody for a user: only the pod itself reaches it."""

import asyncio
import re
from pathlib import Path

from shared.bus.embedded import SERVER_ENVIRONMENT, server_command
from shared.testing.waiting import eventually
from tests.contract.deploy.rendering import kustomized, templates
from tests.contract.deploy.test_nats import folder, mounted, pod_of

__all__ = ["folder"]

POD = "127.0.0.2"
"""Stands for the pod's address, at which others reach it."""


async def test_monitor_listens_at_the_loopback_of_the_pod_only(folder: Path) -> None:
    entry = mounted(
        folder, ("spokes",), {**pod_of(folder), "0.0.0.0": POD, "port: 7422": "port: -1"}
    )
    log = folder / "log"
    binary, *_ = server_command(folder, port=-1)
    server = await asyncio.create_subprocess_exec(
        *(binary, "--config", str(entry), "--port", "-1"),
        *("--store_dir", str(folder / "store"), "--log", str(log)),
        env=SERVER_ENVIRONMENT,
    )
    try:
        await eventually(lambda: log.exists() and "Server is ready" in log.read_text())
        found = re.findall(r"(?:http monitor on|client connections on) ([\d.]+):", log.read_text())
        assert sorted(found) == ["127.0.0.1", POD]
    finally:
        server.kill()
        await server.wait()


def test_probes_of_nats_ask_the_monitor_from_within_the_pod() -> None:
    [template] = [one for name, one in templates(kustomized("hub")) if name == "nats"]
    [container] = [one for one in template["spec"]["containers"] if one["name"] == "nats"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["exec"]["command"][-1].startswith("http://127.0.0.1:8222/healthz")
    assert "monitor" not in {port["name"] for port in container["ports"]}
