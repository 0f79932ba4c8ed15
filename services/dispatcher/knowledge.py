"""What the dispatcher knows: who holds quota, what the spokes were told, what is seen of the copies.

All of it can be read again from the views, so losing it loses nothing.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

import structlog

from services.dispatcher.configuration import Configuration
from services.dispatcher.copies import has_quota, standing_of, workload_of
from services.dispatcher.lifecycle import OrderState
from services.dispatcher.planning import Situation, Standing
from shared.bus.port import Entry
from shared.contracts.admissions import Admission
from shared.contracts.effects import CheckState, Dispatch
from shared.contracts.kinds import WORKLOAD
from shared.contracts.messages import Message, UndecodableError
from shared.contracts.observed import Observed, Synced
from shared.integrations import integration_for

__all__ = ["Key", "Knowledge", "Record"]

log = structlog.get_logger(__name__)

Key = tuple[str, str]
"""Namespace and name of a workload of the hub."""

T = TypeVar("T", bound=Message)

_LIVE: Final = frozenset({"offered", "chosen"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T]):
    """A message of ours with its place in the log."""

    message: T
    sequence: int


class Knowledge:
    """One session's memory."""

    def __init__(self, *, cluster: str, origin: str) -> None:
        self._cluster = cluster
        self._origin = origin
        self.configuration = Configuration(cluster=cluster)
        self.read_spokes: dict[str, None] = {}
        """Spokes whose objects were all read, so that what is not seen there is not there."""

        self.admissions: dict[Key, Admission] = {}
        """Of workloads that hold quota, with a check that somebody answers."""

        self.checks: dict[Key, Record[CheckState]] = {}
        self.orders: dict[Key, dict[str, Record[Dispatch]]] = {}
        """By workload and spoke."""

        self._copies: dict[Key, dict[str, Standing]] = {}
        self._quota: dict[tuple[str, Key], None] = {}
        """Spoke and workload name, where the Workload there holds quota."""

        self._names: dict[tuple[str, str, str, str], Key] = {}
        """Spoke, plural, namespace and name of a copy to its workload: a tombstone has no labels."""

        self._dirty: dict[Key, None] = {}

    # --- taking in ---

    def take_configuration(self, entry: Entry) -> None:
        """Take in the hub's objects, and every watcher's `Synced`."""
        try:
            if entry.subject.endswith(".synced"):
                self.configuration.take_synced(Synced.decode(entry.data, entry.headers).cluster)
            elif not self.configuration.take(Observed.decode(entry.data, entry.headers)):
                return
        except UndecodableError as error:
            log.warning("observation skipped", subject=entry.subject, error=str(error))
            return
        self.touch_all()

    def take_admission(self, entry: Entry) -> None:
        """Take in what quota decided."""
        try:
            admission = Admission.decode(entry.data, entry.headers)
        except UndecodableError as error:
            log.warning("admission skipped", subject=entry.subject, error=str(error))
            return
        key = (admission.namespace, admission.name)
        if admission.checks and admission.state in {"reserved", "admitted"}:
            self.admissions[key] = admission
        elif self.admissions.pop(key, None) is None and key not in self.orders:
            return
        self.touch(key)

    def take_check(self, entry: Entry) -> None:
        """Take in a check's state: ours, or a predecessor's."""
        try:
            check = CheckState.decode(entry.data, entry.headers)
        except UndecodableError as error:
            log.warning("check state skipped", subject=entry.subject, error=str(error))
            return
        self.remember_check(check, entry.sequence)

    def take_dispatch(self, entry: Entry) -> None:
        """Take in an order: ours, or a predecessor's."""
        try:
            dispatch = Dispatch.decode(entry.data, entry.headers)
        except UndecodableError as error:
            log.warning("order skipped", subject=entry.subject, error=str(error))
            return
        if dispatch.cluster == self._cluster and self.remember_order(dispatch, entry.sequence):
            self.touch((dispatch.namespace, dispatch.name))

    def is_news(self, entry: Entry) -> bool:
        """Whether `entry` is an order of this hub that is younger than what is known."""
        try:
            dispatch = Dispatch.decode(entry.data, entry.headers)
        except UndecodableError as error:
            log.warning("order skipped", subject=entry.subject, error=str(error))
            return False
        known = self.orders.get((dispatch.namespace, dispatch.name), {}).get(dispatch.spoke)
        return dispatch.cluster == self._cluster and (
            known is None or known.sequence < entry.sequence
        )

    def take_spoke(self, spoke: str, entry: Entry) -> None:
        """Take in what is seen on a spoke."""
        try:
            observed = Observed.decode(entry.data, entry.headers)
        except UndecodableError as error:
            log.warning("observation skipped", subject=entry.subject, error=str(error))
            return
        if observed.namespace is None:
            return
        if observed.plural == WORKLOAD.plural and observed.group == WORKLOAD.group:
            self._take_remote_workload(spoke, observed, observed.namespace)
        else:
            self._take_copy(spoke, observed, observed.namespace)

    def _take_remote_workload(self, spoke: str, observed: Observed, namespace: str) -> None:
        key = (namespace, observed.name)
        gone = observed.deleted or observed.object is None
        if not gone and has_quota(observed.object or {}):
            self._quota[spoke, key] = None
        elif (spoke, key) in self._quota:
            del self._quota[spoke, key]
        else:
            return
        self.touch(key)

    def _take_copy(self, spoke: str, observed: Observed, namespace: str) -> None:
        name = (spoke, observed.plural, namespace, observed.name)
        integration = integration_for(group=observed.group, plural=observed.plural)
        workload = None
        if integration is not None and not observed.deleted and observed.object is not None:
            workload = workload_of(observed.object, origin=self._origin)
        before = self._names.get(name)
        if workload is None or integration is None or observed.object is None:
            if before is not None:
                del self._names[name]
                self._copies.get(before, {}).pop(spoke, None)
                self.touch(before)
            return
        key = self._names[name] = (namespace, workload)
        self._copies.setdefault(key, {})[spoke] = standing_of(observed.object, integration)
        self.touch(key)

    # --- keeping what was written ---

    def remember_check(self, check: CheckState, sequence: int) -> None:
        """Remember what the check says. Others' checks are kept until it is known whose they are."""
        key = (check.namespace, check.name)
        known = self.checks.get(key)
        if known is not None and known.sequence >= sequence:
            return
        if known is not None and known.message.check != check.check:
            ours = self.configuration.is_ours
            if ours(known.message.check) and not ours(check.check):
                return
        self.checks[key] = Record(message=check, sequence=sequence)

    def remember_order(self, dispatch: Dispatch, sequence: int) -> bool:
        """Remember what a spoke was told; return whether that is news."""
        orders = self.orders.setdefault((dispatch.namespace, dispatch.name), {})
        known = orders.get(dispatch.spoke)
        if known is not None and known.sequence >= sequence:
            return False
        orders[dispatch.spoke] = Record(message=dispatch, sequence=sequence)
        return True

    def take_forgettable(self, before: datetime) -> list[Record[Dispatch] | Record[CheckState]]:
        """Drop and return what was said about workloads that are over, and left nothing behind."""
        forgotten: list[Record[Dispatch] | Record[CheckState]] = []
        for key in [key for key in self.orders if self._is_over(key, before)]:
            forgotten += self.orders.pop(key).values()
            if key in self.checks:
                forgotten.append(self.checks.pop(key))
        return forgotten

    def _is_over(self, key: Key, before: datetime) -> bool:
        return (
            key not in self.admissions
            and not self._copies.get(key)
            and all(
                record.message.state == "withdrawn"
                and record.message.at < before
                and spoke in self.read_spokes
                for spoke, record in self.orders[key].items()
            )
        )

    # --- asking ---

    def touch(self, key: Key) -> None:
        """Something about this workload has to be decided."""
        if key in self.admissions or key in self.orders:
            self._dirty[key] = None

    def touch_all(self) -> None:
        """Everything has to be looked at."""
        self._dirty.update(dict.fromkeys((*self.admissions, *self.orders)))

    def take_dirty(self) -> list[Key]:
        """The workloads to decide about now."""
        dirty, self._dirty = list(self._dirty), {}
        return dirty

    def check_of(self, admission: Admission) -> str | None:
        """The check of this admission that we answer: there is one at most."""
        return next(filter(self.configuration.is_ours, admission.checks), None)

    def is_answered(self, admission: Admission, check: CheckState) -> bool:
        """Whether `check` answers this reservation, not one before."""
        return (
            check.uid == admission.uid
            and check.attempt == admission.number
            and check.at >= admission.decided_at
        )

    def live_orders(self, key: Key) -> list[Dispatch]:
        """Orders by which a copy may exist."""
        records = self.orders.get(key, {}).values()
        return [record.message for record in records if record.message.state in _LIVE]

    def situation(self, key: Key) -> Situation | None:
        """All that is weighed about a workload; None while a spoke is still being read."""
        admission = self.admissions.get(key)
        check = self.check_of(admission) if admission is not None else None
        orders = {
            spoke: OrderState(record.message.state)
            for spoke, record in self.orders.get(key, {}).items()
        }
        if admission is None or check is None:
            return Situation(wanted=False, undecided=False, orders=orders)
        if any(order.uid != admission.uid for order in self.live_orders(key)):
            # Of an earlier workload of that name: it goes first.
            return Situation(wanted=False, undecided=False, orders=orders)
        spokes = self.configuration.spokes(check)
        if any(spoke not in self.read_spokes for spoke in (*spokes.usable, *orders)):
            return None
        return Situation(
            wanted=True,
            undecided=admission.state == "reserved",
            usable=spokes.usable,
            problem=spokes.problem,
            orders=orders,
            copies={
                spoke: self._standing(spoke, key, standing)
                for spoke, standing in self._copies.get(key, {}).items()
            },
            choice=self._choice(key, admission),
        )

    def _standing(self, spoke: str, key: Key, standing: Standing) -> Standing:
        if standing is Standing.WAITING and (spoke, key) in self._quota:
            return Standing.RESERVED
        return standing

    def _choice(self, key: Key, admission: Admission) -> str | None:
        record = self.checks.get(key)
        if record is None or record.message.uid != admission.uid:
            return None
        current = admission.state == "admitted" or self.is_answered(admission, record.message)
        return record.message.spoke if current else None
