"""Reasons that one service writes and another one reads."""

from typing import Final

__all__ = ["DEACTIVATED", "RELEASE_REFUSED"]

DEACTIVATED: Final = "Deactivated"
"""Prefix of eviction reasons that forbid a restart; Kueue's."""

RELEASE_REFUSED: Final = "ReleaseRefused"
"""The API server refuses the release of a job: it waits with this reason, and its event has it too."""
