"""Messages of the inputs become facts of the engine.

`kueue.x-k8s.io/v1beta1` and `v1beta2` mean the same here: `cohort` is `cohortName`, `Borrow` and
`Preempt` are `MayStopSearch`, `admissionChecks` is a strategy without flavors.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NoReturn, TypedDict

from services.quota.engine import facts
from services.quota.engine.facts import Fact
from services.quota.engine.model.topology import NOT_ADMITTING
from services.quota.engine.types import CheckKind
from shared.contracts.controllers import MULTIKUEUE, OWN_CONTROLLERS, PROVISIONING
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, annotations_of, as_body
from shared.contracts.kube.conditions import ACTIVE, find_condition
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.moments import UNIX_EPOCH
from shared.contracts.kube.names import LOST
from shared.contracts.kube.quantities import QuantityError, amount, parse_quantity
from shared.contracts.messages.observed import Observed
from shared.contracts.reasons import TERMINATING

_FLAVOR_ITEMS_MAX: Final = 8
_GROUPS_MAX: Final = 16
_GROUP_ITEMS_MAX: Final = 64
"""What the schemas allow. A spoke writes what it likes, and every workload is compared with it."""

_MILLION: Final = 1_000_000

CONFIGURATION_KINDS: Final = (
    kinds.NAMESPACE,
    kinds.RESOURCE_FLAVOR,
    kinds.COHORT,
    kinds.ADMISSION_CHECK,
    kinds.CLUSTER_QUEUE,
    kinds.LOCAL_QUEUE,
)
"""The kinds that decide about workloads. Each kind refers only to kinds before it."""

_CHECK_KINDS: Final[Mapping[str, CheckKind]] = {
    MULTIKUEUE: "MultiKueue",
    PROVISIONING: "ProvisioningRequest",
}
"""Controller of an AdmissionCheck to its kind; all others are `other`."""

_SEARCH: Final = {
    "Borrow": "MayStopSearch",
    "Preempt": "MayStopSearch",
    "MayStopSearch": "MayStopSearch",
    "TryNextFlavor": "TryNextFlavor",
}
_STOP: Final = {policy: policy for policy in ("None", "Hold", "HoldAndDrain")}
_STRATEGY: Final = {name: name for name in ("BestEffortFIFO", "StrictFIFO")}
_WITHIN: Final = {p: p for p in ("Never", "LowerPriority", "LowerOrNewerEqualPriority")}
_RECLAIM: Final = {p: p for p in ("Never", "LowerPriority", "Any")}
_BORROW: Final = {p: p for p in ("Never", "LowerPriority")}
_PREFERENCE: Final = {p: p for p in ("BorrowingOverPreemption", "PreemptionOverBorrowing")}
_NOT_CONCURRENT: Final = (
    f"{NOT_ADMITTING}spec.concurrentAdmissionPolicy: "
    "trying several flavors at a time is not offered."
)
_OPERATORS: Final = {o: o for o in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")}


class TranslateError(ValueError):
    """An object that cannot be used in its present form. Names object, field and value."""

    def __init__(self, what: str, path: str, problem: str) -> None:
        super().__init__(f"{what}: {path}: {problem}")


def nanoseconds(at: datetime) -> int:
    """Nanoseconds since the epoch, exactly."""
    delta = at - UNIX_EPOCH
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000


# Configuration ---------------------------------------------------------------------------------


def observed_facts(observed: Observed) -> list[Fact]:
    """The facts in one observation; none for a kind that does not concern quota."""
    resource = (observed.group, observed.plural)
    if observed.deleted or observed.object is None:
        gone = _GONE.get(resource)
        return [] if gone is None else [gone(observed)]
    read = _READ.get(resource)
    return [] if read is None else [read(observed.cluster, as_body(observed.object))]


def flavor(cluster: str, obj: Body) -> facts.FlavorChanged:
    """A ResourceFlavor."""
    reader = _Reader("ResourceFlavor", obj)
    spec = reader.spec
    for field in ("nodeLabels", "nodeTaints", "tolerations"):
        reader.bound(f"spec.{field}", spec.get(field), _FLAVOR_ITEMS_MAX)
    return facts.FlavorChanged(
        cluster=cluster,
        name=_name(obj),
        node_labels={str(key): str(value) for key, value in (spec.get("nodeLabels") or {}).items()},
        node_taints=tuple(
            facts.Taint(
                key=str(taint.get("key", "")),
                value=str(taint.get("value") or ""),
                effect=str(taint.get("effect") or "NoSchedule"),
            )
            for taint in spec.get("nodeTaints") or []
        ),
        tolerations=tuple(toleration(t) for t in spec.get("tolerations") or []),
        topology=reader.name("spec.topologyName"),
    )


def cohort(cluster: str, obj: Body) -> facts.CohortChanged:
    """A Cohort."""
    reader = _Reader("Cohort", obj)
    return facts.CohortChanged(
        cluster=cluster,
        name=_name(obj),
        parent=reader.name("spec.parentName") or reader.name("spec.parent"),
        groups=reader.groups(),
        weight=reader.weight(),
        uid=_uid(obj),
    )


def cluster_queue(cluster: str, obj: Body) -> facts.ClusterQueueChanged:
    """A ClusterQueue. One that is being deleted admits nobody, and its spec may be invalid."""
    if "deletionTimestamp" not in (obj.get("metadata") or {}):
        return _cluster_queue(cluster, obj)
    try:
        fact = _cluster_queue(cluster, obj)
    except TranslateError:
        fact = facts.ClusterQueueChanged(cluster=cluster, name=_name(obj), uid=_uid(obj))
    text = "Can't admit new workloads; clusterQueue is terminating"
    return replace(fact, terminating=True, inactive=(TERMINATING, text))


def _cluster_queue(cluster: str, obj: Body) -> facts.ClusterQueueChanged:
    reader = _Reader("ClusterQueue", obj)
    spec = reader.spec
    scope = spec.get("admissionScope") or {}
    return facts.ClusterQueueChanged(
        cluster=cluster,
        name=_name(obj),
        cohort=reader.name("spec.cohortName") or reader.name("spec.cohort"),
        groups=reader.groups(),
        strategy=reader.choice("spec.queueingStrategy", _STRATEGY, "BestEffortFIFO"),
        namespaces=reader.selector("spec.namespaceSelector"),
        stop=reader.choice("spec.stopPolicy", _STOP, "None"),
        fungibility=reader.fungibility(),
        preemption=reader.preemption(),
        checks=reader.checks(),
        weight=reader.weight(),
        usage_based=scope.get("admissionMode") == "UsageBasedAdmissionFairSharing",
        uid=_uid(obj),
        inactive=("ConcurrentAdmissionNotSupported", _NOT_CONCURRENT)
        if spec.get("concurrentAdmissionPolicy")
        else None,
    )


def local_queue(cluster: str, obj: Body) -> facts.LocalQueueChanged:
    """A LocalQueue."""
    reader = _Reader("LocalQueue", obj)
    target = reader.spec.get("clusterQueue")
    if not isinstance(target, str) or not target:
        reader.fail("spec.clusterQueue", f"{target!r} names no ClusterQueue")
    return facts.LocalQueueChanged(
        cluster=cluster,
        namespace=str(obj["metadata"].get("namespace", "")),
        name=_name(obj),
        cluster_queue=target,
        stop=reader.choice("spec.stopPolicy", _STOP, "None"),
        weight=reader.weight(),
        uid=_uid(obj),
        **_consumed(obj),
    )


def _local_queue_or_its_end(cluster: str, obj: Body) -> Fact:
    """A LocalQueue that is being deleted counts as gone."""
    if "deletionTimestamp" not in obj["metadata"]:
        return local_queue(cluster, obj)
    namespace = str(obj["metadata"].get("namespace", ""))
    return facts.LocalQueueGone(cluster=cluster, namespace=namespace, name=_name(obj))


class _Consumed(TypedDict, total=False):
    consumed: dict[str, int]
    consumed_at: int


def _consumed(obj: Body) -> _Consumed:
    """The past usage in its status; nothing if that is absent or unreadable, as for a new LocalQueue."""
    sharing = (obj.get("status") or {}).get("fairSharing") or {}
    recorded = sharing.get("admissionFairSharingStatus")
    if not recorded:
        return {}
    try:
        at = nanoseconds(datetime.fromisoformat(recorded["lastUpdate"]))
        used = {
            str(resource): parse_quantity(str(text)) // _MILLION
            for resource, text in dict(recorded.get("consumedResources") or {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        where = f"{obj['metadata'].get('namespace', '')}/{_name(obj)}"
        from structlog import get_logger  # noqa: PLC0415 - `sluice plan` does without

        get_logger(__name__).warning(
            "what a LocalQueue used is forgotten", queue=where, error=str(error)
        )
        return {}
    return {"consumed": used, "consumed_at": at}


def namespace(cluster: str, obj: Body) -> facts.NamespaceChanged:
    """A Namespace."""
    return facts.NamespaceChanged(
        cluster=cluster, name=_name(obj), labels=dict(obj["metadata"].get("labels") or {})
    )


def admission_check(cluster: str, obj: Body) -> facts.AdmissionCheckChanged:
    """An AdmissionCheck. It is active by its condition; one of ours also before it has the condition.

    A controller that is gone leaves its condition behind: an operator may say so by an annotation.
    """
    controller = str((obj.get("spec") or {}).get("controllerName") or "")
    ours = controller in OWN_CONTROLLERS
    condition = find_condition(obj, ACTIVE)
    if (lost := annotations_of(obj).get(LOST)) is not None:
        active, message = False, f"an operator declared its controller {controller} lost: {lost}"
    elif condition is None:
        active, message = ours, "its controller has not said that it is active"
    else:
        active = condition.get("status") == "True"
        message = str(condition.get("message") or "")
    return facts.AdmissionCheckChanged(
        cluster=cluster,
        name=_name(obj),
        active=active,
        inactive_message="" if active else message,
        kind=_CHECK_KINDS.get(controller, "other"),
    )


def _resource(kind: Kind) -> tuple[str, str]:
    return (kind.group, kind.plural)


_READ: Final[dict[tuple[str, str], Callable[[str, Body], Fact]]] = {
    _resource(kinds.RESOURCE_FLAVOR): flavor,
    _resource(kinds.COHORT): cohort,
    _resource(kinds.CLUSTER_QUEUE): cluster_queue,
    _resource(kinds.LOCAL_QUEUE): _local_queue_or_its_end,
    _resource(kinds.NAMESPACE): namespace,
    _resource(kinds.ADMISSION_CHECK): admission_check,
}

_GONE: Final[dict[tuple[str, str], Callable[[Observed], Fact]]] = {
    _resource(kinds.RESOURCE_FLAVOR): lambda o: facts.FlavorGone(cluster=o.cluster, name=o.name),
    _resource(kinds.COHORT): lambda o: facts.CohortGone(cluster=o.cluster, name=o.name),
    _resource(kinds.CLUSTER_QUEUE): lambda o: facts.ClusterQueueGone(
        cluster=o.cluster, name=o.name
    ),
    _resource(kinds.LOCAL_QUEUE): lambda o: facts.LocalQueueGone(
        cluster=o.cluster, namespace=o.namespace or "", name=o.name
    ),
    _resource(kinds.NAMESPACE): lambda o: facts.NamespaceGone(cluster=o.cluster, name=o.name),
    _resource(kinds.ADMISSION_CHECK): lambda o: facts.AdmissionCheckGone(
        cluster=o.cluster, name=o.name
    ),
}


# Parts -----------------------------------------------------------------------------------------


class _Reader:
    """Reads the spec of one object; every problem names object, field and value."""

    def __init__(self, kind: str, obj: Body) -> None:
        namespace = obj["metadata"].get("namespace")
        self._what = f"{kind} {namespace}/{_name(obj)}" if namespace else f"{kind} {_name(obj)}"
        self.spec: dict[str, Any] = obj.get("spec") or {}

    def fail(self, path: str, problem: str) -> NoReturn:
        """Raise `TranslateError` for the object."""
        raise TranslateError(self._what, path, problem)

    def bound(self, path: str, items: Any, most: int) -> None:
        """Raise `TranslateError` for a list or map of more than `most`."""
        if items and len(items) > most:
            self.fail(path, f"{len(items)} are too many: at most {most}")

    def get(self, path: str) -> Any:
        """The value at ``spec.a.b``; None if anything on the way is missing."""
        value: Any = {"spec": self.spec}
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def name(self, path: str) -> str | None:
        """The name of another object; None if it is absent or empty."""
        value = self.get(path)
        if value is not None and not isinstance(value, str):
            self.fail(path, f"{value!r} is no name")
        return value or None

    def choice(self, path: str, allowed: Mapping[str, Any], otherwise: Any) -> Any:
        """The engine's value of an enum field; `otherwise` if it is absent."""
        value = self.get(path)
        if value is None or value == "":
            return otherwise
        if value not in allowed:
            self.fail(path, f"unsupported value {value!r}: one of {', '.join(allowed)}")
        return allowed[value]

    def weight(self) -> int:
        """`spec.fairSharing.weight` in billionths; 0 is a valid weight."""
        value = self.get("spec.fairSharing.weight")
        if value is None:
            return facts.WEIGHT_ONE
        try:
            weight = parse_quantity(str(value))
        except QuantityError as error:
            self.fail("spec.fairSharing.weight", str(error))
        if weight < 0:
            self.fail("spec.fairSharing.weight", f"{value!r} must be greater than or equal to 0")
        return weight

    def groups(self) -> tuple[facts.ResourceGroup, ...]:
        """`spec.resourceGroups`; a resource or flavor may be in one of them only."""
        seen_resources: set[str] = set()
        seen_flavors: set[str] = set()
        groups = []
        self.bound("spec.resourceGroups", self.spec.get("resourceGroups"), _GROUPS_MAX)
        for i, group in enumerate(self.spec.get("resourceGroups") or []):
            path = f"spec.resourceGroups[{i}]"
            for field in ("coveredResources", "flavors"):
                self.bound(f"{path}.{field}", group.get(field), _GROUP_ITEMS_MAX)
            covered = tuple(str(resource) for resource in group.get("coveredResources") or [])
            self._unique(f"{path}.coveredResources", covered, seen_resources)
            raw = group.get("flavors") or []
            self._unique(f"{path}.flavors", [str(f.get("name")) for f in raw], seen_flavors)
            flavors = tuple(
                self._flavor_quotas(f"{path}.flavors[{j}]", f, covered) for j, f in enumerate(raw)
            )
            groups.append(facts.ResourceGroup(covered=covered, flavors=flavors))
        return tuple(groups)

    def _unique(self, path: str, names: Any, seen: set[str]) -> None:
        for name in names:
            if name in seen:
                self.fail(path, f"duplicate value {name!r}")
            seen.add(name)

    def _flavor_quotas(
        self, path: str, raw: dict[str, Any], covered: tuple[str, ...]
    ) -> facts.FlavorQuotas:
        quotas: dict[str, facts.Quota] = {}
        for k, resource in enumerate(raw.get("resources") or []):
            name = str(resource.get("name"))
            here = f"{path}.resources[{k}]"
            if name not in covered:
                self.fail(f"{here}.name", f"{name!r} must match the name in coveredResources")
            if name in quotas:
                self.fail(f"{here}.name", f"duplicate value {name!r}")
            quotas[name] = self._quota(here, name, resource)
        if missing := [name for name in covered if name not in quotas]:
            self.fail(f"{path}.resources", f"no quota for covered resources {', '.join(missing)}")
        return facts.FlavorQuotas(name=str(raw.get("name")), quotas=quotas)

    def _quota(self, path: str, resource: str, raw: dict[str, Any]) -> facts.Quota:
        nominal = self._amount(f"{path}.nominalQuota", resource, raw.get("nominalQuota", "0"))
        borrowing = self._optional(f"{path}.borrowingLimit", resource, raw.get("borrowingLimit"))
        lending = self._optional(f"{path}.lendingLimit", resource, raw.get("lendingLimit"))
        return facts.Quota(nominal=nominal, borrowing_limit=borrowing, lending_limit=lending)

    def _optional(self, path: str, resource: str, value: Any) -> int | None:
        return None if value is None else self._amount(path, resource, value)

    def _amount(self, path: str, resource: str, value: Any) -> int:
        try:
            return amount(resource, str(value))
        except QuantityError as error:
            self.fail(path, str(error))

    def fungibility(self) -> facts.Fungibility:
        """`spec.flavorFungibility`."""
        base = "spec.flavorFungibility"
        return facts.Fungibility(
            when_can_borrow=self.choice(f"{base}.whenCanBorrow", _SEARCH, "MayStopSearch"),
            when_can_preempt=self.choice(f"{base}.whenCanPreempt", _SEARCH, "TryNextFlavor"),
            preference=self.choice(f"{base}.preference", _PREFERENCE, None),
        )

    def preemption(self) -> facts.Preemption:
        """`spec.preemption`."""
        base = "spec.preemption"
        threshold = self.get(f"{base}.borrowWithinCohort.maxPriorityThreshold")
        return facts.Preemption(
            within=self.choice(f"{base}.withinClusterQueue", _WITHIN, "Never"),
            reclaim=self.choice(f"{base}.reclaimWithinCohort", _RECLAIM, "Never"),
            borrow=self.choice(f"{base}.borrowWithinCohort.policy", _BORROW, "Never"),
            borrow_threshold=None if threshold is None else int(threshold),
        )

    def checks(self) -> tuple[facts.CheckRule, ...]:
        """`spec.admissionChecksStrategy`, or the list of v1beta1."""
        rules = [
            facts.CheckRule(
                name=str(check.get("name")), on_flavors=frozenset(check.get("onFlavors") or [])
            )
            for check in self.get("spec.admissionChecksStrategy.admissionChecks") or []
        ]
        rules += [facts.CheckRule(name=str(n)) for n in self.spec.get("admissionChecks") or []]
        return tuple(rules)

    def selector(self, path: str) -> facts.Selector | None:
        """A label selector; None: there is none, which selects nothing."""
        raw = self.get(path)
        if raw is None:
            return None
        labels = [
            facts.Requirement(key=key, operator="In", values=(str(value),))
            for key, value in (raw.get("matchLabels") or {}).items()
        ]
        expressions = [requirement(self._what, e) for e in raw.get("matchExpressions") or []]
        return facts.Selector(requirements=(*labels, *expressions))


def requirement(what: str, raw: dict[str, Any]) -> facts.Requirement:
    """One `matchExpressions` entry of object `what`. Raises `TranslateError`."""
    operator = raw.get("operator")
    if operator not in _OPERATORS:
        raise TranslateError(what, "matchExpressions", f"unsupported operator {operator!r}")
    return facts.Requirement(
        key=str(raw.get("key", "")),
        operator=operator,
        values=tuple(str(value) for value in raw.get("values") or []),
    )


def toleration(raw: dict[str, Any]) -> facts.Toleration:
    """A toleration of a pod spec."""
    return facts.Toleration(
        key=str(raw.get("key") or ""),
        operator=str(raw.get("operator") or "Equal"),
        value=str(raw.get("value") or ""),
        effect=str(raw.get("effect") or ""),
    )


def _name(obj: Body) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _uid(obj: Body) -> str:
    return str((obj.get("metadata") or {}).get("uid", ""))
