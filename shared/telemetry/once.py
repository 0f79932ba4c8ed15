"""What is to be said once, however often it happens."""

from collections.abc import Hashable


class Once:
    """Remembers the last `limit` keys, so that one event that repeats does not flood the log."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: dict[Hashable, None] = {}

    def is_new(self, key: Hashable) -> bool:
        """Whether the key comes for the first time, as far as it is remembered."""
        if key in self._known:
            return False
        while len(self._known) >= self._limit:
            self._known.pop(next(iter(self._known)))
        self._known[key] = None
        return True
