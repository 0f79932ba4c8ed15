"""What is configured for the whole engine, from the settings and from Kueue's document."""

from dataclasses import replace

from services.quota.engine import Policy
from services.quota.engine.types import SharingStrategy
from shared.settings.configuration import Configuration

__all__ = ["policy_of"]


def policy_of(configuration: Configuration, strategies: tuple[SharingStrategy, ...] = ()) -> Policy:
    """The policy. `strategies`: of fair sharing, where the settings name some; they count first."""
    sharing, admission = configuration.sharing, configuration.admission_fair_sharing
    found = strategies or (sharing.preemption_strategies if sharing is not None else ())
    policy = Policy(fair_sharing=True, strategies=found) if found else Policy()
    if admission is None:
        return policy
    return replace(
        policy,
        resource_weights=dict(admission.resource_weights),
        half_life=int(admission.usage_half_life_time * 1e9),
        sampling_interval=int(admission.usage_sampling_interval * 1e9),
    )
