"""Changes to a snapshot: objects are applied or removed, jobs are submitted, a spoke is lost."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.machine_slots import MachineSlots
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.project import project_external, project_job
from services.classifier.rules import Rules
from services.classifier.webhook.mutation import RefusedError, mutate
from services.quota.forecast import Snapshot
from services.quota.forecast.snapshot import Id
from services.quota.wire.inbound import CONFIGURATION_KINDS, TranslateError, observed_facts
from services.whatif.manifests import Manifest
from services.whatif.problems import refuse_bad_quantities, refuse_invalid
from services.whatif.spokes import remove_spoke
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body, spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import workload_name
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import integration_for
from shared.runtime.command import CommandError

_DECIDING: Final = frozenset(
    kind.kind
    for kind in (
        *CONFIGURATION_KINDS,
        kinds.WORKLOAD_PRIORITY_CLASS,
        kinds.PRIORITY_CLASS,
        kinds.LIMIT_RANGE,
        kinds.RUNTIME_CLASS,
    )
)

REMOVABLE: Final = {
    kind.kind.lower(): kind
    for kind in (kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE, kinds.COHORT, kinds.RESOURCE_FLAVOR)
}


@dataclass(slots=True, kw_only=True)
class Changes:
    """Applies changes to a snapshot, and records which workloads are new."""

    rules: Rules | None = None
    """The classifier rules that new jobs go through. None: jobs are submitted as they are."""

    policy: Policy = DEFAULT_POLICY
    """How the requests of new jobs are counted."""

    added: list[Id] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was done, in words."""

    def apply(self, snapshot: Snapshot, manifests: Sequence[Manifest], *, cluster: str) -> None:
        """Apply configuration first, then submit jobs.

        Raises `CommandError` for an object that is refused.
        """
        jobs = []
        for manifest in manifests:
            if manifest.kind.kind in _DECIDING:
                self._configure(snapshot, manifest, cluster)
            elif manifest.kind.kind == kinds.WORKLOAD.kind or _is_queueable(manifest.kind):
                jobs.append(manifest)
            else:
                self.notes.append(f"left out {manifest.title}: it does not weigh")
        cluster_objects = _cluster_objects(snapshot, cluster)
        for number, manifest in enumerate(jobs):
            self._submit(snapshot, manifest, cluster, cluster_objects, number)

    def _configure(self, snapshot: Snapshot, manifest: Manifest, cluster: str) -> None:
        observed = _observed(manifest.kind, manifest.object, cluster)
        last = snapshot.observed.get(observed.subject)
        refuse_invalid(manifest, last)
        try:
            observed_facts(observed)
        except TranslateError as error:
            raise CommandError(manifest.source, str(error)) from error
        snapshot.observe(observed)
        if last is None:
            self.notes.append(f"added {manifest.title}")
        elif (last.object or {}).get("spec") != (observed.object or {}).get("spec"):
            self.notes.append(f"changed {manifest.title}")

    def _submit(
        self,
        snapshot: Snapshot,
        manifest: Manifest,
        cluster: str,
        cluster_objects: ClusterObjects,
        number: int,
    ) -> None:
        refuse_bad_quantities(manifest)
        refuse_invalid(manifest, None)
        obj = _as_created(manifest.object, snapshot.at, number)
        if manifest.kind.kind == kinds.WORKLOAD.kind:
            state = project_external(
                obj, cluster=cluster, cluster_objects=cluster_objects, policy=self.policy
            )
        else:
            state = self._job(manifest, obj, cluster, cluster_objects)
        ident = (cluster, f"{state.namespace}/{state.name}")
        snapshot.workloads[ident] = state
        snapshot.admissions.pop(ident, None)
        self.added.append(ident)
        self.notes.append(f"submitted {manifest.title}")

    def _job(
        self, manifest: Manifest, obj: Body, cluster: str, cluster_objects: ClusterObjects
    ) -> WorkloadState:
        integration = integration_for(group=manifest.kind.group, kind=manifest.kind.kind)
        assert integration is not None, "only kinds that wait come here"
        if self.rules is not None:
            try:
                obj = mutate(obj, self.rules).object
            except RefusedError as error:
                raise CommandError(manifest.source, f"the webhook refuses it: {error}") from error
        metadata = obj["metadata"]
        return project_job(
            obj,
            integration=integration,
            workload=None,
            cluster=cluster,
            name=workload_name(
                kind=manifest.kind.kind,
                group=manifest.kind.group,
                name=metadata["name"],
                uid=metadata["uid"],
            ),
            cluster_objects=cluster_objects,
            machines=MachineSlots(),
            policy=self.policy,
        )

    def remove(self, snapshot: Snapshot, kind: Kind, name: str, namespace: str | None) -> None:
        """Remove an object. Raises `CommandError` if there is none."""
        found = [
            each
            for each in snapshot.observed.values()
            if (each.group, each.plural, each.name) == (kind.group, kind.plural, name)
            and namespace in {None, each.namespace}
        ]
        if not found:
            raise CommandError(f"--remove {kind.kind}/{name}", "there is no such object")
        for each in found:
            del snapshot.observed[each.subject]
            self.notes.append(f"removed {kind.kind} {name}")

    def lose_spoke(self, before: Snapshot, after: Snapshot, spoke: str) -> None:
        """Take a spoke away: its workloads start again, and less quota is left for the queues that use it."""
        self.notes += remove_spoke(before, after, spoke)


