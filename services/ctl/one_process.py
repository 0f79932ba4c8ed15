"""`sluice run all`: all services as one process, for small clusters and laptops.

Each service has its own connection to NATS, with its own key where NATS asks for keys, and all that it
writes is fenced as ever. The classifier has a thread: the API server waits for its webhook, and quota must
not block it. A service that ends by itself ends the process; whoever started the process starts it again.
"""

import importlib
from pathlib import Path
from typing import Any

from services.ctl.programs import SERVICES, Program
from services.ctl.setup.permissions import key_file
from shared.runtime.host import run_services
from shared.runtime.service import Program as ServiceProgram
from shared.settings.base import ServiceSettings


class OneProcessSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables; each service reads its own beside."""

    nats_nkeys: Path | None = None
    """Folder with the seed `<service>.nk` of each service, as `sluice bus permissions` makes it. None: NATS
    asks for no key, or all services have that of `SLUICE_NATS_NKEY`."""

    patcher_context: str | None = None
    """Context of the kubeconfig in which the patcher has a user of its own, as in a deployment. None: that of
    all services."""


def programs(settings: OneProcessSettings) -> list[ServiceProgram]:
    """All services; the tracer too if traces are collected. Raises `ValueError` for wrong settings."""
    names = [*SERVICES, Program.PAIRS, *((Program.TRACER,) if settings.otlp_endpoint else ())]
    return [_program(name, settings) for name in names]


def _program(name: Program, settings: OneProcessSettings) -> ServiceProgram:
    own: dict[str, Any] = {}
    if settings.nats_nkeys is not None:
        own["nats_nkey"] = key_file(settings.nats_nkeys, name.value)
    if name is Program.PATCHER and settings.patcher_context is not None:
        own["kube_context"] = settings.patcher_context
    module = "services.ctl.pairs" if name is Program.PAIRS else f"services.{name.value}.app"
    made: ServiceProgram = importlib.import_module(module).program(own)
    return made


def main() -> int:
    """Entry point of `sluice run all`."""
    settings = OneProcessSettings()
    return run_services(
        Program.ALL.value, settings, programs(settings), apart=Program.CLASSIFIER.value
    )
