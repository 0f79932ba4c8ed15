"""What comes into a round of allocation besides TaskRuns, and what comes out of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.provisioner.allocation.ledger import Book, Machine

__all__ = [
    "Broken",
    "Cleaned",
    "Failed",
    "Gone",
    "Launch",
    "Launching",
    "Outcome",
    "Placed",
    "Prepared",
    "Preparing",
    "Refused",
    "Release",
    "SeatReport",
    "Sighting",
    "Step",
    "Terminate",
    "Unusable",
    "Up",
    "Verdict",
    "Waiting",
]

# --- what a provider says about a machine ----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """It runs and can be reached."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """It will never come up; another one may."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The provider will not make one, however often it is asked."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """The provider confirmed that there is no such machine (any more)."""


Sighting = Up | Broken | Refused | Gone

# --- what was done on a host for a TaskRun -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Its user is there, and the key is put away."""

    sealed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """The host cannot be prepared for it; another one may."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """Its user is gone: the place is free."""

    given_up: bool = False
    """It could not be removed; its key will end by itself."""


SeatReport = Prepared | Unusable | Cleaned

# --- what a TaskRun is told ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing is free yet."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """Its machine was ordered."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """It has a place, and its user is being made there."""

    host: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """It has a place."""

    host: str
    address: str
    """Empty for the pod itself."""

    sealed: str = ""
    """More of its secret, for the patcher alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It will not get one; the text is for the `error` key of its secret."""

    message: str


Verdict = Waiting | Launching | Preparing | Placed | Failed


# --- what happened in a round ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A machine is to be ordered: its record is the intent, and comes first."""

    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate:
    """A machine is to go."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A place is free again."""

    uid: str
    host: str


Step = Launch | Terminate | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a round."""

    book: Book
    verdicts: Mapping[str, Verdict]
    """TaskRun uid to what it is told: of every request that was passed in and is not settled."""

    steps: tuple[Step, ...]
