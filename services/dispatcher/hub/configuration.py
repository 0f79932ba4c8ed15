"""Which spokes an AdmissionCheck may use, and the values of the hub's WorkloadPriorityClasses.

Read from the hub's AdmissionChecks, MultiKueueConfigs, MultiKueueClusters, ResourceFlavors and
WorkloadPriorityClasses.
"""

from dataclasses import dataclass
from typing import Final

from shared.contracts.controllers import MULTIKUEUE, OWN_CONTROLLERS
from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of
from shared.contracts.kube.kinds import (
    ADMISSION_CHECK,
    MULTIKUEUE_CLUSTER,
    MULTIKUEUE_CONFIG,
    RESOURCE_FLAVOR,
    WORKLOAD_PRIORITY_CLASS,
)
from shared.contracts.kube.names import LOST, SPOKE_LABEL
from shared.contracts.messages.observed import Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSpokes:
    """The spokes of one AdmissionCheck, in the order of its MultiKueueConfig."""

    configured: tuple[str, ...] = ()
    """Spokes that have a MultiKueueCluster."""

    missing: tuple[str, ...] = ()
    """Names without a MultiKueueCluster, and the name of this hub itself."""

    problem: str = ""
    """Why the check has no configuration; empty if it has one."""


class MultiKueueConfiguration:
    """The hub's MultiKueue objects, ResourceFlavors and WorkloadPriorityClasses."""

    def __init__(self, *, cluster: str) -> None:
        self._cluster = cluster
        self._objects: dict[tuple[str, str], Body] = {}
        """By plural and name."""

        self._listed: dict[str, None] = {}
        self.has_foreign_check = False
        """Whether there is or was a check whose controller answers in the Workload's status."""

    def observe(self, observed: Observed) -> bool:
        """Record an object of the hub; return whether it is of one of these kinds."""
        if observed.plural not in _PLURALS:
            return False
        if observed.deleted or observed.body is None:
            self._objects.pop((observed.plural, observed.name), None)
        else:
            self._objects[observed.plural, observed.name] = observed.body
            if observed.plural == ADMISSION_CHECK.plural and self.is_foreign_check(observed.name):
                self.has_foreign_check = True
        return True

    def mark_listed(self, cluster: str) -> None:
        """Record that a watcher has listed all objects of `cluster`."""
        self._listed[cluster] = None

    @property
    def is_hub_listed(self) -> bool:
        """Whether a watcher has listed the hub."""
        return self._cluster in self._listed

    def is_listed(self, spoke: str) -> bool:
        """Whether a watcher has listed `spoke`."""
        return spoke in self._listed

    def controller_of(self, check: str) -> str:
        """The controller that the AdmissionCheck `check` names; empty if there is no such check."""
        found = self._objects.get((ADMISSION_CHECK.plural, check))
        return str(spec_of(found).get("controllerName") or "")

    def is_multikueue_check(self, check: str) -> bool:
        """Whether it is a MultiKueue check, which the dispatcher answers."""
        return self.controller_of(check) == MULTIKUEUE

    def is_foreign_check(self, check: str) -> bool:
        """Whether a controller that is none of ours answers the check; False if there is no such check."""
        controller = self.controller_of(check)
        return bool(controller) and controller not in OWN_CONTROLLERS

    def multikueue_checks(self) -> list[str]:
        """The AdmissionChecks that the dispatcher answers, by name."""
        plural = ADMISSION_CHECK.plural
        return sorted(
            name
            for kind, name in self._objects
            if kind == plural and self.is_multikueue_check(name)
        )

    def known_spokes(self) -> list[str]:
        """Every cluster that has a MultiKueueCluster, by name."""
        plural = MULTIKUEUE_CLUSTER.plural
        return sorted(name for kind, name in self._objects if kind == plural)

    def is_known(self, spoke: str) -> bool:
        """Whether `spoke` has a MultiKueueCluster."""
        return (MULTIKUEUE_CLUSTER.plural, spoke) in self._objects

    def cluster_source(self, spoke: str) -> str | None:
        """`kubeConfig` or `clusterProfileRef` of a MultiKueueCluster; None if it has neither."""
        spec = spec_of(self._objects.get((MULTIKUEUE_CLUSTER.plural, spoke)))
        source = spec.get("clusterSource") or spec
        return next(
            (name for name in ("kubeConfig", "clusterProfileRef") if source.get(name)), None
        )

    def declared_lost(self, spoke: str) -> str | None:
        """Why an operator declared the spoke lost (an annotation); None if nobody did."""
        return annotations_of(self._objects.get((MULTIKUEUE_CLUSTER.plural, spoke))).get(LOST)

    def required_spoke(self, flavor: str) -> str | None:
        """The spoke that a ResourceFlavor requires by its label or its node label; None for any."""
        found = self._objects.get((RESOURCE_FLAVOR.plural, flavor))
        nodes = spec_of(found).get("nodeLabels") or {}
        spoke = labels_of(found).get(SPOKE_LABEL) or nodes.get(SPOKE_LABEL)
        return str(spoke) if spoke else None

    def priority_value(self, priority_class: str) -> int | None:
        """The value of a WorkloadPriorityClass; None if the hub has none of that name."""
        found = self._objects.get((WORKLOAD_PRIORITY_CLASS.plural, priority_class))
        return None if found is None else int(found.get("value") or 0)

    def spokes(self, check: str) -> CheckSpokes:
        """The spokes of the AdmissionCheck `check`, or why it has none."""
        found = self._objects[ADMISSION_CHECK.plural, check]
        parameters = spec_of(found).get("parameters") or {}
        kind, name = parameters.get("kind"), str(parameters.get("name") or "")
        if kind != MULTIKUEUE_CONFIG.kind:
            return CheckSpokes(problem=f'AdmissionCheck "{check}" names no MultiKueueConfig')
        config = self._objects.get((MULTIKUEUE_CONFIG.plural, name))
        if config is None:
            return CheckSpokes(
                problem=f'MultiKueueConfig "{name}" of AdmissionCheck "{check}" not found'
            )
        if spec_of(config).get("quotaManagement") == "Automated":
            return CheckSpokes(
                problem=f'MultiKueueConfig "{name}": spec.quotaManagement: Automated is not offered; '
                "set it to Manual, and the quotas of the queues here by hand"
            )
        names = [str(spoke) for spoke in spec_of(config).get("clusters") or []]
        configured: list[str] = []
        missing: list[str] = []
        for spoke in dict.fromkeys(names):
            usable = self.is_known(spoke) and spoke != self._cluster
            (configured if usable else missing).append(spoke)
        return CheckSpokes(configured=tuple(configured), missing=tuple(missing))


_PLURALS: Final = frozenset(
    kind.plural
    for kind in (
        ADMISSION_CHECK,
        MULTIKUEUE_CONFIG,
        MULTIKUEUE_CLUSTER,
        RESOURCE_FLAVOR,
        WORKLOAD_PRIORITY_CLASS,
    )
)
