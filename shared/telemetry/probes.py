"""Counts how often each safety mechanism of this process acted.

    probes.FENCE_REFUSED.fired += 1

A mechanism that never acts in a test is not tested. Simulated worlds therefore fail when a probe that
belongs to them stays at zero over many seeds. One increment costs nothing on the hot path; the count is
for tests and does not replace a metric.
"""

from typing import Final

ALL: Final[dict[str, "Probe"]] = {}
"""All probes by name, in the order of their definition."""


class Probe:
    """One mechanism, and how often it acted in this process."""

    __slots__ = ("fired", "name", "says")

    def __init__(self, name: str, says: str) -> None:
        """`says`: a sentence about what happened when it acts."""
        assert name not in ALL, name
        self.name = name
        self.says = says
        self.fired = 0
        ALL[name] = self


# --- the bus ---

FENCE_REFUSED: Final = Probe(
    "fence-refused", "the server refused a message behind a wrong sequence"
)
OWN_WRITE_FOUND: Final = Probe(
    "own-write-found", "a refused retry was found on the log: its acknowledgement was lost"
)
WINDOW_DROPPED: Final = Probe(
    "window-dropped", "decisions behind a failed one were not sent any more"
)
LATER_STATE_STORED: Final = Probe(
    "later-state-stored", "a message was not sent again because a later state of it was stored"
)
OVERTAKEN: Final = Probe(
    "overtaken", "a state was stored again because an older one had come behind it"
)
EARLIER_READ: Final = Probe(
    "earlier-read", "a reader took what was before a message that nobody can read"
)
RESTATED: Final = Probe(
    "restated", "a state was published again because the server took it for an earlier one"
)
DUPLICATE_DROPPED: Final = Probe("duplicate-dropped", "a delivery was handled already")
NEWER_DELIVERED: Final = Probe("newer-delivered", "a delivery was skipped, a newer one waits")
PUT_OFF: Final = Probe("put-off", "an entry is to be delivered again later")
NEWER_SCHEMA: Final = Probe("newer-schema", "what a newer release wrote was put off or held apart")
END_KEPT: Final = Probe("end-kept", "an end stayed in its view: a durable had not passed it")
DEAD_LETTER: Final = Probe("dead-letter", "an entry that nobody can handle became a dead letter")
LEASE_LOST: Final = Probe("lease-lost", "a term was cancelled because its lease was lost")

TERM_VOID: Final = Probe("term-void", "a decision of a leader that had been replaced was dropped")
LOG_CHANGED: Final = Probe(
    "log-changed", "a log was made anew or lost its tail: what was known of it was dropped"
)
ACKNOWLEDGED_LOST: Final = Probe(
    "acknowledged-lost", "a log lacked what it had acknowledged: its writer began anew"
)
LOG_REFILLED: Final = Probe(
    "log-refilled", "a message that a log had lost was published again from its view"
)

# --- watcher ---

TOMBSTONE_AT_LIST: Final = Probe(
    "tombstone-at-list", "a list lacked an object that is on the log: it got a tombstone"
)
RECREATED: Final = Probe("recreated", "an object of another uid got a tombstone of the earlier one")
COALESCED: Final = Probe("coalesced", "a state was replaced before it was published")
NEWER_PUBLISHED: Final = Probe(
    "newer-published", "another watcher had published a newer state already"
)
STALE_ENDED: Final = Probe(
    "stale-ended",
    "an object got a tombstone of which an earlier watcher had spoken behind the list",
)

# --- projection ---

PROJECTION_FENCED: Final = Probe("projection-fenced", "another projection wrote: this one ended")
PROJECTION_OWN_WRITE: Final = Probe(
    "projection-own-write", "the message that refused a state was its own earlier attempt"
)
SWEPT_NAME_REUSED: Final = Probe(
    "swept-name-reused", "a name came again whose tombstone was deleted from the view"
)
UNREADABLE_REPLACED: Final = Probe(
    "unreadable-replaced", "a workload behind a message that nobody can read was told again"
)
GONE_AT_SYNC: Final = Probe("gone-at-sync", "a workload without an object was declared gone")
NEWER_LISTING: Final = Probe(
    "newer-listing", "nothing was declared gone in a cluster that a newer release had listed"
)
OLD_TOMBSTONE: Final = Probe("old-tombstone", "a tombstone was that of an earlier job of the name")
LATER_TOMBSTONE: Final = Probe(
    "later-tombstone", "a tombstone of a later job of the name ended one whose own was not read"
)
ECHO_DEFERRED: Final = Probe("echo-deferred", "a state that only records a decision was deferred")
NEW_WORK_POSTPONED: Final = Probe(
    "new-work-postponed", "a new workload waited outside a log that is nearly full"
)

