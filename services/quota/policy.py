"""The engine's policy, from the service's settings and from Kueue's configuration document."""

from dataclasses import replace

from services.quota.engine import Policy
from services.quota.engine.types import SharingStrategy
from shared.settings.configuration import Configuration


def policy_of(configuration: Configuration, strategies: tuple[SharingStrategy, ...] = ()) -> Policy:
    """The policy. `strategies` of fair sharing come from the settings and override the document."""
    sharing, admission = configuration.sharing, configuration.admission_fair_sharing
    configured = strategies or (sharing.preemption_strategies if sharing is not None else ())
    policy = Policy(fair_sharing=True, strategies=configured) if configured else Policy()
    ignores = configuration.resources.quota_check_strategy == "IgnoreUndeclared"
    policy = replace(policy, ignore_undeclared=ignores)
    if admission is None:
        return policy
    return replace(
        policy,
        resource_weights=dict(admission.resource_weights),
        half_life=int(admission.usage_half_life_time * 1e9),
        sampling_interval=int(admission.usage_sampling_interval * 1e9),
    )
