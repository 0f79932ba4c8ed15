"""Chooses the spokes that a workload is offered to. Pure.

`all-at-once` and `incremental` do what Kueue's dispatchers of these names do (kubernetes-sigs/kueue@ff69552
pkg/controller/workloaddispatcher). `best-fit` offers the workload to one spoke at a time. With any other
name, another program nominates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.contracts.controllers import MULTIKUEUE_DISPATCHER_PREFIX

FULL_SPOKE_SECONDS: Final = 1.0
"""Best fit: how long an offer stays on a full spoke while another spoke has free quota."""


class NominationStrategy(StrEnum):
    """How spokes are nominated."""

    ALL_AT_ONCE = "all-at-once"
    INCREMENTAL = "incremental"
    BEST_FIT = "best-fit"
    EXTERNAL = "external"

    @classmethod
    def from_name(cls, name: str) -> "NominationStrategy":
        """The strategy of a name, with or without Kueue's prefix. Any other name is `EXTERNAL`."""
        short = name.removeprefix(MULTIKUEUE_DISPATCHER_PREFIX)
        return cls(short) if short in tuple(cls) else cls.EXTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class NominationRules:
    """A strategy and its parameters."""

    strategy: NominationStrategy = NominationStrategy.BEST_FIT
    step_size: int = 3
    """Incremental: how many spokes each round adds."""

    round_seconds: float = 300.0
    """Incremental: length of a round."""

    fallback_seconds: float = 10.0
    """Best fit: how long a copy waits for quota before it moves to a spoke with free quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A spoke that may be used. Candidates come in the order of the MultiKueueConfig."""

    spoke: str
    fits: bool = True
    """Its free quota covers the workload, as far as the hub knows."""

    load: float = 0.0
    """Share of its quota in use with this workload, of the resource that is used most."""

    failures: int = 0
    """Offers that failed there lately."""

    latency_seconds: float = 0.0
    """From an offer to its copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer that is not withdrawn."""

    age_seconds: float
    reserved: bool = False
    """The copy has quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """The spokes that have an offer after this step."""

    spokes: tuple[str, ...]
    recheck_seconds: float | None = None
    """When to nominate again even if nothing changes; None: never."""


def nominate(
    rules: NominationRules,
    candidates: tuple[Candidate, ...],
    offers: Mapping[str, Offer],
    external: tuple[str, ...] = (),
) -> Nomination:
    """The next step. `offers` are those to candidates, oldest first; `external` is used by EXTERNAL."""
    usable = tuple(candidate.spoke for candidate in candidates)
    match rules.strategy:
        case NominationStrategy.ALL_AT_ONCE:
            return Nomination(spokes=usable)
        case NominationStrategy.EXTERNAL:
            return Nomination(spokes=tuple(spoke for spoke in external if spoke in usable))
        case NominationStrategy.INCREMENTAL:
            return _incremental(rules, usable, offers)
        case NominationStrategy.BEST_FIT:
            return _best_fit(rules, candidates, offers)


def _incremental(
    rules: NominationRules, usable: tuple[str, ...], offers: Mapping[str, Offer]
) -> Nomination:
    rest = [spoke for spoke in usable if spoke not in offers]
    if not rest:
        return Nomination(spokes=tuple(offers))
    left = 0.0
    if offers:
        left = rules.round_seconds - min(offer.age_seconds for offer in offers.values())
    if left > 0:
        return Nomination(spokes=tuple(offers), recheck_seconds=left)
    recheck = rules.round_seconds if len(rest) > rules.step_size else None
    return Nomination(spokes=(*offers, *rest[: rules.step_size]), recheck_seconds=recheck)


def _best_fit(
    rules: NominationRules, candidates: tuple[Candidate, ...], offers: Mapping[str, Offer]
) -> Nomination:
    """One spoke at a time. An offer on a full spoke stays until another spoke has free quota."""
    preferred = sorted(candidates, key=_preference)
    current = next(iter(offers), None)
    if current is None:
        if not preferred:
            return Nomination(spokes=())
        recheck = rules.fallback_seconds if preferred[0].fits else FULL_SPOKE_SECONDS
        return Nomination(spokes=(preferred[0].spoke,), recheck_seconds=recheck)
    offer = offers[current]
    better = next((c.spoke for c in preferred if c.spoke != current and c.fits), None)
    if offer.reserved or better is None:
        recheck_seconds = None if offer.reserved else FULL_SPOKE_SECONDS
        return Nomination(spokes=(current,), recheck_seconds=recheck_seconds)
    fits = any(c.spoke == current and c.fits for c in candidates)
    patience = rules.fallback_seconds if fits else min(rules.fallback_seconds, FULL_SPOKE_SECONDS)
    left = patience - offer.age_seconds
    if left > 0:
        return Nomination(spokes=(current,), recheck_seconds=left)
    return Nomination(spokes=(better,), recheck_seconds=rules.fallback_seconds)


def _preference(candidate: Candidate) -> tuple[bool, int, float, float]:
    # Latency in whole seconds, load in hundredths: below that, the order of the configuration counts.
    latency = round(candidate.latency_seconds)
    return (not candidate.fits, candidate.failures, latency, round(candidate.load, 2))
