"""Settings of every service. Read once at start and frozen; nothing else reads the environment."""

import socket
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.settings.access import LOCAL_NATS, Access


def _is_file(path: Path) -> Path:
    try:
        if path.is_file():
            return path
    except (
        OSError
    ) as error:  # As of a name that no file system takes: pydantic's own type lets it through.
        raise ValueError(f"Path cannot be read: {error.strerror}") from error
    raise ValueError("Path does not point to a file")


ExistingFile = Annotated[Path, AfterValidator(_is_file)]
"""Path of a file that is there when the settings are read."""


class ServiceSettings(BaseSettings):
    """Set by environment variables `SLUICE_<FIELD>`; `NATS_URL` is understood too."""

    model_config = SettingsConfigDict(
        env_prefix="SLUICE_", frozen=True, extra="forbid", populate_by_name=True
    )

    nats_url: Annotated[
        str, Field(validation_alias=AliasChoices("SLUICE_NATS_URL", "NATS_URL", "nats_url"))
    ] = LOCAL_NATS
    """Where NATS is; several servers are separated by commas."""

    nats_credentials: ExistingFile | None = None
    """Path of a credentials file (a JWT and its seed), where NATS asks for one."""

    nats_nkey: ExistingFile | None = None
    """Path of the seed of an nkey, as `sluice bus permissions --keys` makes it, where NATS asks for one."""

    nats_ca: ExistingFile | None = None
    """Path of the CA of NATS's certificate. Set: the connection is TLS, or there is none."""

    nats_certificate: ExistingFile | None = None
    """Path of a certificate to show, where NATS verifies its clients. Renewed: read anew."""

    nats_private_key: ExistingFile | None = None
    """Path of that certificate's key."""

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

    @property
    def nats_access(self) -> Access:
        """How to authenticate to NATS and verify it."""
        return Access(
            credentials=self.nats_credentials,
            nkey=self.nats_nkey,
            ca=self.nats_ca,
            certificate=self.nats_certificate,
            private_key=self.nats_private_key,
        )

    @model_validator(mode="after")
    def _access_is_usable(self) -> Self:
        """Report unusable files at start, not at the first connection."""
        if self.nats_nkey is not None and self.nats_credentials is not None:
            raise ValueError("SLUICE_NATS_NKEY and SLUICE_NATS_CREDENTIALS: only one of them")
        self.nats_access.options()
        return self
