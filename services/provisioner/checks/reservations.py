"""Places for runs that have quota and have not started: the admission check `sluicegate.dev/machines`.

A queue that lists such a check lets a run start when its machines are there. What a run needs is what
quota has reserved for it: each unit of a platform's resource is one place. A place is kept until the
TaskRun comes that it was meant for, or the run has ended.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, assert_never

import structlog

from services.provisioner.allocation.ledger import KEPT, Book
from services.provisioner.allocation.results import Failed, Launching, Placed, Verdict, Waiting
from services.provisioner.config.host_config import (
    DynamicPlatform,
    HostConfig,
    LocalPlatform,
    PoolPlatform,
    StaticPlatform,
)
from services.provisioner.task_runs.requests import Request
from shared.bus.port import Entry
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.kube.names import slot_resource
from shared.contracts.kube.quantities import QuantityError, amount
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import CheckState
from shared.contracts.messages.observed import Observed

__all__ = ["CONTROLLER", "Answer", "Key", "Reservations"]

log = structlog.get_logger(__name__)

CONTROLLER: Final = "sluicegate.dev/machines"
"""`spec.controllerName` of the AdmissionChecks that are answered here."""

Key = tuple[str, str]
"""Namespace and name of a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a check says about one reservation."""

    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    message: CheckState
    sequence: int


class Reservations:
    """What quota has reserved, and how far its machines are. Can be read again from the views."""

    def __init__(self) -> None:
        self._ours: dict[str, None] = {}
        self._admissions: dict[Key, Admission] = {}
        """Of workloads that hold quota under some check."""

        self._said: dict[tuple[Key, str], _Said] = {}
        self._verdicts: dict[str, Verdict] = {}
        """By the uid of a place."""

        self._unanswered: dict[Key, None] = {}

    @property
    def are_asked_for(self) -> bool:
        """Whether some check is answered here."""
        return bool(self._ours)

    # --- taking in ---

    def take_check(self, observed: Observed) -> bool:
        """Take in an object; True if it is an AdmissionCheck, and everything has to be looked at."""
        if observed.plural != ADMISSION_CHECK.plural:
            return False
        spec = (observed.object or {}).get("spec") or {}
        if not observed.deleted and spec.get("controllerName") == CONTROLLER:
            self._ours[observed.name] = None
        else:
            self._ours.pop(observed.name, None)
        self._unanswered.update(dict.fromkeys(self._admissions))
        return True

    def take_admission(self, entry: Entry) -> list[str]:
        """Take in what quota decided; return the resources about which something may have changed."""
        try:
            admission = entry.read(Admission)
        except UndecodableError as error:
            log.warning("admission skipped", subject=entry.subject, error=str(error))
            return []
        key = (admission.namespace, admission.name)
        before = self._admissions.pop(key, None)
        if before is not None:
            old = [uid for uid in self._verdicts if uid.startswith(_life(before))]
            for uid in old if admission.state != "reserved" or admission.uid != before.uid else ():
                del self._verdicts[uid]
        if admission.checks and admission.state in {"reserved", "admitted"}:
            self._admissions[key] = admission
            self._unanswered[key] = None
        elif before is None:
            return []
        touched = {r for one in (before, admission) if one for r in _slots(one)}
        return sorted(touched)

    def take_answer(self, entry: Entry) -> None:
        """Take in what a check says: our own words, or a predecessor's."""
        try:
            said = entry.read(CheckState)
        except UndecodableError as error:
            log.warning("check state skipped", subject=entry.subject, error=str(error))
            return
        self.remember(said, entry.sequence)

    def remember(self, said: CheckState, sequence: int) -> None:
        """Remember an answer with its place in the log."""
        at = ((said.namespace, said.name), said.check)
        known = self._said.get(at)
        if known is None or known.sequence < sequence:
            self._said[at] = _Said(message=said, sequence=sequence)

    def take_verdicts(self, requests: list[Request], verdicts: Mapping[str, Verdict]) -> None:
        """Take in what a round decided about places that are to be kept."""
        for request in requests:
            verdict = verdicts.get(request.uid)
            if verdict is not None and self._verdicts.get(request.uid) != verdict:
                self._verdicts[request.uid] = verdict
                self._unanswered[request.namespace, request.workload] = None

    def take_forgettable(self, before: datetime) -> list[tuple[CheckState, int]]:
        """Drop what was said of workloads that hold nothing any more; return what was ours of it."""
        old = [
            at
            for at, said in self._said.items()
            if at[0] not in self._admissions and said.message.at < before
        ]
        dropped = [(at, self._said.pop(at)) for at in old]
        return [(said.message, said.sequence) for at, said in dropped if at[1] in self._ours]

    # --- asking ---

    def requests(self, platform: str, book: Book) -> list[Request]:
        """Places of `platform` that are to be had, or to be kept."""
        resource = slot_resource(platform)
        found: list[Request] = []
        for key, admission in self._admissions.items():
            if not self.checks_of(admission):
                continue
            wanted = _slots(admission).get(resource, 0) if admission.state == "reserved" else 0
            uids = [_place(admission, resource, n) for n in range(wanted)]
            if admission.state == "admitted":
                uids = _kept(book, _life(admission))
            found += [
                Request(
                    uid=uid,
                    namespace=key[0],
                    name=key[1],
                    platform=platform,
                    created_at=admission.decided_at,
                    traceparent=admission.traceparent,
                    workload=key[1],
                    reserved=True,
                    # Once the run may start, nothing new is ordered for it: its TaskRuns ask themselves.
                    keeps_only=admission.state == "admitted",
                )
                for uid in uids
            ]
        return found

    def checks_of(self, admission: Admission) -> list[str]:
        """The checks of this admission that are answered here."""
        return [name for name in admission.checks if name in self._ours]

    def take_unanswered(self) -> list[Admission]:
        """The reservations about which something has to be said."""
        keys, self._unanswered = list(self._unanswered), {}
        found = [self._admissions[key] for key in keys if key in self._admissions]
        return [one for one in found if one.state == "reserved" and self.checks_of(one)]

    def answer(self, admission: Admission, config: HostConfig) -> Answer:
        """How far the machines of a reservation are."""
        ready: list[str] = []
        waiting: list[str] = []
        for platform, wanted, places in _platforms(admission, config):
            if wanted > places:
                message = f"{platform}: {wanted} places are asked for, and there are {places}"
                return Answer(state="Rejected", message=message)
            for n in range(wanted):
                match self._verdicts.get(_place(admission, slot_resource(platform), n)):
                    case Placed(host=host):
                        ready.append(f"{platform} on {host}")
                    case Failed(message=message):
                        return Answer(state="Retry", message=f"{platform}: {message}")
                    case Waiting(message=message):
                        waiting.append(f"{platform}: {message}")
                    case Launching(host=host):
                        waiting.append(f"{platform}: machine {host} is starting")
                    case _:
                        waiting.append(f"{platform}: not looked at yet")
        if (missing := self._left_out(admission, config)) is not None:
            return Answer(state="Retry", message=missing)
        if waiting:
            return Answer(state="Pending", message="; ".join(waiting))
        text = f"machines are ready: {', '.join(ready)}" if ready else "no machine is asked for"
        return Answer(state="Ready", message=text)

    def _left_out(self, admission: Admission, config: HostConfig) -> str | None:
        """Why a place cannot be had whose platform left the configuration meanwhile."""
        listed = {slot_resource(platform) for platform in config.platforms}
        for resource in sorted(_slots(admission).keys() - listed):
            verdict = self._verdicts.get(_place(admission, resource, 0))
            if isinstance(verdict, Failed):
                return f"{resource}: {verdict.message}"
        return None

    def is_said(self, admission: Admission, check: str, answer: Answer) -> bool:
        """Whether that was the last word about this reservation."""
        known = self._said.get(((admission.namespace, admission.name), check))
        return (
            known is not None
            and known.message.uid == admission.uid
            and known.message.attempt == admission.number
            and known.message.at >= admission.decided_at
            and (known.message.state, known.message.message) == (answer.state, answer.message)
        )

    def sequence_of(self, admission: Admission, check: str) -> int:
        """Place in the log of the last word about that workload; 0: none."""
        known = self._said.get(((admission.namespace, admission.name), check))
        return known.sequence if known is not None else 0


