"""Which spokes a check may use: AdmissionChecks, MultiKueueConfigs, MultiKueueClusters, and who is there."""

from dataclasses import dataclass
from typing import Final

from shared.contracts.kinds import (
    ADMISSION_CHECK,
    MULTIKUEUE_CLUSTER,
    MULTIKUEUE_CONFIG,
    Object,
)
from shared.contracts.observed import Observed

__all__ = ["CONTROLLER", "Configuration", "Spokes"]

CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
"""`spec.controllerName` of the AdmissionChecks that are ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spokes:
    """What a check may use."""

    usable: tuple[str, ...] = ()
    """In the order of the configuration."""

    problem: str = ""


class Configuration:
    """The hub's objects, and the spokes that were heard of."""

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

    def is_ours(self, check: str) -> bool:
        """Whether we are the one who answers `check`."""
        found = self._objects.get((ADMISSION_CHECK.plural, check))
        return found is not None and (found.get("spec") or {}).get("controllerName") == CONTROLLER

    def known_spokes(self) -> list[str]:
        """Every cluster that some MultiKueueCluster names."""
        plural = MULTIKUEUE_CLUSTER.plural
        return sorted(name for kind, name in self._objects if kind == plural)

    def spokes(self, check: str) -> Spokes:
        """The usable spokes of `check`, or why there are none."""
        found = self._objects[ADMISSION_CHECK.plural, check]
        name = str(((found.get("spec") or {}).get("parameters") or {}).get("name") or "")
        config = self._objects.get((MULTIKUEUE_CONFIG.plural, name))
        if config is None:
            return Spokes(
                problem=f'MultiKueueConfig "{name}" of AdmissionCheck "{check}" not found'
            )
        names = [str(spoke) for spoke in (config.get("spec") or {}).get("clusters") or []]
        usable, missing, silent = [], [], []
        for spoke in dict.fromkeys(names):
            if (MULTIKUEUE_CLUSTER.plural, spoke) not in self._objects or spoke == self._cluster:
                missing.append(spoke)
            elif spoke not in self._present:
                silent.append(spoke)
            else:
                usable.append(spoke)
        problems = [
            f"{what}: {', '.join(spokes)}"
            for what, spokes in (("Missing clusters", missing), ("Inactive clusters", silent))
            if spokes
        ]
        return Spokes(
            usable=tuple(usable), problem=f"No usable worker cluster. {'. '.join(problems)}"
        )


_PLURALS: Final = frozenset(
    kind.plural for kind in (ADMISSION_CHECK, MULTIKUEUE_CONFIG, MULTIKUEUE_CLUSTER)
)
