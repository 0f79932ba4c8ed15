"""Which spokes a check may use: AdmissionChecks, MultiKueueConfigs, MultiKueueClusters, flavors.

And what the hub's priority classes are worth.
"""

from dataclasses import dataclass
from typing import Final

from shared.contracts.kube.kinds import (
    ADMISSION_CHECK,
    MULTIKUEUE_CLUSTER,
    MULTIKUEUE_CONFIG,
    RESOURCE_FLAVOR,
    WORKLOAD_PRIORITY_CLASS,
    Object,
)
from shared.contracts.kube.names import LOST
from shared.contracts.messages.observed import Observed

__all__ = ["CONTROLLER", "SPOKE", "Configuration", "Spokes"]

CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""`spec.controllerName` of the AdmissionChecks that are ours."""

SPOKE: Final = "sluicegate.dev/spoke"
"""Label of a job, of a ResourceFlavor, or of a flavor's nodes: only this spoke will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spokes:
    """What a check may use."""

    named: tuple[str, ...] = ()
    """In the order of the configuration: those that have a MultiKueueCluster."""

    missing: tuple[str, ...] = ()
    """Those that have none, or that are this hub itself."""

    problem: str = ""
    """Why there is nothing to use at all."""


class Configuration:
    """The hub's objects that say what goes where."""

    def __init__(self, *, cluster: str) -> None:
        self._cluster = cluster
        self._objects: dict[tuple[str, str], Object] = {}
        self._present: dict[str, None] = {}

    def take(self, observed: Observed) -> bool:
        """Take in an object of the hub; return whether it was one of these kinds."""
        if observed.plural not in _PLURALS:
            return False
        if observed.deleted or observed.object is None:
            self._objects.pop((observed.plural, observed.name), None)
        else:
            self._objects[observed.plural, observed.name] = observed.object
        return True

    def take_synced(self, cluster: str) -> None:
        """A watcher has listed `cluster`: somebody is there."""
        self._present[cluster] = None

    @property
    def hub_synced(self) -> bool:
        """Whether the hub's objects are all there."""
        return self._cluster in self._present

    def is_listed(self, spoke: str) -> bool:
        """Whether a watcher has listed it."""
        return spoke in self._present

    def is_ours(self, check: str) -> bool:
        """Whether we are the one who answers `check`."""
        found = self._objects.get((ADMISSION_CHECK.plural, check))
        return found is not None and (found.get("spec") or {}).get("controllerName") == CONTROLLER

    def checks(self) -> list[str]:
        """The AdmissionChecks that we answer."""
        plural = ADMISSION_CHECK.plural
        return sorted(n for kind, n in self._objects if kind == plural and self.is_ours(n))

    def known_spokes(self) -> list[str]:
        """Every cluster that some MultiKueueCluster names."""
        plural = MULTIKUEUE_CLUSTER.plural
        return sorted(name for kind, name in self._objects if kind == plural)

    def is_known(self, spoke: str) -> bool:
        """Whether a MultiKueueCluster names it."""
        return (MULTIKUEUE_CLUSTER.plural, spoke) in self._objects

    def source(self, spoke: str) -> str | None:
        """How its object says that it is reached: `kubeConfig`, `clusterProfileRef`; None: not at all."""
        spec = (self._objects.get((MULTIKUEUE_CLUSTER.plural, spoke)) or {}).get("spec") or {}
        source = spec.get("clusterSource") or spec
        return next(
            (name for name in ("kubeConfig", "clusterProfileRef") if source.get(name)), None
        )

    def lost(self, spoke: str) -> str | None:
        """Why an operator declared it lost; None: nobody did."""
        found = self._objects.get((MULTIKUEUE_CLUSTER.plural, spoke))
        annotations = (found or {}).get("metadata", {}).get("annotations") or {}
        return str(annotations[LOST]) if LOST in annotations else None

    def demanded(self, flavor: str) -> str | None:
        """The spoke that a flavor demands."""
        found = self._objects.get((RESOURCE_FLAVOR.plural, flavor)) or {}
        nodes = (found.get("spec") or {}).get("nodeLabels") or {}
        labels = (found.get("metadata") or {}).get("labels") or {}
        demanded = labels.get(SPOKE) or nodes.get(SPOKE)
        return str(demanded) if demanded else None

    def priority(self, class_: str) -> int | None:
        """What a WorkloadPriorityClass is worth; None: there is none of that name."""
        found = self._objects.get((WORKLOAD_PRIORITY_CLASS.plural, class_))
        return None if found is None else int(found.get("value") or 0)

    def spokes(self, check: str) -> Spokes:
        """The spokes of `check`, or why there are none."""
        found = self._objects[ADMISSION_CHECK.plural, check]
        parameters = (found.get("spec") or {}).get("parameters") or {}
        kind, name = parameters.get("kind"), str(parameters.get("name") or "")
        if kind != MULTIKUEUE_CONFIG.kind:
            return Spokes(problem=f'AdmissionCheck "{check}" names no MultiKueueConfig')
        config = self._objects.get((MULTIKUEUE_CONFIG.plural, name))
        if config is None:
            return Spokes(
                problem=f'MultiKueueConfig "{name}" of AdmissionCheck "{check}" not found'
            )
        names = [str(spoke) for spoke in (config.get("spec") or {}).get("clusters") or []]
        named: list[str] = []
        missing: list[str] = []
        for spoke in dict.fromkeys(names):
            there = self.is_known(spoke) and spoke != self._cluster
            (named if there else missing).append(spoke)
        return Spokes(named=tuple(named), missing=tuple(missing))


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