def _life(admission: Admission) -> str:
    return f"{KEPT}{admission.uid}:"


def _place(admission: Admission, resource: str, number: int) -> str:
    """Differs by reservation: what was refused once is tried again with machines of other names."""
    return f"{_life(admission)}{admission.term}.{admission.number}:{resource}:{number}"


def _kept(book: Book, life: str) -> list[str]:
    """Places and machines that the record keeps for a workload."""
    holders = (machine.holder for machine in book.machines.values())
    return sorted({uid for uid in (*book.seats, *holders) if uid.startswith(life)})


def _slots(admission: Admission) -> dict[str, int]:
    """Resource to how much of it was reserved, of all that could be a platform's."""
    slots: dict[str, int] = {}
    for pod_set in admission.pod_sets:
        for resource, text in pod_set.usage.items():
            try:
                slots[resource] = slots.get(resource, 0) + amount(resource, text)
            except QuantityError:
                log.warning("quantity skipped", resource=resource, quantity=text)
    return slots


def _platforms(admission: Admission, config: HostConfig) -> Iterator[tuple[str, int, int]]:
    """Platforms, how many places of them are needed, and how many there are. Builds in the pod need none."""
    slots = _slots(admission)
    for platform, served in sorted(config.platforms.items()):
        wanted = slots.get(slot_resource(platform), 0)
        match served:
            case LocalPlatform():
                continue
            case StaticPlatform(hosts=hosts):
                places = sum(host.concurrency for host in hosts)
            case DynamicPlatform(machines=spec):
                places = spec.max_instances
            case PoolPlatform(machines=spec, concurrency=concurrency):
                places = spec.max_instances * concurrency
            case _:
                assert_never(served)
        if wanted:
            yield platform, wanted, places
