"""The object store for bodies that are too large for a message, in memory."""

from collections.abc import Callable, Collection

from shared.bus.nats.large_bodies import digest_of, split
from shared.bus.port import StreamFullError


class Bodies:
    """The stored bodies of a server in memory."""

    def __init__(self, *, full: Callable[[], bool]) -> None:
        self._full = full
        self._bodies: dict[str, tuple[bytes, float]] = {}
        """Name to body and when it was stored, in loop time."""

    def __len__(self) -> int:
        return len(self._bodies)

    def put(self, ref: str, data: bytes, *, at: float) -> None:
        """Store a body; it replaces the one of that name. Raises `StreamFullError`."""
        if self._full():
            raise StreamFullError("the object store is full (10077)")
        self._bodies[split(ref)[0]] = data, at

    def get(self, ref: str) -> bytes | None:
        """Return the body of a reference; None if it is deleted or replaced."""
        name, digest = split(ref)
        data, _ = self._bodies.get(name, (None, 0.0))
        return data if data is not None and digest_of(data) == digest else None

    def drop(self, ref: str) -> None:
        """Delete the body, unless it was replaced."""
        if self.get(ref) is not None:
            del self._bodies[split(ref)[0]]

    def keep(self, prefix: str, refs: Collection[str], *, before: float) -> int:
        """Delete bodies with that prefix that are not kept and were stored before; return their number."""
        kept = {split(ref)[0] for ref in refs}
        gone = [
            name
            for name, (_, at) in self._bodies.items()
            if name.startswith(prefix) and name not in kept and at < before
        ]
        for name in gone:
            del self._bodies[name]
        return len(gone)
