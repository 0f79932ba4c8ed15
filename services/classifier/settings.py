"""What an operator can set for the classifier, and the defaults."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.settings.base import ServiceSettings

__all__ = ["ClassifierSettings"]


class ClassifierSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    classifier_config: Path | None = None
    """Folder that holds `config.yaml` (`queueName`, `multiKueueOverride`, `cel.expressions`), as the
    mounted ConfigMap of tekton-kueue. None: no webhook, only the projection of what was observed."""

    webhook_host: str = "127.0.0.1"
    """`0.0.0.0` in a pod."""

    webhook_port: Annotated[int, Field(ge=0, le=65535)] = 9443
    webhook_names: tuple[str, ...] = ("localhost", "127.0.0.1")
    """Names that the serving certificate is good for: `<service>.<namespace>.svc` in a cluster."""

    webhook_certificates: Path = Path(".sluice/certificates")
    """Folder with `tls.crt`, `tls.key` and `ca.crt`; made there if it holds none."""

    last_good_rules: Path | None = None
    """Where the last good configuration is kept, for a restart while the mounted one is broken."""

    job_default_queue: str = ""
    """LocalQueue of Jobs that name none, where their namespace has no LocalQueue `default`; empty: those
    are left alone, unless `manageJobsWithoutQueueName` is set."""
