"""Reasons that one service writes and another one reads."""

from typing import Final

DEACTIVATED: Final = "Deactivated"
"""Prefix of eviction reasons that forbid a restart; Kueue's."""

DEACTIVATED_DUE_TO: Final = f"{DEACTIVATED}DueTo"
"""Prefix of eviction reasons of a workload that the scheduler deactivated; the cause follows. Kueue's."""

NOT_ADMITTED: Final = "NotAdmitted"
"""Reason of an eviction: the job ran without admission. Kueue's `StopReasonNotAdmitted`. A job that
cannot be suspended is cancelled."""

NOT_ADMITTED_HELD: Final = "NotAdmittedHeld"
"""As above, but a job that cannot be suspended is cancelled and a copy waits in its place."""

RELEASE_REFUSED: Final = "ReleaseRefused"
"""The API server refuses the release of a job. The job waits with this reason; its event has it too."""
