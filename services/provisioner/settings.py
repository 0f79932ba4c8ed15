"""Settings of the provisioner with their defaults, from `SLUICE_…` environment variables."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.contracts.kube.names import OPERATOR_NAMESPACE
from shared.contracts.multi_platform import HOST_CONFIG
from shared.settings.base import ServiceSettings


class ProvisionerSettings(ServiceSettings):
    """Read once, at start."""

    host_config_namespace: str = OPERATOR_NAMESPACE
    host_config_name: str = HOST_CONFIG
    """Namespace and name of the ConfigMap with the platforms."""

    sweep_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Interval of the comparison of machines with records."""

    check_retry_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How long a run waits without quota after it could not get its machines
    (AdmissionCheck with `controllerName: sluicegate.dev/machines`)."""

    provider_call_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Time-out of one call to a provider."""

    launch_retry_seconds: Annotated[float, Field(gt=0)] = 20.0
    """Pause before a failed order of a machine is repeated."""

    poll_retry_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Pause before a failed poll of a machine is repeated, and interval of polls during termination."""

    secrets_path: Path | None = None
    """Folder of mounted secrets: `<secret>/<key>`, for hosts (`id_rsa`, `known_hosts`) and clouds.
    Without it only machines of `type: fake` can be ordered, and hosts are not entered."""

    host_call_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Time-out of one action on a host over SSH."""

    host_retry_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Pause before a failed action on a host is repeated. For cleaning it doubles each time."""

    host_patience_seconds: Annotated[float, Field(gt=0)] = 180.0
    """A host that cannot be prepared for so long is given up for that TaskRun."""

    upkeep_seconds: Annotated[float, Field(ge=0)] = 86_400.0
    """Interval at which left-over users of a static host are removed and its packages updated. 0: never."""

    upkeep_update: bool = True
    """Whether maintenance updates the host's packages."""

    upkeep_call_seconds: Annotated[float, Field(gt=0)] = 1800.0
    """Time-out of the maintenance of one host."""

    clean_patience_seconds: Annotated[float, Field(gt=0)] = 600.0
    """A user that cannot be removed from its host for so long stays there. Its key expires."""

    key_seconds: Annotated[float, Field(gt=0)] = 43_200.0
    """Lifetime of a TaskRun's key on its host. It must exceed the longest build."""

    otp_url: str = ""
    """URL at which TaskRuns fetch their key, as `https://multi-platform-otp-server.….svc.cluster.local/otp`.
    Empty: the TaskRun's secret contains the key itself."""

    otp_host: str = "127.0.0.1"
    """Address on which the one-time password service listens; `0.0.0.0` in a pod."""

    otp_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the one-time password service. 0: any free port, logged at start."""

    otp_connections_per_address: Annotated[int, Field(ge=1, le=1024)] = 64
    """Most connections of one address to that service at a time, of 1024 in all. Raise it if many TaskRuns
    reach the service by way of one address."""

    otp_path: Path = Path(".sluice/otp")
    """Folder with the certificate (`tls.crt`, `tls.key`) and authority (`ca.crt`) of that service. Without
    `tls.crt` they are made there, so replicas must share the folder or get a certificate."""

    otp_seconds: Annotated[float, Field(gt=0, le=21_600)] = 10_800.0
    """How long a key can be fetched."""

    direct_task_runs_max: Annotated[int, Field(ge=0)] = 20
    """Most TaskRuns of one namespace that have a host at a time without quota: an admitted PipelineRun must
    list them as those that it made, and have been admitted with so many. 0: any number."""

    task_runs_need_admitted_run: bool = False
    """Whether only TaskRuns of admitted PipelineRuns get hosts."""

    forget_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long the state of a released TaskRun stays in the view after the TaskRun is deleted."""

    fake_boot_seconds: Annotated[float, Field(ge=0)] = 2.0
    """Mean time until a machine of `type: fake` has an address."""

    fake_broken_rate: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of machines of `type: fake` that never run."""

    fake_seed: int = 0
