"""The classifier's settings and their defaults."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.settings.base import ServiceSettings

__all__ = ["ClassifierSettings"]


class ClassifierSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    classifier_config: Path | None = None
    """Folder with `config.yaml` (`queueName`, `multiKueueOverride`, `cel.expressions`): the mounted ConfigMap
    of tekton-kueue. None: no webhook, only the projection."""

    webhook_host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` in a pod."""

    webhook_port: Annotated[int, Field(ge=0, le=65535)] = 9443
    """Port to listen on."""

    webhook_names: tuple[str, ...] = ("localhost", "127.0.0.1")
    """DNS names and addresses of the serving certificate: `<service>.<namespace>.svc` in a cluster."""

    webhook_certificates: Path = Path(".sluice/certificates")
    """Folder with `tls.crt`, `tls.key` and `ca.crt`; they are created if it is empty."""

    last_good_rules: Path | None = None
    """File for the last good configuration, for a restart while the mounted one is invalid."""

    job_default_queue: str = ""
    """LocalQueue of Jobs that name none, if their namespace has no LocalQueue `default`. Empty: such Jobs are
    not managed, unless `manageJobsWithoutQueueName` is set."""
