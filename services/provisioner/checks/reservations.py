"""Slots for runs that have quota and have not started: the admission check `sluicegate.dev/machines`.

A queue that lists such a check lets a run start when its machines are ready. What a run needs is what
quota has reserved for it: each unit of a platform's resource is one slot. A slot is held until the
TaskRun exists that it is meant for, or the run has ended.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from services.provisioner.allocation.ledger import RESERVED_PREFIX, AllocationLedger
from services.provisioner.allocation.ownership import reserved_slots
from services.provisioner.allocation.results import Failed, Launching, Placed, Result, Waiting
from services.provisioner.config.host_config import HostConfig, slots_of
from services.provisioner.task_runs.requests import HostRequest
from shared.contracts.controllers import ANSWERED_BY, MACHINES, CheckStatus
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import ADMISSION_CHECK
from shared.contracts.kube.names import slot_resource
from shared.contracts.messages.admissions import GRANTED, Admission
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import WorkloadRef


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """What a check says about one reservation."""

    state: CheckStatus
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCheck:
    """The last answer of a check for a workload, and its sequence in the log."""

    state: CheckState
    sequence: int


class Reservations:
    """The quota reservations of one cluster, and the state of their slots."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._own_checks: set[str] = set()
        """AdmissionChecks whose controller is the provisioner."""

        self._admissions: dict[WorkloadRef, Admission] = {}
        """Of workloads that hold quota and have an admission check."""

        self._published: dict[tuple[WorkloadRef, str], PublishedCheck] = {}
        """By workload and check."""

        self._results: dict[str, Result] = {}
        """By uid of the slot."""

        self._unanswered: dict[WorkloadRef, None] = {}

    @property
    def are_requested(self) -> bool:
        """Whether there is a check that the provisioner answers."""
        return bool(self._own_checks)

    # --- input ---

    def apply_check(self, observed: Observed) -> bool:
        """Apply an observed object. True if it is an AdmissionCheck, so that all platforms are affected."""
        if observed.plural != ADMISSION_CHECK.plural:
            return False
        controller = spec_of(observed.body).get("controllerName")
        if not observed.deleted and controller == MACHINES:
            self._own_checks.add(observed.name)
        else:
            self._own_checks.discard(observed.name)
        self._unanswered.update(dict.fromkeys(self._admissions))
        return True

    def apply_admission(self, admission: Admission) -> set[str]:
        """Apply a decision of quota. Returns the resources whose platforms it may affect."""
        ref = admission.ref
        before = self._admissions.pop(ref, None)
        if before is not None and (admission.state != "reserved" or admission.uid != before.uid):
            prefix = _uid_prefix(before)
            self._results = {u: r for u, r in self._results.items() if not u.startswith(prefix)}
        if admission.checks and admission.state in GRANTED:
            self._admissions[ref] = admission
            self._unanswered[ref] = None
        elif before is None:
            return set()
        return {r for one in (before, admission) if one is not None for r in reserved_slots(one)}

    def apply_check_state(self, state: CheckState, sequence: int) -> None:
        """Apply a published answer, of this replica or of an earlier leader, unless a newer one is known."""
        key = (WorkloadRef(self._cluster, state.namespace, state.name), state.check)
        known = self._published.get(key)
        if known is None or known.sequence < sequence:
            self._published[key] = PublishedCheck(state=state, sequence=sequence)

    def apply_results(self, requests: list[HostRequest], results: Mapping[str, Result]) -> None:
        """Apply the results of a round for slots that are reserved here."""
        for request in requests:
            result = results.get(request.uid)
            if result is not None and self._results.get(request.uid) != result:
                self._results[request.uid] = result
                ref = WorkloadRef(self._cluster, request.namespace, request.workload)
                self._unanswered[ref] = None

    def expired(self, before: datetime) -> dict[str, PublishedCheck]:
        """The answers, by subject, that may leave the view: for workloads that hold no quota."""
        return {
            one.state.subject: one
            for (ref, check), one in self._published.items()
            if ref not in self._admissions and one.state.at < before and self._is_own(one, check)
        }

    def _is_own(self, published: PublishedCheck, check: str) -> bool:
        """Whether the provisioner gave the answer; an earlier release did not say who answers."""
        service = published.state.service
        return service == ANSWERED_BY[MACHINES] or (not service and check in self._own_checks)

    def drop(self, published: PublishedCheck) -> None:
        """Forget an answer that has left the view, unless there is a newer one."""
        state = published.state
        key = (WorkloadRef(self._cluster, state.namespace, state.name), state.check)
        if self._published.get(key) is published:
            del self._published[key]

    # --- output ---

    def requests(self, platform: str, ledger: AllocationLedger) -> list[HostRequest]:
        """The slots of `platform` that are to be reserved or stay reserved."""
        resource = slot_resource(platform)
        found: list[HostRequest] = []
        for ref, admission in self._admissions.items():
            if not self.checks_of(admission):
                continue
            wanted = reserved_slots(admission).get(resource, 0)
            uids = [_slot_uid(admission, resource, n) for n in range(wanted)]
            if admission.state == "admitted":
                uids = _held_uids(ledger, _uid_prefix(admission))
            found += [
                HostRequest(
                    uid=uid,
                    namespace=ref.namespace,
                    name=ref.name,
                    platform=platform,
                    created_at=admission.decided_at,
                    traceparent=admission.traceparent,
                    workload=ref.name,
                    reserved=True,
                    # Once the run may start, its TaskRuns ask for what is missing.
                    existing_only=admission.state == "admitted",
                )
                for uid in uids
            ]
        return found

    def checks_of(self, admission: Admission) -> list[str]:
        """The checks of `admission` that the provisioner answers."""
        return [name for name in admission.checks if name in self._own_checks]

    def pop_unanswered(self) -> list[Admission]:
        """The reservations whose answer may have changed."""
        refs, self._unanswered = list(self._unanswered), {}
        found = [self._admissions[ref] for ref in refs if ref in self._admissions]
        return [one for one in found if one.state == "reserved" and self.checks_of(one)]

    def answer(self, admission: Admission, config: HostConfig) -> CheckAnswer:
        """The answer for a reservation."""
        ready: list[str] = []
        waiting: list[str] = []
        for platform, wanted, available in _demand(admission, config):
            if wanted > available:
                message = f"{platform}: {wanted} places are asked for, and there are {available}"
                return CheckAnswer(state="Rejected", message=message)
            for n in range(wanted):
                match self._results.get(_slot_uid(admission, slot_resource(platform), n)):
                    case Placed(host=host):
                        ready.append(f"{platform} on {host}")
                    case Failed(message=message):
                        return CheckAnswer(state="Retry", message=f"{platform}: {message}")
                    case Waiting(message=message):
                        waiting.append(f"{platform}: {message}")
                    case Launching(host=host):
                        waiting.append(f"{platform}: machine {host} is starting")
                    case _:
                        waiting.append(f"{platform}: not looked at yet")
        if (failure := self._unconfigured_failure(admission, config)) is not None:
            return CheckAnswer(state="Retry", message=failure)
        if waiting:
            return CheckAnswer(state="Pending", message="; ".join(waiting))
        text = f"machines are ready: {', '.join(ready)}" if ready else "no machine is asked for"
        return CheckAnswer(state="Ready", message=text)

    def _unconfigured_failure(self, admission: Admission, config: HostConfig) -> str | None:
        """Why a slot failed whose platform left the configuration; None if there is no such slot."""
        configured = {slot_resource(platform) for platform in config.platforms}
        for resource in sorted(reserved_slots(admission).keys() - configured):
            result = self._results.get(_slot_uid(admission, resource, 0))
            if isinstance(result, Failed):
                return f"{resource}: {result.message}"
        return None

    def is_published(self, admission: Admission, check: str, answer: CheckAnswer) -> bool:
        """Whether `answer` is the last published one for this reservation."""
        known = self._published.get((admission.ref, check))
        return (
            known is not None
            and known.state.uid == admission.uid
            and known.state.attempt == admission.number
            and known.state.at >= admission.decided_at
            and (known.state.state, known.state.message) == (answer.state, answer.message)
        )

    def sequence_of(self, admission: Admission, check: str) -> int:
        """Sequence of the last published answer for that workload; 0 if there is none."""
        known = self._published.get((admission.ref, check))
        return known.sequence if known is not None else 0


def _uid_prefix(admission: Admission) -> str:
    return f"{RESERVED_PREFIX}{admission.uid}:"


def _slot_uid(admission: Admission, resource: str, number: int) -> str:
    """Unique to the reservation: after a refusal the next one orders machines with other names."""
    return f"{_uid_prefix(admission)}{admission.term}.{admission.number}:{resource}:{number}"


def _held_uids(ledger: AllocationLedger, prefix: str) -> list[str]:
    """Uids of the slots and machines that are reserved for a workload."""
    holders = (machine.holder for machine in ledger.machines.values())
    return sorted({uid for uid in (*ledger.slots, *holders) if uid.startswith(prefix)})


def _demand(admission: Admission, config: HostConfig) -> Iterator[tuple[str, int, int]]:
    """Platforms that serve the reservation, with the slots that it needs and those that exist."""
    reserved = reserved_slots(admission)
    for platform, platform_config in sorted(config.platforms.items()):
        wanted, available = reserved.get(slot_resource(platform), 0), slots_of(platform_config)
        if wanted and available is not None:
            yield platform, wanted, available
