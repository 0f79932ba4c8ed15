"""Checks of time limits: no limit ends early, no back-off is cut short, no time-out counts twice."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from services.simulator.judge.message_logs import MessageLogs, Record
from shared.contracts.messages.admissions import GRANTED, HOLDING, READY, Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import (
    DEACTIVATED,
    DEACTIVATED_DUE_TO,
    MAXIMUM_EXECUTION_TIME_EXCEEDED,
    PODS_READY_TIMEOUT,
    REQUEUING_LIMIT_EXCEEDED,
)
from shared.contracts.subjects import Stream
from shared.settings.configuration import WaitForPodsReady

SKEW = timedelta(seconds=1.5)
"""Largest difference of two processes' clocks in a world, with a margin."""


def _backoffs_kept(message_logs: MessageLogs) -> list[str]:
    """No workload gets quota before the end of its back-off."""
    wrong = []
    for before, record in _successive(message_logs):
        one = record.message
        due = before.requeue_at
        if one.state not in HOLDING or before.state in HOLDING or one.unplanned or due is None:
            continue
        if one.decided_at < due - SKEW:
            wrong.append(f"{_place(record)} has quota at {one.decided_at}, put off to {due}")
    return wrong


def _counted_once(message_logs: MessageLogs) -> list[str]:
    """`requeueState.count` increases by one with each time-out; only a deactivation resets it."""
    wrong = []
    for before, record in _successive(message_logs):
        one = record.message
        grown = one.requeue_count - before.requeue_count
        timed_out = one.reason == PODS_READY_TIMEOUT and before.state == "admitted"
        out = DEACTIVATED in one.reason or DEACTIVATED in before.reason
        if grown != timed_out and not (grown < 0 and out and one.requeue_count == 0):
            if one.state == "released":
                continue  # The workload has ended: its counters are dropped.
            text = f"{before.requeue_count} to {one.requeue_count} ({one.state} {one.reason})"
            wrong.append(f"{_place(record)}: its count goes from {text}")
    return wrong


def limits_kept(message_logs: MessageLogs, wait: WaitForPodsReady) -> list[str]:
    """No time-out and no execution limit ends early; `admitted_at` does not change meanwhile."""
    wrong = []
    limits = {r.message.uid: r.message.max_execution_seconds for r in message_logs.workloads}
    for before, record in _successive(message_logs):
        one = record.message
        if before.state == one.state == "admitted" and before.admitted_at != one.admitted_at:
            wrong.append(f"{_place(record)}: its admission moves to {one.admitted_at}")
        if before.state != "admitted" or one.state != "evicted" or before.admitted_at is None:
            continue
        ran = (one.decided_at - before.admitted_at + SKEW).total_seconds()
        limit = limits.get(one.uid)
        if one.reason == f"{DEACTIVATED_DUE_TO}{MAXIMUM_EXECUTION_TIME_EXCEEDED}":
            if limit is None or before.executed_seconds + ran < limit:
                wrong.append(f"{_place(record)}: out after {ran:g} s of {limit}")
        elif one.reason in {PODS_READY_TIMEOUT, f"{DEACTIVATED_DUE_TO}{REQUEUING_LIMIT_EXCEEDED}"}:
            since, seconds = before.admitted_at, wait.timeout
            if before.pods_ready == "WaitForRecovery" and before.pods_ready_at is not None:
                since, seconds = before.pods_ready_at, wait.recovery_seconds or 0.0
            if (one.decided_at - since + SKEW).total_seconds() < seconds:
                wrong.append(
                    f"{_place(record)}: timed out before {seconds:g} s ({before.pods_ready})"
                )
            if before.pods_ready in READY:
                wrong.append(f"{_place(record)}: timed out although its pods are ready")
    return wrong


def _out_stays_out(message_logs: MessageLogs) -> list[str]:
    """No workload gets quota that the decider knew to be inactive, or that it is deactivating."""
    wrong = []
    states = _KnownStates(message_logs.workloads)
    for before, record in _successive(message_logs):
        one = record.message
        states.advance(one.inputs.get(Stream.WORKLOADS, 0))
        state = states.of.get(one.uid)
        given = one.state in GRANTED and before.state not in HOLDING
        if not given or one.unplanned or state is None:
            continue
        if not state.active:
            wrong.append(f"{_place(record)} has quota though it is not active")
        marked = state.deactivating or not state.evicted_reason.startswith(DEACTIVATED_DUE_TO)
        if before.deactivate and marked:
            wrong.append(f"{_place(record)} has quota though it is being put out")
    return wrong


class _KnownStates:
    """The latest states of workloads, as far as a decider had read."""

    def __init__(self, records: list[Record[WorkloadState]]) -> None:
        self._coming = records
        self._next = 0
        self.of: dict[str, WorkloadState] = {}

    def advance(self, sequence: int) -> None:
        while self._next < len(self._coming) and self._coming[self._next].sequence <= sequence:
            state = self._coming[self._next].message
            self.of[state.uid] = state
            self._next += 1


def _successive(message_logs: MessageLogs) -> Iterator[tuple[Admission, Record[Admission]]]:
    """Yield each decision with the one before it about the same workload, in the order of the stream."""
    last: dict[str, Admission] = {}
    for record in message_logs.admissions:
        one = record.message
        before = last.get(one.uid)
        if before is None:
            before = one.replace(state="waiting", reason="", requeue_at=None, requeue_count=0)
        last[one.uid] = one
        yield before, record


def _place(record: Record[Admission]) -> str:
    one = record.message
    return f"ADMISSIONS {record.sequence}: {one.namespace}/{one.name}"


ALWAYS: Final[tuple[Callable[[MessageLogs], list[str]], ...]] = (
    _backoffs_kept,
    _counted_once,
    _out_stays_out,
)
"""What must hold for every history."""
