"""New jobs of a change: what the classifier makes of each, as if it were created now.

Whoever changes queues only does without: the kinds of jobs are documents, and take a while to read.
"""

from typing import Any

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.machine_slots import MachineSlots
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.project import project_external, project_job
from services.classifier.refusal import RefusedError
from services.classifier.rules import Rules
from services.quota.forecast import Snapshot
from services.whatif.manifests import Manifest
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import workload_name
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import integration_for
from shared.runtime.command import CommandError


def can_wait(kind: Kind) -> bool:
    """Whether objects of this kind are workloads, or jobs that become one."""
    return (
        kind.kind == kinds.WORKLOAD.kind
        or integration_for(group=kind.group, kind=kind.kind) is not None
    )


class Submissions:
    """Submits jobs to the queues of a snapshot, one after the other."""

    def __init__(
        self, snapshot: Snapshot, *, cluster: str, rules: Rules | None, policy: Policy | None
    ) -> None:
        self._at = snapshot.at
        self._cluster = cluster
        self._rules = rules
        self._policy = policy or DEFAULT_POLICY
        self._cluster_objects = ClusterObjects()
        self._count = 0
        for observed in snapshot.observed.values():
            if observed.cluster == cluster:
                self._cluster_objects.observe(observed)

    def state_of(self, manifest: Manifest) -> WorkloadState:
        """The workload that the next job becomes. Raises `CommandError` if the webhook refuses it."""
        obj = self._as_created(manifest.object)
        self._count += 1
        if manifest.kind.kind == kinds.WORKLOAD.kind:
            return project_external(
                obj,
                cluster=self._cluster,
                cluster_objects=self._cluster_objects,
                policy=self._policy,
            )
        return self._job(manifest, obj)

    def _as_created(self, obj: Body) -> Body:
        """Add the fields that an API server adds to a new object, as far as classification reads them."""
        metadata: dict[str, Any] = dict(obj.get("metadata") or {})
        number = self._count
        metadata.setdefault("name", f"{metadata.get('generateName', 'new-')}{number}")
        metadata.setdefault("namespace", "default")
        metadata.setdefault("uid", f"new-{metadata['namespace']}-{metadata['name']}-{number}")
        metadata.setdefault("creationTimestamp", self._at.isoformat())
        return as_body({**obj, "metadata": metadata})

    def _job(self, manifest: Manifest, obj: Body) -> WorkloadState:
        kind = manifest.kind
        integration = integration_for(group=kind.group, kind=kind.kind)
        assert integration is not None, "only kinds that wait come here"
        if self._rules is not None:
            # Tracing and metrics, which the webhook has and nobody needs here, take long to import.
            from services.classifier.webhook.mutation import mutate  # noqa: PLC0415

            try:
                obj = mutate(obj, self._rules).object
            except RefusedError as error:
                raise CommandError(manifest.source, f"the webhook refuses it: {error}") from error
        metadata = obj["metadata"]
        return project_job(
            obj,
            integration=integration,
            workload=None,
            cluster=self._cluster,
            name=workload_name(
                kind=kind.kind, group=kind.group, name=metadata["name"], uid=metadata["uid"]
            ),
            cluster_objects=self._cluster_objects,
            machines=MachineSlots(),
            policy=self._policy,
        )
