"""Reasons that one service writes and another one reads, and the status words that users see."""

from enum import Enum
from typing import Final, Literal

DEACTIVATED: Final = "Deactivated"
"""Prefix of eviction reasons that forbid a restart; Kueue's."""

DEACTIVATED_DUE_TO: Final = f"{DEACTIVATED}DueTo"
"""Prefix of eviction reasons of a workload that the scheduler deactivated; the cause follows. Kueue's."""

NOT_ADMITTED: Final = "NotAdmitted"
"""Reason of an eviction: the job ran without admission. Kueue's `StopReasonNotAdmitted`. A job that
cannot be suspended is cancelled."""

NOT_ADMITTED_HELD: Final = "NotAdmittedHeld"
"""As above, but a job that cannot be suspended is cancelled and a copy waits in its place."""

WORKLOAD_DELETED: Final = "WorkloadDeleted"
"""Reason of an eviction: somebody deletes the job's Workload object. Kueue's `StopReasonWorkloadDeleted`."""

NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
"""Reason of an eviction: the job asks for more than its Workload. Kueue's `StopReasonNoMatchingWorkload`."""

RELEASE_REFUSED: Final = "ReleaseRefused"
"""The API server refuses the release of a job. The job waits with this reason; its event has it too."""

CHECK_RESET: Final = "Reset to Pending after eviction. Previously: "
"""Begin of the message of an admission check that lost its answer with the quota; Kueue's."""

TERMINATING: Final = "Terminating"
"""Reason of the condition `Active` of a ClusterQueue that is being deleted; Kueue's. It admits nobody."""

WorkloadStatus = Literal["PENDING", "QUOTARESERVED", "ADMITTED", "EVICTED", "FINISHED"]
"""A workload's status in kueuectl's words. `EVICTED`: it holds quota until its pods are gone."""

STATUS_WITH_QUOTA: Final = frozenset({"ADMITTED", "QUOTARESERVED", "EVICTED"})

_STATUS_BY_DECISION: Final[dict[str, WorkloadStatus]] = {
    "admitted": "ADMITTED",
    "reserved": "QUOTARESERVED",
    "evicted": "EVICTED",
}


def workload_status(phase: str, decision: str | None) -> WorkloadStatus:
    """The status from `WorkloadState.phase` and the state of the `Admission`, if there is one."""
    return "FINISHED" if phase == "finished" else _STATUS_BY_DECISION.get(decision or "", "PENDING")


TOO_LARGE: Final = frozenset({"ExceedsMaxQuota", "NoMatchingFlavor"})
"""Waiting reasons of a workload for which its queue has no quota at all, or never enough."""

HOPELESS: Final = TOO_LARGE | {"Misconfigured"}
"""Waiting reasons that only a change of the job or of the configuration ends."""

STUCK: Final = HOPELESS | {"Deactivated", "Suspended"}
"""Waiting reasons that do not end by themselves."""

NOT_FOR_QUOTA: Final = frozenset({"Misconfigured", "Deactivated", "Suspended", "OnHold"})
"""Waiting reasons of a workload that more quota would not let start."""

NEVER: Final = "never, unless that is put right"
"""When a workload starts that waits for such a reason."""


class RefusalRule(Enum):
    """The rules of one place that refuses: a subclass, whose docstring says what is refused there.

    Name, text and remedy of a rule stand once, in the code that refuses. `docs/reference/refusals.md` is
    generated from the subclasses.
    """

    def __init__(self, label: str, text: str, remedy: str) -> None:
        """`label`: value in metrics. `text`: what the refused party reads. `remedy`: what to do."""
        self.label = label
        self.text = text
        self.remedy = remedy

    @property
    def series(self) -> str:
        """The time series in which a refusal is counted; empty if its caller says where."""
        return ""

    def says(self, **values: object) -> str:
        """Return the text with these values, among which are all that it names."""
        return self.text.format(**values)
