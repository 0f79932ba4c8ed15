"""Finds states that the server stored before an older state of the same subject.

1. Of two states the server could not store the first. It stored the second, and the acknowledgement was
   lost with the connection.
2. Both are sent again. The first is stored now; the second is a duplicate, at its old place.
3. The older state is the last one of the subject: the newer one has to be stored once more.
"""

from typing import Final

SUBJECTS_MAX: Final = 4096
"""Subjects that are remembered; far more than a publisher has on its way at once."""


class Overtaken:
    """Where messages were stored that were sent more than once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}
        """Subject to (token, sequence) of its message with the highest sequence."""

    def observe(self, subject: str, *, token: int, sequence: int) -> bool:
        """Remember where a message is; return whether an older one of its subject is behind it.

        `token` grows with each message that is published.
        """
        last_token, last = self._last.get(subject, (0, 0))
        if last < sequence:
            self._last[subject] = (token, sequence)
            if len(self._last) > SUBJECTS_MAX:
                del self._last[next(iter(self._last))]
            return False
        return last_token < token
