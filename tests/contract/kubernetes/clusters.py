"""Where the cluster suite finds a cluster: the binaries that KUBEBUILDER_ASSETS names, else K3s in Docker.

K3s runs without nodes and with the garbage collector as its only controller, unless a test wants more, in the
network of this machine, so that its API server reaches a webhook on 127.0.0.1 as one from the folder does.
"""

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
import yaml

from shared.settings.ports import reserve_port
from tests.contract.kubernetes.envtest import (
    GARBAGE_COLLECTOR,
    START_SECONDS,
    api_server,
    client_context,
    found,
    wait_ready,
    write_credentials,
)

COMPOSE: Final = Path(__file__).parents[3] / "compose.yaml"
NATS_CONFIG: Final = Path(__file__).parents[3] / "deploy" / "nats" / "server.conf"
DOCKER_SOCKET: Final = "unix:///var/run/docker.sock"
NATS_PORT: Final = 4222
K3S_IMAGE: Final = "docker.io/rancher/k3s:v1.33.1-k3s1"
K3S_KUBECONFIG: Final = "/etc/rancher/k3s/k3s.yaml"
LOG_BYTES: Final = 4000
NOTHING: Final = (
    "no cluster: KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd, "
    "and no Docker engine answers"
)


class Cluster(Protocol):
    """An API server that can be killed and comes back with what it held."""

    kubeconfig: Path
    collects_garbage: bool

    def start(self) -> None:
        """Return when it is ready."""

    def kill(self) -> None:
        """As ``kill -9`` does; what is stored stays."""


@contextmanager
def some_cluster(
    folder: Path, controllers: Sequence[str] = (GARBAGE_COLLECTOR,)
) -> Iterator[Cluster]:
    """One of its own, for as long as the context lasts. Skips the test where there is none to be had.

    Whoever names other `controllers` cannot do without them: a folder without their program is skipped, too.
    """
    assets = found(os.environ.get("KUBEBUILDER_ASSETS"))
    if assets is not None:
        with api_server(assets, folder, controllers=controllers) as server:
            if not server.collects_garbage and set(controllers) != {GARBAGE_COLLECTOR}:
                pytest.skip(f"KUBEBUILDER_ASSETS={assets} has no kube-controller-manager")
            yield server
    elif docker_answers():
        with k3s(folder, controllers) as server:
            yield server
    else:
        pytest.skip(NOTHING)


@contextmanager
def some_nats() -> Iterator[str | None]:
    """URL of a NATS server in Docker, where the cluster is there too; None: start the embedded one."""
    if found(os.environ.get("KUBEBUILDER_ASSETS")) is not None or not docker_answers():
        yield None
        return
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only with Docker

    container = DockerContainer(yaml.safe_load(COMPOSE.read_text())["services"]["nats"]["image"])
    container.with_exposed_ports(NATS_PORT)
    container.with_volume_mapping(str(NATS_CONFIG), "/etc/nats/server.conf", "ro")
    container.with_command("--config /etc/nats/server.conf --store_dir /data")
    container.start()
    try:
        address = container.get_container_host_ip(), int(container.get_exposed_port(NATS_PORT))
        wait_greeting(address)
        yield f"nats://{address[0]}:{address[1]}"
    finally:
        container.stop()


def wait_greeting(address: tuple[str, int]) -> None:
    """Until a NATS server says who it is: Docker takes connections before anybody is behind them."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(address, timeout=5) as probe:
            if probe.recv(16).startswith(b"INFO"):
                return
        time.sleep(0.2)
    raise RuntimeError(f"no NATS server at {address}")


@cache
def docker_answers() -> bool:
    """Whether there is an engine, asked once. The library leaks a socket where there is none."""
    host = os.environ.get("DOCKER_HOST", DOCKER_SOCKET)
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(5)
            if probe.connect_ex(host.removeprefix("unix://")) != 0:
                return False
    docker = import_module("docker")  # It has no types, and is needed only without the assets.
    client = docker.from_env(timeout=10)
    try:
        return bool(client.ping())
    finally:
        client.close()


class K3s:
    """K3s in a container: an API server with its store in one process."""

    collects_garbage = True

    def __init__(self, container: Any, folder: Path, port: int) -> None:
        self._container = container
        self._folder = folder
        self._url = f"https://127.0.0.1:{port}"
        self.kubeconfig = folder / "kubeconfig"

    def start(self) -> None:
        """Start it, or start it again, and return when it is ready."""
        self._container.start()
        until = time.monotonic() + START_SECONDS
        while not self._fetch_kubeconfig():
            if time.monotonic() > until:
                raise RuntimeError(f"K3s wrote no kubeconfig: {self._logs()}")
            time.sleep(0.5)
        wait_ready(
            f"{self._url}/readyz",
            client_context(self._folder),
            alive=self._is_running,
            logs=self._logs,
        )

    def kill(self) -> None:
        """As ``kill -9`` does; its database stays in the container."""
        self._container.kill()
        self._container.wait()

    def _fetch_kubeconfig(self) -> bool:
        answer = self._container.exec_run(["cat", K3S_KUBECONFIG])
        document = yaml.safe_load(answer.output) if answer.exit_code == 0 else None
        if not document or not document.get("users"):
            return False  # It is being written, anew after each start.
        self.kubeconfig.write_bytes(answer.output)
        write_credentials(document, self._folder)
        return True

    def _is_running(self) -> bool:
        self._container.reload()
        return bool(self._container.status == "running")

    def _logs(self) -> str:
        text: bytes = self._container.logs(tail=40)
        return text[-LOG_BYTES:].decode(errors="replace")


@contextmanager
def k3s(folder: Path, controllers: Sequence[str]) -> Iterator[K3s]:
    """Run K3s for as long as the context lasts."""
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - only with Docker

    folder.mkdir(parents=True, exist_ok=True)
    port, manager = k3s_ports()
    container = DockerContainer(K3S_IMAGE)
    container.with_kwargs(network_mode="host")
    container.with_command(k3s_command(port, manager, controllers))
    container.start()
    try:
        server = K3s(container.get_wrapped_container(), folder, port)
        server.start()
        yield server
    finally:
        container.stop()


def k3s_command(port: int, manager: int, controllers: Sequence[str]) -> str:
    """A server without nodes, on loopback, in which no other controllers act."""
    return " ".join(
        [
            "server",
            "--disable-agent",
            "--disable-scheduler",
            "--disable-cloud-controller",
            "--disable-helm-controller",
            "--disable-network-policy",
            "--egress-selector-mode=disabled",
            "--flannel-backend=none",
            "--disable=coredns,local-storage,metrics-server,servicelb,traefik",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--https-listen-port={port}",
            f"--kube-controller-manager-arg=secure-port={manager}",
            f"--kube-controller-manager-arg=controllers={','.join(controllers)}",
            "--kube-apiserver-arg=endpoint-reconciler-type=none",
        ]
    )


def k3s_ports() -> tuple[int, int]:
    """A port whose successor is free as well (its API server takes that), and another."""
    while True:
        port = reserve_port()
        with suppress(OSError):
            reserve_port(port + 1)
            return port, reserve_port()
