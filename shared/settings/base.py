"""What every service's settings share. Read once, at start; frozen; nobody else reads the environment."""

import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["ServiceSettings"]


class ServiceSettings(BaseSettings):
    """Set by environment variables `SLUICE_<FIELD>`; `NATS_URL` is understood too."""

    model_config = SettingsConfigDict(
        env_prefix="SLUICE_", frozen=True, extra="forbid", populate_by_name=True
    )

    nats_url: Annotated[
        str, Field(validation_alias=AliasChoices("SLUICE_NATS_URL", "NATS_URL", "nats_url"))
    ] = "nats://127.0.0.1:4222"
    """Where NATS is; several servers are separated by commas."""

    nats_credentials: str | None = None
    """Path of a credentials file, where NATS asks for one."""

    cluster: str = "hub"
    """Name of the cluster that this process watches, patches or decides for."""

    instance: str = Field(default_factory=socket.gethostname)
    """Name of this replica: holder of leases, `ce-source`."""

    health_host: str = "127.0.0.1"
    """Where `/livez`, `/readyz` and `/metrics` listen; `0.0.0.0` in a pod."""

    health_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0: any free port, logged at start."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    otlp_endpoint: Annotated[
        str | None,
        Field(validation_alias=AliasChoices("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint")),
    ] = None
    """Traces are exported to `<endpoint>/v1/traces` where this is set."""

    configuration: Path | None = None
    """Kueue's `Configuration` document, a file: one for all services. None: all is as by default."""

    graceful_stop_seconds: Annotated[float, Field(gt=0)] = 15.0
    """How long handlers may take to finish after SIGTERM."""
