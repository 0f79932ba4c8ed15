"""How large a message of a spoke may be, and all that configures its cluster together.

A reader at the hub holds what it needs of every object, decoded. So the objects that configure a cluster
(namespaces, queues, classes and the like) are bounded in bytes for each spoke, whatever room the log has.
"""

from typing import Final

from shared.bus.filters import covers
from shared.bus.nats.bus import NatsBus
from shared.bus.streams import load
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed
from shared.contracts.subjects import observed_filter, subject_filter

KIB, MIB = 1 << 10, 1 << 20

OBJECT_BYTES_MAX: Final = 2 * MIB
"""An API server stores objects of 1.5 MiB at most."""

CONFIGURATION: Final[tuple[Kind, ...]] = (*kinds.CONFIGURATION_KINDS, kinds.INTEGRATION)
"""The kinds that configure a cluster. A reader of the hub may hold each object of them."""

_MOST: Final[tuple[tuple[str, int], ...]] = (
    (subject_filter("beat"), 64 * KIB),
    (subject_filter("seal"), 64 * KIB),
    (subject_filter("copy"), OBJECT_BYTES_MAX),
    (subject_filter("outcome"), MIB),
    # Its annotations have 256 KiB at most.
    (observed_filter(kinds.NAMESPACE), 512 * KIB),
    *((observed_filter(kind), OBJECT_BYTES_MAX) for kind in CONFIGURATION),
)
"""Subjects to the bytes of a message. Of jobs and pods a message may be as large as any."""

RECOUNT_SECONDS: Final = 30.0
"""After this at the earliest it is counted again what a spoke has in the view: that reads headers."""


def most_bytes(subject: str) -> int | None:
    """How large a message of a subject may be; None: as large as the server takes."""
    return next((most for pattern, most in _MOST if covers(pattern, subject)), None)


class ConfigurationShare:
    """What the objects that configure a spoke's cluster have in the view of `OBSERVED`, and may have."""

    def __init__(self, bus: NatsBus, token: str, *, most: int | None = None) -> None:
        """`token`: the spoke, as subjects have it. `most`: bytes; None: as streams.yaml says."""
        self._bus = bus
        self._filters = tuple(
            observed_filter(kind).replace(".observed.*.", f".observed.{token}.", 1)
            for kind in CONFIGURATION
        )
        self._most = load().configuration_bytes if most is None else most
        self._sizes: dict[str, int] | None = None
        """By subject; None: not counted yet."""

        self._total = 0
        self._counted_at = 0.0

    async def refusal(self, subject: str, size: int, now: float) -> str | None:
        """Why a message may not be added; None: it may, and counts. Raises `BusError`."""
        if not any(covers(one, subject) for one in self._filters):
            return None
        if self._sizes is None or (
            self._exceeds(subject, size) and now - self._counted_at > RECOUNT_SECONDS
        ):
            await self._count()
            self._counted_at = now
        if self._exceeds(subject, size):
            return f"has {self._most // MIB} MiB of objects that configure its cluster"
        assert self._sizes is not None
        self._total += size - self._sizes.get(subject, 0)
        self._sizes[subject] = size
        return None

    def _exceeds(self, subject: str, size: int) -> bool:
        """Whether it does not fit. What is as small as what it replaces always fits."""
        before = 0 if self._sizes is None else self._sizes.get(subject, 0)
        return size > before and self._total - before + size > self._most

    async def _count(self) -> None:
        stored = self._bus.stored_sizes(Observed.stream, *self._filters)
        self._sizes = {subject: size async for subject, size in stored}
        self._total = sum(self._sizes.values())
