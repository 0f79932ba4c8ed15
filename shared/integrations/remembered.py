"""What was found in an object, remembered while the object is asked about; bounded in bytes over all kinds.

One event asks many times about one object, and about those that control it. An object of 1.5 MB takes 15 MB
of memory, so that a number of objects alone would be no bound.
"""

from typing import Any, Final

import orjson

from shared.contracts.kube.kinds import Object

BYTES_MAX: Final = 16 << 20
"""Of all remembered objects together. One that is larger alone is kept until the next one comes."""

OBJECTS_MAX: Final = 256
"""Small objects never reach `BYTES_MAX`, and an event asks about few."""

_BYTES_PER_CHARACTER: Final = 10
"""Of lists of small maps, which take the most."""

_OBJECT_BYTES: Final = 1_000


class Remembered:
    """Answers by object. An object is known by its identity and version: nobody changes one in place."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[object, Object, object, Any, int]] = {}
        """By identity of asker and object. Both are kept, so that nothing else can have their identity."""

        self.bytes = 0
        """Of the objects that are kept, about."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, asker: object, obj: Object, version: object) -> Any:
        """What was put for this object and asker; None if nothing is remembered."""
        known = self._known.get((id(asker), id(obj)))
        return known[3] if known is not None and known[2] == version else None

    def put(self, asker: object, obj: Object, version: object, answer: Any) -> None:
        """Remember an answer, and forget the oldest ones for it."""
        self._forget((id(asker), id(obj)))
        size = bytes_of(obj)
        while self._known and (self.bytes + size > BYTES_MAX or len(self._known) >= OBJECTS_MAX):
            self._forget(next(iter(self._known)))
        self._known[id(asker), id(obj)] = (asker, obj, version, answer, size)
        self.bytes += size

    def _forget(self, key: tuple[int, int]) -> None:
        gone = self._known.pop(key, None)
        self.bytes -= 0 if gone is None else gone[4]


def bytes_of(obj: Object) -> int:
    """About how much memory an object takes: some ten times its JSON."""
    try:
        return _OBJECT_BYTES + _BYTES_PER_CHARACTER * len(orjson.dumps(obj))
    except TypeError:  # Too deep, or with numbers of more than 64 bits.
        return BYTES_MAX
