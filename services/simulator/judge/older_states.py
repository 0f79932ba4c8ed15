"""Checks that nothing older replaces what is newer: on `OBSERVED`, and in the statuses of Workloads."""

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from services.simulator.cluster.api import Api
from services.simulator.cluster.storage.stored import Event
from services.simulator.judge.message_logs import MessageLogs, Record
from shared.contracts.kube.conditions import ADMITTED, FINISHED, QUOTA_RESERVED, is_true
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.observed import Observed

_GIVEN_BY: Final[dict[str, frozenset[str]]] = {
    QUOTA_RESERVED: HOLDING,
    ADMITTED: frozenset({"admitted"}),
}
"""Condition of a Workload to the decisions by which it is true."""


def observed_in_order(message_logs: MessageLogs) -> list[str]:
    """No state of an object comes behind a newer one: the last message about it is the newest.

    What the log has lost fences nobody: a watcher that was late may say less, and the next one lists anew.
    """
    wrong: list[str] = []
    last: dict[str, Record[Observed]] = {}
    for record in message_logs.observed:
        new = record.message
        stored, last[new.subject] = last.get(new.subject), record
        if stored is None or stored.message.uid != new.uid:
            continue
        lost_at, before = message_logs.lost_at.get(stored.sequence), stored.message
        if _is_older(new, before) and (lost_at is None or lost_at > record.time):
            wrong.append(
                f"OBSERVED {record.sequence}: {new.kind} {new.namespace}/{new.name} of version "
                f"{new.resource_version} comes after version {before.resource_version}"
            )
    return wrong


def _is_older(new: Observed, before: Observed) -> bool:
    """Whether it is older for certain: the end of what nobody can read is told without a version."""
    version, other = whole_number(new.resource_version), whole_number(before.resource_version)
    if version is None or other is None:
        return False
    return version < other or (version == other and before.deleted and not new.deleted)


class _TakenBack(NamedTuple):
    """A condition of a Workload that somebody has made false."""

    namespace: str
    name: str
    condition: str
    since: datetime
    """When it was made true."""

    at: datetime


class WrittenConditions:
    """Follows the Workloads of a cluster; `problems` says which conditions an older decision took back."""

    def __init__(self, api: Api, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._since: dict[tuple[str, str], datetime] = {}
        """Uid of a Workload and condition to when it was made true."""

        self._taken_back: list[_TakenBack] = []
        served = api.kinds.find(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural)
        assert served is not None
        api.store.subscribe(served, self._on_workload)

    def _on_workload(self, event: Event) -> None:
        stored = event.stored
        for condition in _GIVEN_BY:
            key = stored.uid, condition
            if is_true(stored.obj, condition):
                self._since.setdefault(key, self._now())
                continue
            since = self._since.pop(key, None)
            if since is not None and not is_true(stored.obj, FINISHED):
                of = stored.namespace, stored.name
                self._taken_back.append(_TakenBack(*of, condition, since, self._now()))

    def problems(self, message_logs: MessageLogs) -> list[str]:
        """What was taken back without a decision behind the one that had been written."""
        by_name: dict[tuple[str, str], list[Record[Admission]]] = {}
        for record in message_logs.admissions:
            by_name.setdefault((record.message.namespace, record.message.name), []).append(record)
        return [
            f"Workload {one.namespace}/{one.name} is {one.condition} no more at {one.at:%H:%M:%S}, "
            "and no decision behind the one that made it so says that"
            for one in self._taken_back
            if not _is_decided(one, by_name.get((one.namespace, one.name), []))
        ]


def _is_decided(one: _TakenBack, decisions: list[Record[Admission]]) -> bool:
    """Whether a decision takes the condition back, behind the last one that may have been written before.

    True also if the log has no decision that gave it.
    """
    giving = _GIVEN_BY[one.condition]
    decided = True
    for record in decisions:
        if record.time > one.at:
            break
        if record.message.state not in giving:
            decided = True
        elif record.time <= one.since:
            decided = False
    return decided
