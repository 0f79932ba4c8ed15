"""Which spokes a workload is offered to. Pure.

All at once, and in rounds, as in Kueue (`research/kueue.md` 1.4); to the one that fits best; or to
those that somebody else names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Candidate", "Dispatcher", "Nomination", "Offer", "Rules", "nominate"]

NO_ROOM_SECONDS: Final = 1.0
"""Best fit: where there is no room, a copy does not stay for longer once somebody else has some."""

KUEUE_PREFIX: Final = "kueue.x-k8s.io/multikueue-dispatcher-"


class Dispatcher(StrEnum):
    """A way to nominate."""

    ALL_AT_ONCE = "all-at-once"
    INCREMENTAL = "incremental"
    BEST_FIT = "best-fit"
    EXTERNAL = "external"

    @classmethod
    def named(cls, name: str) -> "Dispatcher":
        """By its name here, or by Kueue's; any other name is a program that nominates by itself."""
        short = name.removeprefix(KUEUE_PREFIX)
        return cls(short) if short in tuple(cls) else cls.EXTERNAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How it is done."""

    dispatcher: Dispatcher = Dispatcher.BEST_FIT
    step_size: int = 3
    """Incremental: this many more each round."""

    round_seconds: float = 300.0
    fallback_seconds: float = 10.0
    """Best fit: a copy that has waited so long for quota goes where there is room now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A spoke that may be used, in the order of the configuration."""

    spoke: str
    room: bool = True
    """It has quota for this workload now, as far as is known."""

    load: float = 0.0
    """Share of its quota that would be in use, by the fullest resource."""

    failures: int = 0
    """Offers that came to nothing there, lately."""

    latency_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer that stands."""

    age_seconds: float
    reserved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """Who shall have it on offer now."""

    spokes: tuple[str, ...]
    again_seconds: float | None = None
    """When to look again, though nothing happens; None: need not."""


def nominate(
    rules: Rules,
    candidates: tuple[Candidate, ...],
    offers: Mapping[str, Offer],
    external: tuple[str, ...] = (),
) -> Nomination:
    """The next step; `offers` are those to candidates, oldest first."""
    usable = tuple(candidate.spoke for candidate in candidates)
    match rules.dispatcher:
        case Dispatcher.ALL_AT_ONCE:
            return Nomination(spokes=usable)
        case Dispatcher.EXTERNAL:
            return Nomination(spokes=tuple(spoke for spoke in external if spoke in usable))
        case Dispatcher.INCREMENTAL:
            return _in_rounds(rules, usable, offers)
        case Dispatcher.BEST_FIT:
            return _best_fit(rules, candidates, offers)


def _in_rounds(rules: Rules, usable: tuple[str, ...], offers: Mapping[str, Offer]) -> Nomination:
    rest = [spoke for spoke in usable if spoke not in offers]
    if not rest:
        return Nomination(spokes=tuple(offers))
    left = 0.0
    if offers:
        left = rules.round_seconds - min(offer.age_seconds for offer in offers.values())
    if left > 0:
        return Nomination(spokes=tuple(offers), again_seconds=left)
    again = rules.round_seconds if len(rest) > rules.step_size else None
    return Nomination(spokes=(*offers, *rest[: rules.step_size]), again_seconds=again)


def _best_fit(
    rules: Rules, candidates: tuple[Candidate, ...], offers: Mapping[str, Offer]
) -> Nomination:
    """One at a time. Who has no room any more keeps the copy waiting until somebody else has."""
    ranked = sorted(candidates, key=_rank)
    current = next(iter(offers), None)
    if current is None:
        if not ranked:
            return Nomination(spokes=())
        again = rules.fallback_seconds if ranked[0].room else NO_ROOM_SECONDS
        return Nomination(spokes=(ranked[0].spoke,), again_seconds=again)
    offer = offers[current]
    better = next((c.spoke for c in ranked if c.spoke != current and c.room), None)
    if offer.reserved or better is None:
        wait = None if offer.reserved else NO_ROOM_SECONDS
        return Nomination(spokes=(current,), again_seconds=wait)
    fits = any(c.spoke == current and c.room for c in candidates)
    patience = rules.fallback_seconds if fits else min(rules.fallback_seconds, NO_ROOM_SECONDS)
    left = patience - offer.age_seconds
    if left > 0:
        return Nomination(spokes=(current,), again_seconds=left)
    return Nomination(spokes=(better,), again_seconds=rules.fallback_seconds)


def _rank(candidate: Candidate) -> tuple[bool, int, float, float]:
    # Steps of a second and of a fiftieth: what differs by less is decided by the configuration.
    latency = round(candidate.latency_seconds)
    return (not candidate.room, candidate.failures, latency, round(candidate.load, 2))
