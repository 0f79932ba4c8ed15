"""Contradictions that were found, and which of them still stand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

STANDING_MAX: Final = 1_000
"""Contradictions that are remembered: enough to stop admission, and to say where to look."""

Key = tuple[str, ...]
"""What a contradiction is about. Its first part says which kind it is."""

Source = Literal["log", "engine"]
"""Where the mistake is. One on the log outlasts a term; one of an engine ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Two things of which one is wrong."""

    source: Source
    text: str
    """A sentence that names cluster, workload or queue, and both values."""


class OpenContradictions:
    """The contradictions of one process that have not gone yet, the oldest first."""

    def __init__(self) -> None:
        self._found: dict[Key, Contradiction] = {}

    def begin_term(self) -> None:
        """Forget those of the last term's engine: a new one is built from the log."""
        self._found = {key: one for key, one in self._found.items() if one.source == "log"}

    def add(self, key: Key, one: Contradiction) -> bool:
        """Remember a contradiction; return whether it is new."""
        if key in self._found or len(self._found) >= STANDING_MAX:
            return False
        self._found[key] = one
        return True

    def resolve(self, *key: str) -> None:
        """Forget one that is gone."""
        self._found.pop(key, None)

    def review(self, stands: Callable[[Key], bool]) -> None:
        """Forget all that do not stand any more."""
        self._found = {key: one for key, one in self._found.items() if stands(key)}

    def text(self) -> str:
        """The oldest contradiction, and how many there are besides; empty: there is none."""
        if not self._found:
            return ""
        more = f" (and {len(self._found) - 1} more)" if len(self._found) > 1 else ""
        return f"{next(iter(self._found.values())).text}{more}"