def _is_queueable(kind: Kind) -> bool:
    return integration_for(group=kind.group, kind=kind.kind) is not None


def _as_created(obj: Body, at: datetime, number: int) -> Body:
    """Add the fields that an API server adds to a new object, as far as classification reads them."""
    metadata: dict[str, Any] = dict(obj.get("metadata") or {})
    metadata.setdefault("name", f"{metadata.get('generateName', 'new-')}{number}")
    metadata.setdefault("namespace", "default")
    metadata.setdefault("uid", f"new-{metadata['namespace']}-{metadata['name']}-{number}")
    metadata.setdefault("creationTimestamp", at.isoformat())
    return as_body({**obj, "metadata": metadata})


def _cluster_objects(snapshot: Snapshot, cluster: str) -> ClusterObjects:
    cluster_objects = ClusterObjects()
    for observed in snapshot.observed.values():
        if observed.cluster == cluster:
            cluster_objects.observe(observed)
    return cluster_objects


def _observed(kind: Kind, obj: Body, cluster: str) -> Observed:
    metadata = obj["metadata"]
    namespace = (metadata.get("namespace") or "default") if kind.namespaced else None
    metadata = {**metadata, "uid": str(metadata.get("uid") or metadata["name"])}
    if namespace:
        metadata["namespace"] = namespace
    return Observed(
        cluster=cluster,
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespace=namespace,
        name=str(metadata["name"]),
        uid=metadata["uid"],
        resource_version="0",
        object={**obj, "metadata": metadata},
    )


def removable(name: str) -> tuple[Kind, str, str | None]:
    """Kind, name and namespace of an object to remove. Raises `CommandError` for any other text."""
    kind, *rest = name.split("/")
    if kind.lower() not in REMOVABLE or len(rest) not in {1, 2} or not all(rest):
        raise CommandError(
            f"--remove {name}",
            "is no KIND/NAME or KIND/NAMESPACE/NAME",
            hint=f"KIND is one of {', '.join(REMOVABLE)}",
        )
    return REMOVABLE[kind.lower()], rest[-1], rest[0] if len(rest) > 1 else None


def with_quota(
    snapshot: Snapshot, cluster: str, queue: str, place: tuple[str, str], nominal: str
) -> Manifest:
    """The ClusterQueue as it is now, with another nominal quota at `place`: (flavor, resource).

    Raises `CommandError` for a queue, flavor or resource that is not there, and for a bad quantity.
    """
    title = f"ClusterQueue {queue}"
    queues = {each.name: each for each in snapshot.of(kinds.CLUSTER_QUEUE, cluster)}
    observed = queues.get(queue)
    if observed is None:
        raise CommandError(title, f"cluster {cluster} has no such queue{_one_of(queue, queues)}")
    obj = as_body(deepcopy(observed.object or {}))
    quotas = dict(_quotas(obj))
    found = quotas.get(place)
    if found is None:
        flavor, resource = place
        of_flavor = [each[1] for each in quotas if each[0] == flavor]
        field_, value, there = (
            ("resources", resource, of_flavor)
            if of_flavor
            else ("flavors", flavor, list(dict.fromkeys(each[0] for each in quotas)))
        )
        problem = f"spec.resourceGroups.{field_}: {value!r}: it has no quota of this name"
        raise CommandError(title, problem + _one_of(value, there))
    path, quota = found
    try:
        amount = parse_quantity(nominal)
    except QuantityError as error:
        raise CommandError(
            title, f"{path}.nominalQuota: {error}", hint="write a quantity such as 1, 500m or 2Gi"
        ) from error
    if amount < 0:
        raise CommandError(title, f"{path}.nominalQuota: {nominal!r}: must not be negative")
    quota["nominalQuota"] = nominal
    kind = replace(kinds.CLUSTER_QUEUE, version=observed.version)
    return Manifest(source=title, kind=kind, object=obj)


def _quotas(obj: Body) -> Iterator[tuple[tuple[str, str], tuple[str, dict[str, Any]]]]:
    """(flavor, resource) to the path and the quota itself, in `obj`."""
    for group_number, group in enumerate(spec_of(obj).get("resourceGroups") or []):
        for flavor_number, flavor in enumerate(group.get("flavors") or []):
            where = f"spec.resourceGroups[{group_number}].flavors[{flavor_number}]"
            for number, quota in enumerate(flavor.get("resources") or []):
                path = f"{where}.resources[{number}]"
                yield (str(flavor.get("name")), str(quota.get("name"))), (path, quota)


def _one_of(wanted: str, there: Iterable[str]) -> str:
    names = sorted(there)
    if close := get_close_matches(wanted, names, n=1):
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(names)}" if names else "; there is none at all"
