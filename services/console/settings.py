"""Settings of the console, with their defaults."""

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from shared.settings.kube import KubeSettings

IDLE_SECONDS_MIN: Final = 60.0


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
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

    console_idle_seconds: Annotated[float, Field(ge=0)] = 600.0
    """How long after the last question the streams are followed on. Then nothing is read and kept until
    somebody asks. 0: they are always followed. Otherwise at least 60."""

    console_streams: Annotated[int, Field(ge=1)] = 200
    """How many pages may follow what happens at once."""

    console_trace_url: str = ""
    """Where traces are shown, with `{trace}` for the trace id: `https://jaeger.example/trace/{trace}`.
    Empty: the page of a workload shows the id alone."""

    console_job_url: str = ""
    """Where jobs are shown, with `{cluster}`, `{namespace}`, `{kind}` and `{name}`. Empty: no link."""

    @field_validator("console_trace_url", "console_job_url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        if url and not url.startswith(("https://", "http://")):
            raise ValueError(f"{url!r} is no address: begin it with https:// or http://")
        return url

    @field_validator("console_idle_seconds")
    @classmethod
    def _outlasts_an_answer(cls, seconds: float) -> float:
        if 0 < seconds < IDLE_SECONDS_MIN:
            raise ValueError(
                f"{seconds:g} is shorter than an answer may take: 0, or from {IDLE_SECONDS_MIN:g} on"
            )
        return seconds

    @model_validator(mode="after")
    def _open_console_is_local(self) -> "ConsoleSettings":
        if self.console_authorization == "none" and not _is_loopback(self.console_host):
            raise ValueError(
                f"console_authorization none is for loopback only, not for {self.console_host}"
            )
        return self
