"""Access to the cluster, for the two services that have a Kubernetes client."""

from shared.settings.base import ServiceSettings


class KubeSettings(ServiceSettings):
    """A service with a Kubernetes client."""

    kubeconfig: str | None = None
    """Path of a kubeconfig file; None: the service account of the pod."""

    kube_context: str | None = None
    """Context in that file; None: its current one."""
