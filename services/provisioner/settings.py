"""Everything an operator may set for the provisioner, with its default."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.settings.base import ServiceSettings

__all__ = ["ProvisionerSettings"]


class ProvisionerSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    host_config_namespace: str = "multi-platform-controller"
    host_config_name: str = "host-config"
    """The ConfigMap that says which platforms there are."""

    sweep_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How often machines and records are compared."""

    check_retry_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How long a run whose machines could not be had gives its quota back before it asks again
    (AdmissionCheck with `controllerName: sluicegate.dev/machines`)."""

    provider_call_seconds: Annotated[float, Field(gt=0)] = 30.0
    """How long one call to a provider may take before it counts as failed."""

    launch_retry_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Between two tries to order the same machine."""

    poll_retry_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Until a provider that could not be asked is asked again; termination is checked this often."""

    secrets_path: Path | None = None
    """Folder of mounted secrets: `<secret>/<key>`, for hosts (`id_rsa`, `known_hosts`) and clouds.
    Without it only machines of `type: fake` can be ordered, and static hosts are pretended."""

    host_call_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How long one visit to a host over SSH may take."""

    host_retry_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Between two visits to a host that did not answer, at first."""

    host_patience_seconds: Annotated[float, Field(gt=0)] = 180.0
    """A host that cannot be prepared for so long is given up, for that TaskRun."""

    upkeep_seconds: Annotated[float, Field(ge=0)] = 86_400.0
    """How often each static host is visited: users that nobody knows go, and it is updated. 0: never."""

    upkeep_update: bool = True
    """Whether such a visit updates the host's packages."""

    upkeep_call_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """How long one such visit may take."""

    clean_patience_seconds: Annotated[float, Field(gt=0)] = 600.0
    """A user that cannot be removed from its host for so long is left there, without a way in."""

    key_seconds: Annotated[float, Field(gt=0)] = 43_200.0
    """How long the key of a TaskRun opens its host: longer than the longest build."""

    otp_url: str = ""
    """Where TaskRuns fetch their key, as `https://multi-platform-otp-server.….svc.cluster.local/otp`.
    Empty: the key itself is in the TaskRun's secret."""

    otp_host: str = "127.0.0.1"
    """Where the one-time password service listens; `0.0.0.0` in a pod."""

    otp_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0: any free port, logged at start."""

    otp_path: Path = Path(".sluice/otp")
    """Folder of its certificate (`tls.crt`, `tls.key`) and authority (`ca.crt`). Without `tls.crt`
    they are made there; replicas must share the folder, or be given a certificate."""

    otp_seconds: Annotated[float, Field(gt=0, le=21_600)] = 10_800.0
    """How long a key waits to be fetched."""

    forget_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long the end of a TaskRun stays in the view after its TaskRun is gone."""

    fake_boot_seconds: Annotated[float, Field(ge=0)] = 2.0
    """Machines of `type: fake` have an address after about this long."""

    fake_broken_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of machines of `type: fake` that never come up."""

    fake_seed: int = 0
