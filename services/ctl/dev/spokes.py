"""`sluice dev --spokes N`: clusters beside the hub, each simulated, with a watcher and a patcher."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.ctl.dev.supervisor import ChildSpec, Ready, Supervisor
from services.ctl.programs import Program
from services.ctl.setup.apply import apply_manifests
from services.ctl.setup.spokes import SPOKES_EXAMPLE, spoke_names
from services.whatif.manifests import load_manifests
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig
from shared.settings.ports import reserve_port

BEAT_SECONDS: Final = 2.0
"""Interval of heartbeats: short, so that the loss of a spoke shows soon on one machine."""

START_SECONDS: Final = 120.0

_PROGRAM: Final = (sys.executable, "-m", "services.ctl.main", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoke:
    """A running spoke."""

    name: str
    kubeconfig: Path

    def kube(self) -> HttpKube:
        """A client of the cluster. Close it."""
        return HttpKube(from_kubeconfig(str(self.kubeconfig)))


async def start_spokes(
    count: int,
    *,
    supervisor: Supervisor,
    directory: Path,
    environment: Callable[[str], Mapping[str, str]],
    answers: Callable[[int], Ready],
    speed: float,
    seed: int,
) -> list[Spoke]:
    """Start clusters and pairs; return when all are ready. Raises `CommandError`.

    `environment` returns the variables of a pair, for the name of its spoke.
    """
    spokes: list[Spoke] = []
    for index, name in enumerate(spoke_names(count), 1):
        port, kubeconfig = reserve_port(), directory / f"kubeconfig-{name}"
        kubeconfig.unlink(missing_ok=True)
        arguments = (
            *("--port", str(port), "--kubeconfig-out", str(kubeconfig)),
            *("--speed", f"{speed:g}", "--seed", str(seed * 100 + index)),
        )
        simulator = Program.SIMULATOR.value
        supervisor.start(
            ChildSpec(
                name=f"{simulator}-{name}",
                argv=(*_PROGRAM, simulator, *arguments),
                ready=answers(port),
                stop_order=1,
            )
        )
        spokes.append(Spoke(name=name, kubeconfig=kubeconfig))
    await supervisor.wait_ready(
        [f"{Program.SIMULATOR.value}-{spoke.name}" for spoke in spokes],
        timeout_seconds=START_SECONDS,
    )
    names = []
    for spoke in spokes:
        kube = spoke.kube()
        try:
            await apply_manifests(kube, load_manifests((SPOKES_EXAMPLE / "spoke.yaml",)))
        finally:
            await kube.close()
        names += [
            _start(program, spoke, supervisor, environment(spoke.name), answers)
            for program in (Program.WATCHER, Program.PATCHER)
        ]
    await supervisor.wait_ready(names, timeout_seconds=START_SECONDS)
    return spokes


def _start(
    program: Program,
    spoke: Spoke,
    supervisor: Supervisor,
    environment: Mapping[str, str],
    answers: Callable[[int], Ready],
) -> str:
    port, name = reserve_port(), f"{program.value}-{spoke.name}"
    supervisor.start(
        ChildSpec(
            name=name,
            argv=(*_PROGRAM, program.value),
            environment={
                **environment,
                "SLUICE_CLUSTER": spoke.name,
                "SLUICE_INSTANCE": spoke.name,
                "SLUICE_KUBECONFIG": str(spoke.kubeconfig),
                "SLUICE_BEAT_SECONDS": f"{BEAT_SECONDS:g}",
                "SLUICE_HEALTH_PORT": str(port),
            },
            ready=answers(port),
        )
    )
    return name
