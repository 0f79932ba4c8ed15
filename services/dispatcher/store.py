"""What the dispatcher knows: who holds quota, what the spokes were told, what is seen of the copies.

All of it can be read again from the views, so losing it loses nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import structlog

from services.dispatcher.hub.configuration import Configuration
from services.dispatcher.hub.jobs import Hub, Key
from services.dispatcher.planning.plan import Standing
from services.dispatcher.spokes.capacity import Room, asked_by
from services.dispatcher.spokes.copies import Copy, Remote, copy_of, order_text, remote_of
from services.dispatcher.spokes.liveness import Presence
from shared.bus.port import Entry
from shared.contracts.kube.kinds import WORKLOAD
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message, UndecodableError
from shared.contracts.messages.effects import CheckState, Dispatch
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.spokes import Beat, CopyState, Homecoming
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import Integrations

__all__ = ["Key", "Knowledge", "Record"]

log = structlog.get_logger(__name__)

T_co = TypeVar("T_co", bound=Message, covariant=True)

_LIVE: Final = frozenset({"offered", "chosen"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record(Generic[T_co]):
    """A message with its place in the log."""

    message: T_co
    sequence: int
    at: float = 0.0
    """When it came in, by our own clock."""


class Knowledge:
    """One session's memory."""

    def __init__(
        self,
        *,
        cluster: str,
        origin: str,
        nominations: bool,
        presence: Presence,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._origin = origin
        self._clock = clock
        self.presence = presence
        self.configuration = Configuration(cluster=cluster)
        self._integrations: dict[str, Integrations] = {}
        """By cluster: an Integration object counts where it is."""

        self.hub = Hub(
            cluster=cluster, nominations=nominations, integrations=self.integrations(cluster)
        )
        self.room = Room()
        self.read_spokes: dict[str, None] = {}
        """Spokes whose objects were all read, so that what is not seen there is not there."""

        self.admissions: dict[Key, Admission] = {}
        """Of workloads that hold quota, with a check that somebody answers."""

        self.checks: dict[Key, Record[CheckState]] = {}
        self.answers: dict[Key, dict[str, CheckState]] = {}
        """What the owners of all checks said last, by workload and check."""

        self.orders: dict[Key, dict[str, Record[Dispatch]]] = {}
        """By workload and spoke. So are the reports."""

        self.reports: dict[Key, dict[str, Record[CopyState]]] = {}
        self.homes: dict[Key, Record[Homecoming]] = {}
        self.copies: dict[Key, dict[str, Copy]] = {}
        self.remotes: dict[tuple[str, Key], Remote] = {}
        """What the Workload of a copy shows, by spoke and workload."""

        self._names: dict[tuple[str, str, str, str], Key] = {}
        """Spoke, plural and group, namespace and name of a copy to its workload: a tombstone has no
        labels."""

        self._dirty: dict[Key, None] = {}

    def is_concerned(self) -> bool:
        """Whether there is a check that we answer, or an order that a predecessor gave."""
        return bool(self.orders or self.configuration.checks())

    # --- taking in ---

    def integrations(self, cluster: str) -> Integrations:
        """What is known of the kinds that can wait in a cluster."""
        return self._integrations.setdefault(cluster, Integrations())

    def take_integration(self, observed: Observed) -> None:
        """Take in a document about a kind, of the hub or of a spoke."""
        self.integrations(observed.cluster).take(observed)
        self.touch_all()

    def take_hub(self, entry: Entry) -> None:
        """Take in the hub's objects, and every watcher's `Synced`."""
        try:
            if entry.subject.endswith(".synced"):
                self.configuration.take_synced(entry.read(Synced).cluster)
            else:
                observed = entry.read(Observed)
                if not self.configuration.take(observed):
                    key = self.hub.take(observed)
                    if key is not None:
                        self.touch(key)
                    return
        except UndecodableError as error:
            log.warning("observation skipped", subject=entry.subject, error=str(error))
            return
        self.touch_all()

    def take_admission(self, entry: Entry) -> None:
        """Take in what quota decided."""
        try:
            admission = entry.read(Admission)
        except UndecodableError as error:
            log.warning("admission skipped", subject=entry.subject, error=str(error))
            return
        key = (admission.namespace, admission.name)
        if admission.checks and admission.state in {"reserved", "admitted"}:
            self.admissions[key] = admission
        else:
            self.answers.pop(key, None)
            if self.admissions.pop(key, None) is None and key not in self.orders:
                return
        self._dirty[key] = None  # Also where nothing is left: it may be planned for right now.

    def take_check(self, entry: Entry) -> None:
        """Take in a check's state: ours, a predecessor's, or another owner's."""
        try:
            check = entry.read(CheckState)
        except UndecodableError as error:
            log.warning("check state skipped", subject=entry.subject, error=str(error))
            return
        key = (check.namespace, check.name)
        self.answers.setdefault(key, {})[check.check] = check
        if not self.configuration.is_ours(check.check):
            self.touch(key)
        self.remember_check(check, entry.sequence)

    def take_beat(self, entry: Entry) -> None:
        """Take in a sign of life."""
        try:
            beat = entry.read(Beat)
        except UndecodableError as error:
            log.warning("beat skipped", subject=entry.subject, error=str(error))
            return
        before = self._heard(beat.spoke)
        self.presence.take(beat, entry.sequence)
        if self._heard(beat.spoke) != before:
            self.touch_all()

    def _heard(self, spoke: str) -> tuple[object, ...]:
        presence = self.presence
        return (
            presence.life(spoke),
            presence.understands(spoke),
            presence.reaches(spoke),
            presence.identity(spoke),
        )

    def take_report(self, entry: Entry) -> None:
        """Take in what a spoke says about an order."""
        try:
            report = entry.read(CopyState)
        except UndecodableError as error:
            log.warning("report skipped", subject=entry.subject, error=str(error))
            return
        if report.cluster != self._cluster:
            return  # Another hub's.
        key = (report.namespace, report.name)
        record = Record(message=report, sequence=entry.sequence, at=self._clock())
        known = self.reports.setdefault(key, {}).get(report.spoke)
        if known is not None and known.sequence >= entry.sequence:
            return
        self.reports[key][report.spoke] = record
        if report.state != "gone":
            self.presence.failed(report.spoke, key)
        self.touch(key)

    def take_home(self, entry: Entry) -> None:
        """Take in what a predecessor had written at home."""
        try:
            home = entry.read(Homecoming)
        except UndecodableError as error:
            log.warning("homecoming skipped", subject=entry.subject, error=str(error))
            return
        if home.cluster == self._cluster:
            self.remember_home(home, entry.sequence)

    def order_in(self, entry: Entry) -> Dispatch | None:
        """The order of this hub that an entry is; None if it is none."""
        try:
            dispatch = entry.read(Dispatch)
        except UndecodableError as error:
            log.warning("order skipped", subject=entry.subject, error=str(error))
            return None
        return dispatch if dispatch.cluster == self._cluster else None

    def take_order(self, entry: Entry) -> None:
        """Take in an order: ours, or a predecessor's."""
        dispatch = self.order_in(entry)
        if dispatch is not None and self.remember_order(dispatch, entry.sequence):
            key = (dispatch.namespace, dispatch.name)
            if dispatch.state in _LIVE:
                self.expect(dispatch.spoke, key)
            self.touch(key)

    def is_news(self, entry: Entry) -> bool:
        """Whether `entry` is an order of this hub that is younger than what is known."""
        dispatch = self.order_in(entry)
        if dispatch is None:
            return False
        known = self.orders.get((dispatch.namespace, dispatch.name), {}).get(dispatch.spoke)
        return known is None or known.sequence < entry.sequence

    def take_spoke(self, spoke: str, entry: Entry) -> None:
        """Take in what is seen on a spoke."""
        try:
            observed = entry.read(Observed)
        except UndecodableError as error:
            log.warning("observation skipped", subject=entry.subject, error=str(error))
            return
        if observed.cluster != spoke or self.room.take_queue(spoke, observed):
            return
        if observed.namespace is None:
            return
        if observed.plural == WORKLOAD.plural and observed.group == WORKLOAD.group:
            self._take_remote(spoke, observed, observed.namespace)
        else:
            self._take_copy(spoke, observed, observed.namespace)

    def _take_remote(self, spoke: str, observed: Observed, namespace: str) -> None:
        key = (namespace, observed.name)
        there = None if observed.deleted else observed.object
        self.room.take_workload(spoke, key, there)
        before = self.remotes.get((spoke, key))
        after = None if there is None else remote_of(there)
        if after is None:
            self.remotes.pop((spoke, key), None)
        else:
            self.remotes[spoke, key] = after
        if before != after:
            self.touch(key)

    def _take_copy(self, spoke: str, observed: Observed, namespace: str) -> None:
        name = (spoke, f"{observed.plural}_{observed.group}", namespace, observed.name)
        known = self.integrations(spoke)
        integration = known.find(group=observed.group, plural=observed.plural)
        copy = None
        if integration is not None and not observed.deleted and observed.object is not None:
            copy = copy_of(observed.object, integration, hub=self._cluster, origin=self._origin)
        before = self._names.get(name)
        key = None if copy is None else (namespace, copy.workload)
        if before is not None and before != key:
            del self._names[name]
            self.copies.get(before, {}).pop(spoke, None)
            self._dirty[before] = None  # Also where no order is known, as below.
        if copy is None or key is None:
            return
        self._names[name] = key
        self.copies.setdefault(key, {})[spoke] = copy
        self.presence.seen(spoke, key)
        if copy.standing is Standing.FINISHED:
            self.room.finish(spoke, key)
        self._dirty[key] = None  # Also where no order is known: it may be a stray.

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
        orders[dispatch.spoke] = Record(message=dispatch, sequence=sequence, at=self._clock())
        return True

    def remember_home(self, home: Homecoming, sequence: int) -> None:
        """Remember what was sent home."""
        key = (home.namespace, home.name)
        known = self.homes.get(key)
        if known is None or known.sequence < sequence:
            self.homes[key] = Record(message=home, sequence=sequence)

    def expect(self, spoke: str, key: Key) -> None:
        """What is offered there is as good as taken."""
        admission = self.admissions.get(key)
        if admission is not None:
            self.room.expect(spoke, key, (key[0], admission.queue), asked_by(admission))

    def expect_again(self, spoke: str, key: Key) -> None:
        """After a spoke was read: what was offered there before is to be counted too."""
        record = self.orders.get(key, {}).get(spoke)
        if record is not None and record.message.state in _LIVE:
            self.expect(spoke, key)

    def take_forgettable(self, before: datetime) -> Iterator[Record[Message]]:
        """Drop and return what was said about workloads that are over, and left nothing behind."""
        for key in [key for key in self.orders if self._is_over(key, before)]:
            yield from self.orders.pop(key).values()
            yield from self.reports.pop(key, {}).values()
            if key in self.checks:
                yield self.checks.pop(key)
            if key in self.homes:
                yield self.homes.pop(key)

    def _is_over(self, key: Key, before: datetime) -> bool:
        return (
            key not in self.admissions
            and not self.copies.get(key)
            and self._is_home(key)
            and all(
                record.message.state == "withdrawn"
                and record.message.at < before
                and spoke in self.read_spokes
                and (self.is_gone(key, spoke) or not record.message.started)
                for spoke, record in self.orders[key].items()
            )
        )

    def _is_home(self, key: Key) -> bool:
        """Whether the hub's job shows that it runs nowhere.

        Until then that has to be sent yet, or its patcher may ask for it again.
        """
        record = self.homes.get(key)
        if record is None or record.message.status is None:
            return True
        job = self.hub.job(key, record.message.uid)
        if job is None or not job.managed:
            return True
        return not record.message.status and not job.obj.get("status")

    # --- asking ---

    def others_like(self, spoke: str) -> list[str]:
        """Other names under which the same cluster is known here, the hub's own among them."""
        known = self.configuration.is_known
        return [n for n in self.presence.alike(spoke) if n == self._cluster or known(n)]

    def original(self, spoke: str) -> str | None:
        """The name by which a cluster is used that `spoke` is another name of; None: it is that itself."""
        others = self.others_like(spoke)
        if self._cluster in others:
            return self._cluster
        return others[0] if others and others[0] < spoke else None

    def touch(self, key: Key) -> None:
        """Something about this workload has to be decided."""
        if key in self.admissions or key in self.orders:
            self._dirty[key] = None

    def touch_all(self) -> None:
        """Everything has to be looked at."""
        self._dirty.update(dict.fromkeys((*self.admissions, *self.orders, *self.copies)))

    def is_dirty(self, key: Key) -> bool:
        """Whether there is something to decide about it that nobody has begun with."""
        return key in self._dirty

    def take_dirty(self) -> list[Key]:
        """The workloads to decide about now."""
        dirty, self._dirty = list(self._dirty), {}
        return dirty

    def check_of(self, admission: Admission) -> str | None:
        """The check of this admission that we answer: there is one at most."""
        return next(filter(self.configuration.is_ours, admission.checks), None)

    def awaited(self, admission: Admission) -> tuple[str, ...]:
        """Checks of others that are not ready; as quota does, answers are told by the second."""
        said = self.answers.get((admission.namespace, admission.name), {})
        since = admission.decided_at.replace(microsecond=0)
        ready = {
            name
            for name, one in said.items()
            if one.state == "Ready" and one.uid == admission.uid and one.at >= since
        }
        ours = self.configuration.is_ours
        return tuple(n for n in admission.checks if n not in ready and not ours(n))

    def is_answered(self, admission: Admission, check: CheckState) -> bool:
        """Whether `check` answers this reservation, not one before."""
        return (
            check.uid == admission.uid
            and check.attempt == admission.number
            and check.at >= admission.decided_at
        )

    def live_orders(self, key: Key) -> list[Dispatch]:
        """Orders by which a copy may be made or kept."""
        records = self.orders.get(key, {}).values()
        return [record.message for record in records if record.message.state in _LIVE]

    def ordered_spokes(self) -> list[str]:
        """Every spoke that was ever told anything that still matters."""
        return sorted({spoke for orders in self.orders.values() for spoke in orders})

    def wish(self, key: Key) -> dict[str, Any] | None:
        """What the user of a job that runs elsewhere changed in its spec since."""
        chosen = next((d for d in self.live_orders(key) if d.state == "chosen"), None)
        return None if chosen is None else self.hub.wish(key, chosen.spec)

    def report_of(self, key: Key, dispatch: Dispatch) -> CopyState | None:
        """What the spoke said to this order, not to one before."""
        record = self.reports.get(key, {}).get(dispatch.spoke)
        said = None if record is None else record.message
        return said if said is not None and said.number == dispatch.number else None

    def ended(self, key: Key, uid: str) -> CopyState | None:
        """What a spoke said of a copy that ended well after it was withdrawn; None where one goes on."""
        if any(order.state == "chosen" for order in self.live_orders(key)):
            return None
        orders = [record.message for record in self.orders.get(key, {}).values()]
        reports = [self.report_of(key, order) for order in orders if order.uid == uid]
        return next((one for one in reports if one is not None and one.ended is not None), None)

    def is_gone(self, key: Key, spoke: str) -> bool:
        """Whether a spoke said that nothing of its order is left, and nothing of it is seen."""
        report = self.report_of(key, self.orders[key][spoke].message)
        said = report is not None and report.state == "gone"
        return said and spoke not in self.copies.get(key, {})

    def seen(self, key: Key) -> dict[str, Standing]:
        """What each spoke shows of its order: the copy, or what comes before it.

        Where a Kueue admits, that is the Workload by itself: the job is made once it has quota.
        """
        orders = {spoke: one.message for spoke, one in self.orders.get(key, {}).items()}
        found = {
            spoke: self.standing(spoke, key, copy)
            for spoke, copy in self.copies.get(key, {}).items()
            if spoke in orders and copy.number == orders[spoke].number
        }
        for spoke, dispatch in orders.items():
            remote = self.remotes.get((spoke, key))
            if remote is None or dispatch.workload is None or spoke in found:
                continue
            if remote.order == order_text(self._cluster, dispatch.number):
                found[spoke] = remote.standing
        return found

    def standing(self, spoke: str, key: Key, copy: Copy) -> Standing:
        """What is seen of a copy and of its Workload together."""
        remote = self.remotes.get((spoke, key))
        if remote is None or copy.standing in {Standing.FINISHED, Standing.ENDING}:
            return copy.standing
        return copy.standing if remote.standing is Standing.WAITING else remote.standing

    def cannot_be_carried(self, entry: Entry, uid: str) -> str | None:
        """Why a workload has no job that could run elsewhere; None: it was not seen yet."""
        try:
            state = entry.read(WorkloadState)
        except UndecodableError as error:
            log.warning("workload skipped", subject=entry.subject, error=str(error))
            return None
        if state.uid != uid:
            return None
        owner = state.owner
        if owner is None:
            return "The workload has no job that could be sent to a worker cluster"
        group = owner.api_version.rpartition("/")[0]
        known = self.integrations(self._cluster)
        if known.find(group=group, plural=owner.plural) is None:
            return f"No way is known to send a {owner.kind} to a worker cluster"
        return None
