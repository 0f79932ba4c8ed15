"""What becomes of a decision that this release cannot read: an outcome, by which quota is given back or held.

What the decision says is not known, only which one it is. Its job may run by an earlier one, and what the
cache says of that may be old; a release, of this decision by a newer release of ours or of an earlier one,
may be on its way. So quota is given back only if the API server says that the job is held, and after it was
marked: then nobody releases it any more by a decision up to this one (`stop_marks`).
"""

from datetime import datetime
from typing import Final

from services.patcher.jobs.controller import JobController
from services.patcher.jobs.stop_marks import order_in
from shared.bus.port import Entry, LaterError
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import decode

DELIVERIES_MAX: Final = 5
"""Attempts after which the workload of an unreadable decision counts as gone."""


async def answer_unreadable(jobs: JobController, entry: Entry, why: str) -> None:
    """Publish that a decision cannot be read, unless a later one has come: that one says what holds.

    Raises `LaterError` while the workload is not known yet, or if its job was released meanwhile.
    """
    namespace, name = _names_in(entry.subject)
    state = jobs.cache.workload(namespace, name)
    if state is None:
        if entry.deliveries < DELIVERIES_MAX:
            raise LaterError(f"the workload of an unreadable decision is unknown: {why}")
        return
    decision = _known_of(entry, state, jobs.now())
    last = await jobs.last_order(decision)
    if decision.term and last is not None and last > decision.order:
        return
    waits = await _is_kept_waiting(jobs, state, decision)
    text = f"its decision (ADMISSIONS {entry.sequence}) cannot be read: {why}"
    action = "release" if waits else "hold"
    await jobs.outcomes.report(state, decision, "refused", action, message=text)


async def _is_kept_waiting(jobs: JobController, state: WorkloadState, decision: Admission) -> bool:
    """Whether the job waits, and no release that is on its way can start it."""
    if state.pods_active or not state.held:
        return False
    if state.owner is None:
        return True  # Nothing of ours starts what has no job.
    job, integration = await jobs.find(state, fresh=True)
    if (
        job is None
        or not decision.term
        or not integration.held(job)
        or integration.runs_elsewhere(job)
    ):
        return False
    await jobs.forbid(decision, integration, job)
    return True


def _known_of(entry: Entry, state: WorkloadState, now: datetime) -> Admission:
    """What the headers tell of a decision: which one it is; term 0 if not even that."""
    epoch, term, number = order_in(entry.headers) or (0, 0, 0)
    ref = state.ref
    return Admission(
        cluster=ref.cluster,
        namespace=ref.namespace,
        name=ref.name,
        uid=state.uid,
        state="waiting",
        epoch=epoch,
        term=term,
        number=number,
        decided_at=now,
        traceparent=state.traceparent,
    )


def _names_in(subject: str) -> tuple[str, str]:
    """Namespace and name of the workload in a subject; empty for what is no name."""
    try:
        namespace, name = (decode(token) or "" for token in subject.split(".")[3:5])
    except ValueError:
        return "", ""
    return namespace, name
