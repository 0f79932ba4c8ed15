"""Changes to a snapshot: objects are applied or removed, jobs are submitted, a spoke is lost."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from services.quota.forecast import Snapshot
from services.quota.forecast.snapshot import Id
from services.quota.wire.inbound import CONFIGURATION_KINDS, TranslateError, observed_facts
from services.whatif.manifests import Manifest
from services.whatif.spokes import remove_spoke
from services.whatif.validation.problems import (
    refuse_bad_quantities,
    refuse_invalid,
    refuse_malformed_job,
)
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body, spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.contracts.messages.observed import Observed
from shared.runtime.command import CommandError
from shared.runtime.suggestions import one_of

if TYPE_CHECKING:
    from services.classifier.projection.policy import Policy
    from services.classifier.rules import Rules

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
_SHORT: Final = {"cq": "clusterqueue", "lq": "localqueue", "co": "cohort", "rf": "resourceflavor"}


@dataclass(slots=True, kw_only=True)
class Changes:
    """Applies changes to a snapshot, and records which workloads are new."""

    rules: "Rules | None" = None
    """The classifier rules that new jobs go through. None: jobs are submitted as they are."""

    policy: "Policy | None" = None
    """How the requests of new jobs are counted. None: the default."""

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
            else:
                jobs.append(manifest)
        if jobs:
            self._submit(snapshot, jobs, cluster)

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

    def _submit(self, snapshot: Snapshot, manifests: Sequence[Manifest], cluster: str) -> None:
        from services.whatif.submissions import Submissions, can_wait  # noqa: PLC0415

        jobs = [manifest for manifest in manifests if can_wait(manifest.kind)]
        left_out = (manifest for manifest in manifests if not can_wait(manifest.kind))
        self.notes += (f"left out {manifest.title}: it does not weigh" for manifest in left_out)
        submissions = Submissions(snapshot, cluster=cluster, rules=self.rules, policy=self.policy)
        for manifest in jobs:
            refuse_bad_quantities(manifest)
            refuse_malformed_job(manifest)
            refuse_invalid(manifest, None)
            state = submissions.state_of(manifest)
            ident = (cluster, f"{state.namespace}/{state.name}")
            snapshot.workloads[ident] = state
            snapshot.admissions.pop(ident, None)
            self.added.append(ident)
            self.notes.append(f"submitted {manifest.title}")

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
    word, *rest = name.split("/")
    kind = _SHORT.get(word.lower(), word.lower().removesuffix("s"))
    if kind not in REMOVABLE or len(rest) not in {1, 2} or not all(rest):
        raise CommandError(
            f"--remove {name}",
            "is no KIND/NAME or KIND/NAMESPACE/NAME",
            hint=f"KIND is one of {', '.join(REMOVABLE)}",
        )
    return REMOVABLE[kind], rest[-1], rest[0] if len(rest) > 1 else None


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
        raise CommandError(title, f"cluster {cluster} has no such queue; {one_of(queue, queues)}")
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
        raise CommandError(title, f"{problem}; {one_of(value, there)}")
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