# --- quota ---

END_SWEPT: Final = Probe("end-swept", "an ended workload was deleted from the views")
REVIVED: Final = Probe(
    "revived", "what a killed server had brought back was found in the log to be over"
)
HISTORY_TRIMMED: Final = Probe(
    "history-trimmed", "an ended workload was deleted from a log that is nearly full"
)
HISTORY_SHORTENED: Final = Probe(
    "history-shortened", "old messages of one workload were deleted from a log that is nearly full"
)
DECIDER_FENCED: Final = Probe("decider-fenced", "a leader read a decision or a term of another")
VOID_REPAIRED: Final = Probe(
    "void-repaired", "a new leader published a valid decision behind a void one"
)
TERM_UNREAD: Final = Probe(
    "term-unread", "a new leader went above a term of the log that its view did not have yet"
)
TERM_AWAITED: Final = Probe("term-awaited", "a new leader waited until it had read its own term")
OLDER_ENTRY_DROPPED: Final = Probe(
    "older-entry-dropped", "a new leader dropped an entry of which it had read a later one"
)
HELD_UNTIL_SYNC: Final = Probe("held-until-sync", "a fact waited until its cluster was listed")
GONE_WHILE_AWAY: Final = Probe(
    "gone-while-away", "quota was given back for a workload that ended unseen"
)
EARLIER_UID_GONE: Final = Probe(
    "earlier-uid-gone", "quota was given back because the name has another uid"
)
ADOPTED: Final = Probe("adopted", "an admission that only the cluster records was adopted")
BYPASS_FOUND: Final = Probe("bypass-found", "a job that runs without a decision was recorded")
EARLIER_OUTCOME: Final = Probe("earlier-outcome", "an outcome was that of an earlier decision")
DRAIN_AWAITED: Final = Probe(
    "drain-awaited", "an evicted workload looked suspended in a state from before the eviction"
)
REPETITION_DROPPED: Final = Probe("repetition-dropped", "a decision said what the log says")
CLAIM_KEPT: Final = Probe("claim-kept", "quota that victims free was kept for their preemptor")
RELEASE_REFUSED: Final = Probe("release-refused", "a refused release gave its quota back")
ADMISSION_STOPPED: Final = Probe("admission-stopped", "nobody was admitted while a log was full")
CONTRADICTED: Final = Probe("contradicted", "the auditor found a contradiction")
ISOLATED: Final = Probe("isolated", "a message that cannot be used held only its workload back")

# --- patcher ---

OLDER_DECISION: Final = Probe("older-decision", "a decision was older than the one in the cache")
NOT_YET_SEEN: Final = Probe("not-yet-seen", "work waited until the cache was complete")
DECISION_OUTDATED: Final = Probe(
    "decision-outdated", "a decision was not carried out: the log had a newer one"
)
RELEASE_READ_AFRESH: Final = Probe(
    "release-read-afresh", "a job that looked released was read again before a release was skipped"
)
STOP_MARKED: Final = Probe(
    "stop-marked", "a stop found a job that was held still: it marked it against a late release"
)
RELEASE_TOO_LATE: Final = Probe(
    "release-too-late", "a job was not released: it was stopped by a later decision"
)
REFUSED_BEFORE: Final = Probe(
    "refused-before", "a job was not released: the release was refused to another replica"
)
REASON_SUPERSEDED: Final = Probe("reason-superseded", "a waiting reason came behind an admission")
STATE_CHANGED: Final = Probe(
    "state-changed", "a precondition failed: the patch was made anew from the fresh object"
)
OTHER_UID: Final = Probe("other-uid", "the name had another uid: nothing was written")
EARLIER_WORKLOAD: Final = Probe(
    "earlier-workload", "the Workload of an earlier job had to go first"
)
CREATED_BEFORE: Final = Probe("created-before", "a create had succeeded and its answer was lost")
QUEUES_AWAITED: Final = Probe(
    "queues-awaited", "a flavor or check was kept: not all queues had been read that may name it"
)
WRITES_PAUSED: Final = Probe("writes-paused", "writes paused because the API server asked for it")

# --- copies on spokes ---

START_NOT_ORDERED: Final = Probe("start-not-ordered", "a copy was not started without its order")
EARLIER_COPY: Final = Probe("earlier-copy", "the copy of an earlier order had to go first")
COPY_STOPPED: Final = Probe("copy-stopped", "a copy was stopped because its lease expired")
COPY_AWAITED: Final = Probe("copy-awaited", "no spoke was asked while a copy may still run")

# --- machines ---

SLOT_FENCED: Final = Probe("slot-fenced", "another replica had written the record of a platform")
