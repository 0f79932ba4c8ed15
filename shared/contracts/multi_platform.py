"""Names of konflux-ci/multi-platform-controller@c28c4a01 that builds and dashboards depend on.

A build task has a parameter PLATFORM and mounts the secret of its TaskRun. The secret says on which host
the task builds, so the pod starts once the secret exists.
"""

from typing import Final

from shared.contracts.kube.bodies import Body, status_of

FINALIZER: Final = "appstudio.io/multi-platform-finalizer"
"""On a TaskRun that has, or may have, a host."""

TASK_TYPE_LABEL: Final = "build.appstudio.redhat.com/task-type"
"""On TaskRuns that multi-platform-controller itself creates. They never ask for a host."""

FAILED_HOSTS_ANNOTATION: Final = "build.appstudio.redhat.com/failed-hosts"
"""Hosts, separated by commas, that a TaskRun must not get again."""

PLATFORM_PARAMETER: Final = "PLATFORM"
"""Parameter of a TaskRun: the platform to build on, for instance `linux/arm64`."""

SECRET_PREFIX: Final = "multi-platform-ssh-"  # noqa: S105 - a name, no secret


def secret_name(task_run: str) -> str:
    """The name of the secret that a TaskRun's pod waits for."""
    return f"{SECRET_PREFIX}{task_run}"


def waits_for_secret(task_run: Body) -> bool:
    """Whether the task that Tekton resolved (`status.taskSpec`) mounts a secret that names a host.

    Only then does a pod wait for one.
    """
    spec = status_of(task_run).get("taskSpec") or {}
    secrets = (volume.get("secret") or {} for volume in spec.get("volumes") or [])
    return any((secret.get("secretName") or "").startswith(SECRET_PREFIX) for secret in secrets)
