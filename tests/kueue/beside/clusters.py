"""API servers with the Job controller and the garbage collector, each with pods that run."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from shared.kube.client import HttpKube
from tests.contract.kubernetes.envtest import GARBAGE_COLLECTOR, ApiServer, api_server, found
from tests.kueue.beside.pods import PodRunner

CONTROLLERS: Final = (GARBAGE_COLLECTOR, "job-controller", "namespace-controller")
NOTHING: Final = (
    "no Kueue: KUBEBUILDER_ASSETS names a folder with kube-apiserver, etcd and kube-controller-manager, "
    "KUEUE its tree, and KUEUE_MANAGER the manager that was built from it"
)


@dataclass(frozen=True, kw_only=True)
class Assets:
    """What is given."""

    servers: Path
    """Folder with kube-apiserver, etcd and kube-controller-manager."""

    tree: Path
    """Of Kueue: its manifests are read."""

    manager: Path
    """Kueue's manager, built from that tree."""


def given_assets() -> Assets:
    """What the environment gives. Skips the test if something is missing."""
    servers = found(os.environ.get("KUBEBUILDER_ASSETS"))
    tree, manager = os.environ.get("KUEUE"), os.environ.get("KUEUE_MANAGER")
    if servers is None or not tree or not manager:
        pytest.skip(NOTHING)
    if not (servers / "kube-controller-manager").exists():
        pytest.skip(NOTHING)
    return Assets(servers=servers, tree=Path(tree), manager=Path(manager))


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster without nodes in which pods run all the same."""

    name: str
    folder: Path
    server: ApiServer
    kube: HttpKube
    """May do everything."""

    pods: PodRunner

    @property
    def kubeconfig(self) -> Path:
        return self.server.kubeconfig


@asynccontextmanager
async def cluster(assets: Assets, folder: Path, name: str) -> AsyncIterator[Cluster]:
    """Run a cluster for as long as the context lasts; everything that it writes is under `folder`."""
    here = folder / name
    here.mkdir()
    with api_server(assets.servers, here, controllers=CONTROLLERS) as server:
        kube = HttpKube.from_kubeconfig(str(server.kubeconfig))
        pods = PodRunner(kube)
        try:
            async with pods.running():
                yield Cluster(name=name, folder=here, server=server, kube=kube, pods=pods)
        finally:
            await kube.close()
