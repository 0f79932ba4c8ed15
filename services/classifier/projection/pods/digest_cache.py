"""A cache of results by the SHA-256 of the text they follow from, bounded in entries and in bytes. Pure."""

import hashlib
from typing import Final

ENTRIES_MAX: Final = 10_000
"""Small texts, too, cost some hundred bytes for each entry, which `BYTES_MAX` does not count."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""Limit for the texts of all entries together. The texts are not kept: a result is about as large as
what it follows from, so that this bounds the results too."""

TEXT_BYTES_MAX: Final = 64 * 1024
"""A longer text is not cached: no two jobs share a pod template of that size, but one user's patches
would push out everybody's."""


class DigestCache:
    """Least recently used first out."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entries: dict[bytes, tuple[object, int]] = {}
        self.size = 0
        """Bytes of the texts of all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: bytes) -> object | None:
        """Return the result for `text`; None if there is none."""
        if len(text) > TEXT_BYTES_MAX:
            return None
        key = _digest(text)
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self._entries[key] = found  # Now the most recently used.
        return found[0]

    def put(self, text: bytes, result: object) -> None:
        """Keep the result for `text`, and drop the least recently used beyond the limits."""
        if len(text) > TEXT_BYTES_MAX:
            return
        key = _digest(text)
        self._forget(key)
        self._entries[key] = (result, len(text))
        self.size += len(text)
        while len(self._entries) > self._entries_max or self.size > self._bytes_max:
            self._forget(next(iter(self._entries)))

    def clear(self) -> None:
        """Drop everything."""
        self._entries.clear()
        self.size = 0

    def _forget(self, key: bytes) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self.size -= found[1]


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
