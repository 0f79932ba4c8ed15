"""Metrics of the service itself: audits, log fullness, workloads that ran without an admission."""

from typing import Final

from prometheus_client import Counter, Gauge

AUDITS: Final = Counter(
    "sluicegate_quota_audits",
    "Audits of what was decided, by books of the log alone.",
    ["result"],
)
for _result in ("ok", "contradiction"):
    AUDITS.labels(_result)  # Both series exist from the start, so that a rate sees the first event.

UNPLANNED: Final = Counter(
    "sluicegate_unplanned_workloads",
    "Workloads that ran before anybody had admitted them: they hold quota, also above what there is.",
    ["cluster_queue"],
)
NAMED: Final = {"cluster_queue": (UNPLANNED,)}
"""Label that holds the name of a queue or a cohort to the metrics with it: their series end with that."""

LOG_FULLNESS: Final = Gauge(
    "sluicegate_log_fullness",
    "How much room is used of the logs that refuse more when they are full, from 0 to 1.",
    ["stream"],
)
ISOLATED: Final = Counter(
    "sluicegate_quota_isolated",
    "Messages that could not be used and harmed their own workload only, by stream.",
    ["stream"],
)
HALTED: Final = Gauge("sluicegate_quota_halted", "1 while a contradiction stops admission.")

ENDED: Final = Gauge(
    "sluicegate_quota_ended_workloads",
    "Ended workloads that are still in the views, because they ended a moment ago or a consumer is behind.",
)
SWEPT: Final = Counter(
    "sluicegate_quota_swept",
    "Ended workloads that were deleted from a view, by log.",
    ["stream"],
)
REVIVED: Final = Counter(
    "sluicegate_quota_revived",
    "Entries of a view that a killed server brought back, and that were put right from the log, by log.",
    ["stream"],
)
TRIMMED: Final = Counter(
    "sluicegate_quota_trimmed",
    "Messages that were deleted from a log to make room, of ended workloads or of long histories, by log.",
    ["stream"],
)
