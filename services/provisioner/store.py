"""What the provisioner knows of one cluster: who asks, what was said, what the configuration says.

Messages go in; out come the platforms about which something has to be decided. All of it can be
read again from the views, so losing it loses nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from services.provisioner import translate
from services.provisioner.allocation.ledger import Book
from services.provisioner.checks.reservations import Reservations
from services.provisioner.config.host_config import (
    NO_CONFIG,
    HostConfig,
    PlatformConfig,
    parse_host_config,
)
from services.provisioner.config.platforms import PlatformFormatError, is_platform
from services.provisioner.providers.keys import Keys
from services.provisioner.task_runs.requests import Request, has_ended, is_marked, to_request
from shared.bus.port import Entry
from shared.contracts.kube.kinds import CONFIG_MAP, TASK_RUN
from shared.contracts.kube.names import slot_resource
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import HostState, PlatformOffer, PlatformState, SealKey
from shared.contracts.messages.observed import Observed, Synced

__all__ = ["Knowledge", "Said", "Shelf"]

log = structlog.get_logger(__name__)

_TaskRunKey = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True, kw_only=True)
class Said:
    """The last thing that was published about a TaskRun."""

    state: HostState
    sequence: int


@dataclass(slots=True, kw_only=True)
class Shelf:
    """A book with its place in the log, which the next edition must follow."""

    book: Book
    sequence: int


class Knowledge:
    """One session's memory."""

    def __init__(
        self,
        *,
        cluster: str,
        host_config: tuple[str, str],
        providers: frozenset[str],
        keys: Mapping[str, Keys] | None = None,
        last_good: HostConfig = NO_CONFIG,
    ) -> None:
        self._cluster = cluster
        self._host_config = host_config
        self._providers = providers
        self._keys = keys or {}
        self.config = last_good
        self.config_found = False
        self.synced = False
        """The watcher has listed everything: who is not there is gone."""

        self.reservations = Reservations()
        self.offer: PlatformOffer | None = None
        """What was last said of the platforms that there are."""

        self._offered: HostConfig | None = None
        self._offered_found = False
        """For which configuration that was found to be so."""

        self.seal_key: str | None = None
        """Public key of the cluster's patcher; None: it has not published one yet."""

        self._active: dict[str, Request] = {}
        self._life: dict[_TaskRunKey, str] = {}
        """Uid of the TaskRun that has the name now, among those that ask."""

        self._present: dict[_TaskRunKey, None] = {}
        """Multi-platform TaskRuns that exist, ended ones included."""

        self._by_platform: dict[str, dict[str, None]] = {}
        self.said: dict[_TaskRunKey, Said] = {}
        self._unreleased: dict[str, dict[_TaskRunKey, None]] = {}
        self.shelves: dict[str, Shelf] = {}
        self._dirty: dict[str, None] = {}

    def is_concerned(self) -> bool:
        """Whether there is a check that we answer: without one, no decision asks for a place."""
        return self.reservations.are_asked_for

    # --- taking in ---

    def take_observed(self, entry: Entry) -> None:
        """Take in an entry of `OBSERVED`. What cannot be read harms nothing but itself."""
        try:
            if entry.subject.endswith(".synced"):
                entry.read(Synced)
                self.synced = True
                return
            observed = entry.read(Observed)
        except UndecodableError as error:
            log.warning("observation skipped", subject=entry.subject, error=str(error))
            return
        if observed.plural == TASK_RUN.plural:
            self._take_task_run(observed)
        elif observed.plural == CONFIG_MAP.plural:
            self._take_config_map(observed)
        elif self.reservations.take_check(observed):
            self.touch_all()

    def take_hosts(self, entry: Entry) -> None:
        """Take in an entry of `HOSTS`: our own words, or those of a predecessor."""
        try:
            if entry.headers.get("ce-type") == PlatformState.type:
                platform = entry.read(PlatformState)
                shelf = self.shelves.get(platform.platform)
                if shelf is None or shelf.sequence < entry.sequence:
                    self.keep(translate.to_book(platform), entry.sequence)
                    self.touch(platform.platform)
                return
            if entry.headers.get("ce-type") == PlatformOffer.type:
                self.offer = entry.read(PlatformOffer)
                self._offered = None
                return
            if entry.headers.get("ce-type") == SealKey.type:
                self.seal_key = entry.read(SealKey).public_key
                return
            state = entry.read(HostState)
        except UndecodableError as error:
            log.warning("host skipped", subject=entry.subject, error=str(error))
            return
        said = self.said.get((state.namespace, state.name))
        if said is None or said.sequence < entry.sequence:
            self.remember(state, entry.sequence)
            self.touch(state.platform)

    def take_admission(self, entry: Entry) -> None:
        """Take in an entry of `ADMISSIONS`: places may be wanted, or no longer."""
        resources = self.reservations.take_admission(entry)
        for platform in self.config.platforms if resources else ():
            if slot_resource(platform) in resources:
                self.touch(platform)
        for platform in self.shelves if resources else ():
            if slot_resource(platform) in resources:
                self.touch(platform)

    @staticmethod
    def record_in(entry: Entry) -> str | None:
        """The platform whose record `entry` is; None if it is about a TaskRun, or unreadable."""
        if entry.headers.get("ce-type") != PlatformState.type:
            return None
        try:
            return entry.read(PlatformState).platform
        except UndecodableError:
            return None  # `take_hosts` says so.

    def _take_task_run(self, observed: Observed) -> None:
        if observed.namespace is None:
            return
        key = (observed.namespace, observed.name)
        before = self._life.get(key)
        if before is not None and before != observed.uid:
            self._end(key, before)  # The name was given to another one while we looked away.
        if observed.deleted:
            self._present.pop(key, None)
            self._end(key, observed.uid)
            return
        if observed.object is None:
            log.warning("TaskRun is too large to be read", namespace=key[0], name=key[1])
            return
        request = to_request(observed.object)
        if request is not None:
            self._present[key] = None
        if has_ended(observed.object):
            self._end(key, observed.uid)
            if is_marked(observed.object) and request is not None and key not in self.said:
                # The bus has lost what was said about it; somebody must let go of it.
                self._remember_lost(request)
            return
        if request is None or self._active.get(observed.uid) == request:
            return
        self._life[key] = request.uid
        self._active[request.uid] = request
        self._by_platform.setdefault(request.platform, {})[request.uid] = None
        self.touch(request.platform)

    def _remember_lost(self, request: Request) -> None:
        lost = HostState(
            cluster=self._cluster,
            namespace=request.namespace,
            name=request.name,
            uid=request.uid,
            platform=request.platform,
            state="failed",
            at=request.created_at,
        )
        self.remember(lost, 0)
        self.touch(request.platform)

    def _end(self, key: _TaskRunKey, uid: str) -> None:
        request = self._active.pop(uid, None)
        if request is not None:
            self._by_platform[request.platform].pop(uid, None)
            self.touch(request.platform)
        if self._life.get(key) == uid:
            del self._life[key]
        said = self.said.get(key)
        if said is not None and said.state.uid == uid:
            self.touch(said.state.platform)

    def _take_config_map(self, observed: Observed) -> None:
        if (observed.namespace, observed.name) != self._host_config:
            return
        self.config_found = not observed.deleted
        if observed.deleted or observed.object is None:
            log.warning("host configuration is gone; the last good one stays")
        else:
            data = observed.object.get("data") or {}
            self.config = parse_host_config(
                data, available=self._providers, keys=self._keys, last_good=self.config
            )
            for what, error in self.config.errors.items():
                log.warning("host configuration", what=what, error=error)
        self.touch_all()

    # --- keeping what was written ---

    def keep(self, book: Book, sequence: int) -> None:
        """Remember a book as it is in the log at `sequence`."""
        self.shelves[book.platform] = Shelf(book=book, sequence=sequence)

    def remember(self, state: HostState, sequence: int) -> None:
        """Remember what was said about a TaskRun."""
        key = (state.namespace, state.name)
        before = self.said.get(key)
        if before is not None:
            self._unreleased.get(before.state.platform, {}).pop(key, None)
        self.said[key] = Said(state=state, sequence=sequence)
        if state.state != "released":
            self._unreleased.setdefault(state.platform, {})[key] = None

    def take_forgettable(self, before: datetime) -> list[Said]:
        """Drop and return what was said about TaskRuns that are gone, and released before then."""
        old = [
            key
            for key, said in self.said.items()
            if said.state.state == "released"
            and said.state.at < before
            and key not in self._present
        ]
        return [self.said.pop(key) for key in old]

    # --- asking ---

    def touch(self, platform: str) -> None:
        """Something about `platform` has to be decided."""
        self._dirty[platform] = None

    def touch_all(self) -> None:
        """Everything has to be looked at: the configuration changed, or time has passed."""
        known = (*self.shelves, *self._by_platform, *self._unreleased)
        for platform in (*known, *self.config.platforms):
            self.touch(platform)

    def take_dirty(self) -> list[str]:
        """The platforms to decide about now."""
        dirty, self._dirty = list(self._dirty), {}
        return dirty

    @property
    def anything_dirty(self) -> bool:
        """Whether there is something to decide."""
        return bool(self._dirty)

    def offer_to_make(self, now: datetime) -> PlatformOffer | None:
        """What is to be said of the platforms that there are; None: it was said."""
        config = self.config
        if self._offered is config and self._offered_found == self.config_found:
            return None  # Asked at every turn, and the configuration hardly ever changes.
        offer = PlatformOffer(
            cluster=self._cluster,
            configured=self.config_found,
            platforms={name: slot_resource(name) for name in sorted(config.platforms)},
            problems={
                name: text
                for name, text in sorted(config.errors.items())
                if name not in config.platforms and is_platform(name)
            },
            at=now,
        )
        if self.offer is not None and self.offer.model_copy(update={"at": now}) == offer:
            self._offered, self._offered_found = config, self.config_found
            return None
        return offer

    def requests(self, platform: str) -> list[Request]:
        """Every TaskRun that asks for `platform` and has not ended."""
        return [self._active[uid] for uid in self._by_platform.get(platform, ())]

    def is_active(self, uid: str) -> bool:
        """Whether that TaskRun asks for a machine, and has not ended."""
        return uid in self._active

    def settled(self, requests: list[Request]) -> frozenset[str]:
        """Those of `requests` that have their secret, or had it."""
        settled = set()
        for request in requests:
            said = self.said.get((request.namespace, request.name))
            if (
                said is not None
                and said.state.uid == request.uid
                and said.state.state in {"ready", "failed", "released"}
            ):
                settled.add(request.uid)
        return frozenset(settled)

    def ended_but_unreleased(self, platform: str) -> list[Said]:
        """What was said about TaskRuns of `platform` that have ended since."""
        return [
            self.said[key]
            for key in self._unreleased.get(platform, ())
            if not self.is_active(self.said[key].state.uid)
        ]

    def book(self, platform: str) -> Book:
        """What was decided about `platform` so far."""
        shelf = self.shelves.get(platform)
        return shelf.book if shelf else Book(cluster=self._cluster, platform=platform)

    def resolve(self, platform: str) -> PlatformConfig | str:
        """How `platform` is served, or the text with which its TaskRuns fail."""
        if not is_platform(platform):
            return str(PlatformFormatError())
        found = self.config.resolve(platform)
        if isinstance(found, str) and not self.config_found:
            namespace, name = self._host_config
            return f"failed to read host config: there is no ConfigMap {namespace}/{name}"
        return found

    def busy_elsewhere(self, platform: str) -> dict[str, int]:
        """Host to how many TaskRuns of other platforms sit on it: hosts can move."""
        busy: dict[str, int] = {}
        for other, shelf in self.shelves.items():
            if other != platform:
                for seat in shelf.book.seats.values():
                    busy[seat.host] = busy.get(seat.host, 0) + 1
        return busy
