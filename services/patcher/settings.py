"""Settings of the patcher, with their defaults."""

from typing import Annotated, Literal

from pydantic import Field

from shared.settings.kube import KubeSettings


class PatcherSettings(KubeSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    events_per_second: Annotated[float, Field(ge=0)] = 20.0
    """Kubernetes events written per second at most, with a burst after a pause; 0 writes none. Events that
    cannot be written in time are counted on one event and in the end dropped: no decision waits for them."""

    foreign_events: bool = False
    """Whether Workloads that another program created get events too: one more write for each decision."""

    annotated_creators: tuple[str, ...] = ()
    """Kinds, as `tasks.kelos.dev`, whose objects create jobs and are annotated with
    `sluicegate.dev/queued` while those wait. The patcher needs permission to patch them."""

    reasons_per_second: Annotated[float, Field(gt=0)] = 50.0
    """Waiting reasons written per second at most. Admissions never wait for them."""

    foreign_reasons_per_second: Annotated[float, Field(gt=0)] = 5.0
    """The same for Workloads that another program created, perhaps thousands at once. A tenth of it while
    more than ten decisions are written in a second."""

    queue_statuses_per_second: Annotated[float, Field(gt=0)] = 20.0
    """Statuses written per second for all queues together: with many queues each is written less than once a
    second. A tenth of it while more than ten decisions are written in a second."""

    seal_namespace: str = "default"
    """Namespace of the Secret `sluicegate-seal`: the key that opens what the provisioner seals."""

    anchor_image: str = "registry.k8s.io/pause:3.10"
    """Image of the placeholder pods that hold a node for a coscheduled run: it starts, and does nothing."""

    anchor_care_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Interval at which placeholder pods on cordoned nodes are looked for, while there are any."""

    tekton_namespace: str = "tekton-pipelines"
    """Namespace of Tekton's ConfigMap `feature-flags`."""

    beat_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Interval of heartbeats to the hub, which renew the leases of copies."""

    hub: str = "hub"
    """Name of the hub whose orders this cluster carries out (its `SLUICE_CLUSTER`). A patcher of the hub
    itself carries out none."""

    excluded_namespaces: tuple[str, ...] = ("kube-*", "sluicegate")
    """Namespaces in which nothing is made for a hub: patterns with `*` and `?`, as a JSON list."""

    spoke_quota: Literal["hub", "kueue"] = "hub"
    """What admits on this cluster. `kueue`: a Kueue of its own; then only copies are made and removed."""

    not_seen_seconds: Annotated[float, Field(gt=0)] = 0.2
    """Delay before a decision about an object that was not observed yet is tried again."""
