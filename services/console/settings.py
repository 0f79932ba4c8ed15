"""Settings of the console, with their defaults."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from shared.settings.kube import KubeSettings

IDLE_SECONDS_MIN: Final = 60.0
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(/[A-Za-z0-9._~/-]*)?")
"""Nothing that would end a directive of the Content-Security-Policy, which names it."""


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

    console_visibility_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Where the API server hands on what its users ask of `visibility.kueue.x-k8s.io` (an APIService). Only
    its own certificate is let in. It needs `console_certificates`. None: nobody listens there."""

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

    console_streams_per_user: Annotated[int, Field(ge=1)] | None = None
    """How many of them may be of one user. None: a tenth, at least three. Raise it where many people share
    one token. Without authorization there is one user, who may have all of them."""

    console_connections_per_address: Annotated[int, Field(ge=1)] | None = None
    """How many of a thousand connections one address may have. None: a hundred more than `console_streams`,
    for a proxy in front that holds them all."""

    console_trace_url: str = ""
    """Where traces are shown, with `{trace}` for the trace id: `https://jaeger.example/trace/{trace}`.
    Empty: the page of a workload shows the id alone."""

    console_job_url: str = ""
    """Where jobs are shown, with `{cluster}`, `{namespace}`, `{kind}` and `{name}`. Empty: no link."""

    console_prometheus_url: str = ""
    """The Prometheus that evaluates the alert rules: the overview shows what rings there. Empty: it shows the
    alerts that the streams tell of."""

    console_oidc_issuer: str = ""
    """The OpenID provider that users may sign in with, as the cluster's API server names it
    (`--oidc-issuer-url`): the cluster checks its ID tokens. Empty: users paste a token."""

    console_oidc_client_id: str = ""
    """The console there: a public client with PKCE, and `<address>/signed-in` as its redirect address."""

    console_oidc_scopes: tuple[str, ...] = ("openid",)
    """What is asked of the provider: the claims that the cluster reads name and groups from."""

    console_oidc_origins: tuple[str, ...] = ()
    """Where the provider's token endpoint is, if on another host than the issuer: `https://tokens.example`."""

    @field_validator("console_oidc_issuer", "console_oidc_origins")
    @classmethod
    def _is_safe(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for url in (given,) if isinstance(given, str) else given:
            parts = urlsplit(url)
            if url and (not _ADDRESS.fullmatch(url) or not parts.hostname):
                raise ValueError(f"{url!r} is no address such as https://login.example")
            if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
                raise ValueError(f"{url!r} would send tokens in the clear: use https")
        return given

    @field_validator("console_trace_url", "console_job_url", "console_prometheus_url")
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
    def _issuer_has_client(self) -> "ConsoleSettings":
        if bool(self.console_oidc_issuer) != bool(self.console_oidc_client_id):
            given, lacks = "console_oidc_issuer", "console_oidc_client_id"
            if not self.console_oidc_issuer:
                given, lacks = lacks, given
            raise ValueError(f"{given} is set and {lacks} is not: set both, or none")
        return self

    @model_validator(mode="after")
    def _aggregation_has_certificates(self) -> "ConsoleSettings":
        if self.console_visibility_port is None:
            return self
        if self.console_certificates is None:
            raise ValueError(
                "console_visibility_port is set and console_certificates is not: an API server asks over TLS"
            )
        if self.console_authorization == "none":
            raise ValueError(
                "console_visibility_port is set and console_authorization is none: set it to kubernetes"
            )
        return self

    @model_validator(mode="after")
    def _open_console_is_local(self) -> "ConsoleSettings":
        if self.console_authorization == "none" and not _is_loopback(self.console_host):
            raise ValueError(
                f"console_authorization none is for loopback only, not for {self.console_host}"
            )
        return self
