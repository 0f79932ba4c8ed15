"""What operators configure for the whole engine."""

from dataclasses import dataclass

from services.quota.engine.types import SHARING_STRATEGIES, SharingStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is configured for the whole engine."""

    fair_sharing: bool = False
    strategies: tuple[SharingStrategy, ...] = SHARING_STRATEGIES
    """Fair sharing's preemption strategies, in order."""

    resource_weights: "dict[str, float] | None" = None
    """Admission fair sharing: weight by resource (1 if absent); None: off."""

    half_life: int = 0
    """Nanoseconds in which a LocalQueue's past usage counts half."""

    sampling_interval: int = 300_000_000_000
    """Nanoseconds between two samples of usage."""

    ignore_undeclared: bool = False
    """Resources for which a queue has no quota are not counted there; else they keep a workload waiting."""
