"""What a run counts: faults that were made, those survived, and those that this machine cannot make."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.faults.fault import RECOVERY_SECONDS_MAX

P99_SECONDS: Final = 20.0
"""Of the recoveries of a whole run."""

MADE_MIN: Final = 100
"""How many faults a run of the whole table makes at least."""


@dataclass(slots=True)
class Tally:
    """The counts of one run."""

    demanded: int
    """How many faults must be made at least, in 1 or more."""

    survived: int = 0
    recoveries: list[float] = field(default_factory=list)
    """Seconds from the end of each fault that was made until a new job started."""

    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Names of faults that could not be made, each with the reason."""

    @property
    def made(self) -> int:
        """How many faults were made."""
        return len(self.recoveries)

    @property
    def p99_seconds(self) -> float:
        """The recovery that 99 of 100 do not exceed; 0 if no fault was made."""
        if not self.recoveries:
            return 0.0
        return sorted(self.recoveries)[min(self.made - 1, int(0.99 * self.made))]

    @property
    def ok(self) -> bool:
        """Whether as many faults as demanded were made, all were survived, and recovery was quick."""
        return self.survived == self.made >= self.demanded and self.p99_seconds <= P99_SECONDS

    def lines(self) -> Iterator[str]:
        """What a run says at its end."""
        if self.recoveries:
            recoveries, p99 = sorted(self.recoveries), self.p99_seconds
            yield (
                f"recovery: p50 {recoveries[self.made // 2]:.1f} s, "
                f"p99 {p99:.1f} s (at most {P99_SECONDS:.0f} s), "
                f"longest {recoveries[-1]:.1f} s (at most {RECOVERY_SECONDS_MAX:.0f} s)"
            )
            if p99 > P99_SECONDS:
                yield "recovery takes too long"
        if self.left_out:
            reasons = dict.fromkeys(reason for _, reason in self.left_out)
            told = "; ".join(f"{reason}: {self._names(reason)}" for reason in reasons)
            yield f"not possible here: {len(self.left_out)} ({told})"
        if self.made < self.demanded:
            yield f"too few: {self.made} made, {self.demanded} demanded"
        yield f"faults: {self.survived} of {self.made} survived"

    def _names(self, reason: str) -> str:
        return ", ".join(dict.fromkeys(name for name, why in self.left_out if why == reason))
