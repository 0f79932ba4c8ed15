"""The classifier's settings and their defaults."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.contracts.webhook import PATCHER_USER
from shared.settings.base import ServiceSettings


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

    webhook_values: Annotated[int, Field(ge=1_000)] = 250_000
    """Limit for the values (lists, objects, and what they hold) of a reviewed object."""

    webhook_expression_values: Annotated[int, Field(ge=1_000)] = 20_000
    """Limit for the values of an object on which expressions are evaluated."""

    webhook_items: Annotated[int, Field(ge=10)] = 1_000
    """Limit for the items of one list in such an object. The cost of `map` and `filter` grows
    with the square."""

    webhook_cpu_seconds: Annotated[float, Field(gt=0, le=8)] = 2.0
    """CPU for the expressions on one object, or for the whole review of a large one. An object that needs
    more is refused."""

    webhook_memory_bytes: Annotated[int, Field(ge=32 * 2**20)] = 256 * 2**20
    """Memory that a process may take for the expressions on one object, or for the review of a large one."""

    webhook_bytes_in_flight: Annotated[int, Field(ge=2**20)] = 64 * 2**20
    """Limit for the bodies of all reviews that are not answered yet."""

    webhook_header_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Time for a TLS handshake, and for the headers of a request."""

    webhook_body_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Time for the body of a review."""

    webhook_connections: Annotated[int, Field(ge=1)] = 1_000
    """Limit for open connections. Where it is reached, the address that has most of them loses one that
    sends nothing."""

    webhook_connections_per_address: Annotated[int, Field(ge=1)] = 400
    """Limit for the connections of one address. An API server opens one for each review at a time."""

    patcher_users: tuple[str, ...] = (PATCHER_USER,)
    """Names of the users that start admitted jobs. From others the webhook refuses the start of a job that is
    not admitted. Empty: it refuses nobody's."""

    request_editors: tuple[str, ...] = ()
    """Names of users and groups that may change queue, priority class and requests of a PipelineRun that
    waits, and the priority class of one that runs. Nobody else may: the rules judged the run when it was
    created."""

    last_good_rules: Path | None = None
    """File for the last good configuration, for a restart while the mounted one is invalid."""

    job_default_queue: str = ""
    """LocalQueue of Jobs that name none, if their namespace has no LocalQueue `default`. Empty: such Jobs are
    not managed, unless `manageJobsWithoutQueueName` is set."""
