"""Everything an operator may set for the console, with its default."""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shared.settings.kube import KubeSettings

__all__ = ["ConsoleSettings", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ConsoleSettings(KubeSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    console_host: str = "127.0.0.1"
    """Where page and API listen; `0.0.0.0` in a pod."""

    console_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0: any free port, logged at start."""

    console_certificates: Path | None = None
    """Folder with `tls.crt` and `tls.key`; made there where none are. None: plain HTTP, for a proxy in
    front that speaks TLS, or for loopback."""

    console_names: tuple[str, ...] = ("localhost", "127.0.0.1")
    """What certificates that are made here are for."""

    console_authorization: Literal["kubernetes", "none"] = "kubernetes"
    """`kubernetes`: bearer tokens are shown to the cluster (TokenReview), and what they may see is asked
    there (SubjectAccessReview). `none`: everybody sees everything; only on loopback, for development."""

    console_simulation_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How long the answer to one what-if may take."""

    console_streams: Annotated[int, Field(ge=1)] = 200
    """How many pages may follow what happens at once."""

    @model_validator(mode="after")
    def _nobody_from_outside_unasked(self) -> "ConsoleSettings":
        if self.console_authorization == "none" and not is_loopback(self.console_host):
            raise ValueError(
                f"console_authorization none is for loopback only, not for {self.console_host}"
            )
        return self
