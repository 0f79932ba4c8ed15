"""Everything an operator may set for the patcher, with its default."""

from typing import Annotated, Literal

from pydantic import Field

from shared.settings.kube import KubeSettings

__all__ = ["PatcherSettings"]


class PatcherSettings(KubeSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    events_per_second: Annotated[float, Field(ge=0)] = 20.0
    """Kubernetes events written at most, after a pause a few more; 0 writes none. What cannot be
    written in time is counted on one event, and in the end lost: decisions never wait for news."""

    foreign_events: bool = False
    """Whether Workloads that somebody else created get events too: a write more for each decision."""

    annotated_creators: tuple[str, ...] = ()
    """Kinds, as `tasks.kelos.dev`, whose objects create jobs and are annotated with
    `sluicegate.dev/queued` while those wait. It needs the right to patch them."""

    reasons_per_second: Annotated[float, Field(gt=0)] = 50.0
    """How fast workloads that wait are told why, at most. Admissions never wait for it."""

    foreign_reasons_per_second: Annotated[float, Field(gt=0)] = 5.0
    """The same for Workloads that somebody else created: who makes thousands wants them admitted. A
    tenth of it while more than ten decisions are written in a second."""

    queue_statuses_per_second: Annotated[float, Field(gt=0)] = 20.0
    """Status of all queues together: with many queues each is written less than once a second. A tenth
    of it while more than ten decisions are written in a second."""

    seal_namespace: str = "default"
    """Where the Secret `sluicegate-seal` is kept: the key to what the provisioner seals for us."""

    anchor_image: str = "registry.k8s.io/pause:3.10"
    """Image of the pods that hold a node for a coscheduled run: it starts, and does nothing."""

    anchor_care_seconds: Annotated[float, Field(gt=0)] = 10.0
    """How often placeholders on cordoned nodes are looked for, while there are any."""

    tekton_namespace: str = "tekton-pipelines"
    """Where Tekton's ConfigMap `feature-flags` is."""

    beat_seconds: Annotated[float, Field(gt=0)] = 10.0
    """How often the hub is told that this cluster is there, and leases of copies are renewed."""

    spoke_quota: Literal["hub", "kueue"] = "hub"
    """Who admits on this cluster. `kueue`: a Kueue of its own; then only copies are made and removed."""

    not_seen_seconds: Annotated[float, Field(gt=0)] = 0.2
    """A decision about an object that was not observed yet is tried again after this long."""
