"""A service that is built and never run leaves nothing open."""

import gc
import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from services.ctl.programs import SERVICES, Program
from shared.runtime.service import Parts
from shared.telemetry.tracing import NO_TRACING
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: secret}}]
"""
BESIDE_THE_SERVICES = {Program.TRACER: "services.tracer.app", Program.PAIRS: "services.ctl.pairs"}


@pytest.mark.parametrize("name", [*SERVICES, *BESIDE_THE_SERVICES])
async def test_service_that_never_ran_is_closed_by_what_it_registered(
    name: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    stops: list[Callable[[], Awaitable[None]]] = []
    module = importlib.import_module(BESIDE_THE_SERVICES.get(name, f"services.{name}.app"))
    left = tmp_path / "left"
    left.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(left))
    module.program().build(
        Parts(
            bus=MemoryBus(MemoryServer(), instance=name),
            tracing=NO_TRACING,
            on_stop=stops.append,
            beside=lambda _: None,
        )
    )
    for stop in reversed(stops):
        await stop()
    # What is still open says so when it is collected: pytest makes that an error.
    gc.collect()
    assert list(left.iterdir()) == []
