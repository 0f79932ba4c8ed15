"""One watch: the changes that match its selector, with the event types that its client sees."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from services.simulator.cluster.kinds.registry import Kind
from services.simulator.cluster.selectors import Selector
from services.simulator.cluster.storage.store import Store, Subscription
from services.simulator.cluster.storage.stored import Event, EventType, Stored

BUFFER_MAX: Final = 20_000
"""Events buffered for one slow client. A watch with more of them ends, and the client resumes it."""


def _ignore() -> None:
    """The default of `on_ready`."""


class Watch:
    """Matching changes of one kind since a version. Poll `drain`, or set `on_ready`."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        *,
        namespace: str | None = None,
        selector: Selector | None = None,
        since: int,
        initial: Sequence[Stored] = (),
        buffer_max: int = BUFFER_MAX,
    ) -> None:
        """Start after version `since`, or with `initial` objects as ADDED events."""
        self._namespace = namespace
        self._selector = selector
        self._buffer_max = buffer_max
        self._buffer: deque[tuple[EventType, Event]] = deque()
        self._subscription: Subscription | None = None
        self.on_ready: Callable[[], None] = _ignore
        self.overflowed = False
        """True once the buffer was full: the watch has to end."""

        self._store = store
        self.seen = since
        """All events up to this version are drained or did not match: the version of a bookmark."""

        for stored in initial:
            self._buffer.append(("ADDED", Event("ADDED", stored, None)))
        if not initial:
            for event in store.since(kind, since):
                self._on_event(event)
        self._subscription = store.subscribe(kind, self._on_event)

    def _shown_as(self, event: Event) -> EventType | None:
        """Event type for the client: ADDED when an object starts to match, DELETED when it stops."""
        if self._namespace is not None and event.stored.namespace != self._namespace:
            return None
        if self._selector is None:
            return event.type
        matched = event.before is not None and self._selector(event.before.obj)
        if event.type == "DELETED":
            return "DELETED" if matched else None
        if self._selector(event.stored.obj):
            return "MODIFIED" if matched else "ADDED"
        return "DELETED" if matched else None

    def _on_event(self, event: Event) -> None:
        shown = self._shown_as(event)
        if shown is None:
            return
        if len(self._buffer) >= self._buffer_max:
            self.overflowed = True
            self.close()
        else:
            left = shown == "DELETED" and event.type != "DELETED"
            self._buffer.append((shown, event.as_deletion() if left else event))
        self.on_ready()

    @property
    def pending(self) -> bool:
        """True if `drain` would return events."""
        return bool(self._buffer)

    def drain(self) -> list[tuple[EventType, Event]]:
        """Return the events since the last call, oldest first."""
        taken = list(self._buffer)
        self._buffer.clear()
        self.seen = max(self.seen, self._store.version)
        return taken

    def close(self) -> None:
        """Hear no more."""
        if self._subscription is not None:
            self._subscription.close()
