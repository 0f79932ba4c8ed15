"""Names of konflux-ci/multi-platform-controller@c28c4a01 that builds and dashboards depend on.

A build task has a parameter PLATFORM and mounts the secret of its TaskRun. The secret says on which host
the task builds, so the pod starts once the secret exists.
"""

from collections.abc import Iterator
from typing import Final

from shared.contracts.kube.bodies import Body, status_of

FINALIZER: Final = "appstudio.io/multi-platform-finalizer"
"""On a TaskRun that has, or may have, a host."""

LABEL_PREFIX: Final = "build.appstudio.redhat.com/"
TASK_TYPE_LABEL: Final = f"{LABEL_PREFIX}task-type"
"""On TaskRuns that multi-platform-controller itself creates. They never ask for a host."""

FAILED_HOSTS_ANNOTATION: Final = f"{LABEL_PREFIX}failed-hosts"
"""Hosts, separated by commas, that a TaskRun must not get again."""

CONFIG_LABEL: Final = f"{LABEL_PREFIX}multi-platform-config"
"""Label of the ConfigMaps that configure machines, with any value. Only these are watched."""

PLATFORM_PARAMETER: Final = "PLATFORM"
"""Parameter of a TaskRun: the platform to build on, for instance `linux/arm64`."""

SECRET_PREFIX: Final = "multi-platform-ssh-"  # noqa: S105 - a name, no secret

HOST_KEY: Final = "host"
USER_DIR_KEY: Final = "user-dir"
PRIVATE_KEY: Final = "id_rsa"
ERROR_KEY: Final = "error"
OTP_KEY: Final = "otp"
OTP_CA_KEY: Final = "otp-ca"
OTP_SERVER_KEY: Final = "otp-server"
SECRET_KEYS: Final = frozenset(
    {ERROR_KEY, HOST_KEY, PRIVATE_KEY, OTP_KEY, OTP_CA_KEY, OTP_SERVER_KEY, USER_DIR_KEY}
)
"""Keys of that secret, which the build script reads."""

AWS_ADDRESSES: Final = "aws-ip"
"""The resource that counts machines of AWS, as Konflux' ClusterQueues have it."""

HOST_CONFIG: Final = "host-config"
"""The ConfigMap with the hosts and platforms, in the operator's namespace."""

DYNAMIC_PLATFORMS: Final = "dynamic-platforms"
MAX_INSTANCES: Final = "max-instances"
CHECK_INTERVAL: Final = "check-interval"
"""Keys of its data; the last two behind `dynamic.<platform>.`."""

UNAVAILABLE: Final = "cannot be had"
"""Part of the message of a run that waits for a platform which no host offers."""

_OWN_NAME: Final = "$(context.taskRun.name)"
"""What a Task writes for the name of its TaskRun."""


def secret_name(task_run: str) -> str:
    """The name of the secret that a TaskRun's pod waits for."""
    return f"{SECRET_PREFIX}{task_run}"


def mounts_secret(task_run: Body, name: str | None = None) -> bool:
    """Whether the task that Tekton resolved mounts the secret of a host: only then does a pod wait for it.

    With `name`, that of this TaskRun: its own one, also while Tekton has not filled in the name.
    """
    found = set(_mounted(task_run))
    if name is None:
        return any(secret.startswith(SECRET_PREFIX) for secret in found)
    return bool(found & {secret_name(name), secret_name(_OWN_NAME)})


def _mounted(task_run: Body) -> Iterator[str]:
    """The names of the secrets in the volumes of `status.taskSpec`."""
    spec = status_of(task_run).get("taskSpec") or {}
    for volume in spec.get("volumes") or []:
        yield str((volume.get("secret") or {}).get("secretName") or "")
