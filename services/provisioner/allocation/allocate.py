"""Decides which TaskRun gets which host.

Enters: the ledger of a platform, its configuration, the TaskRuns that ask, what providers and hosts
report. Leaves: the next ledger, and a result for each TaskRun. Pure: the same input gives the same
output, and a round without news changes nothing.

The rules are those of konflux-ci/multi-platform-controller@c28c4a01, with these differences on purpose:

- Waiting TaskRuns are served strictly by age.
- A machine counts against the maximum from its order until it is proved gone, old machines of a pool
  included.
- A pool orders no second machine for a TaskRun whose machine is still starting.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from services.provisioner.allocation.ledger import (
    AllocationLedger,
    HostAccess,
    HostSlot,
    Machine,
    MachineState,
    is_reserved,
)
from services.provisioner.allocation.messages import (
    all_hosts_busy,
    all_hosts_failed,
    machines_failed,
    machines_used,
)
from services.provisioner.allocation.results import (
    AllocationOutcome,
    Failed,
    HostCleaned,
    HostPrepared,
    HostReport,
    HostUnusable,
    Launching,
    LaunchRefused,
    LedgerEvent,
    MachineBroken,
    MachineEnding,
    MachineGone,
    MachineObservation,
    MachineOrdered,
    MachineUp,
    Placed,
    Preparing,
    Result,
    SlotReleased,
    Waiting,
)
from services.provisioner.allocation.slots import (
    UNLIMITED,
    Budgets,
    HostLimits,
    new_slot,
    result_of,
)
from services.provisioner.config.host_config import (
    DynamicPlatform,
    Host,
    LocalPlatform,
    MachineSpec,
    PlatformConfig,
    PoolPlatform,
    StaticPlatform,
    machine_spec_of,
)
from services.provisioner.naming import machine_name
from services.provisioner.task_runs.requests import HostRequest
from services.provisioner.task_runs.ssh_secret import LOCALHOST

EXPIRED: Final = "it is old and idle"
"""Reason with which an idle machine of a pool ends after its maximum age."""

MACHINES_PER_REQUEST_MAX: Final = 3
"""Broken machines that a TaskRun may cost before it fails."""


def allocate(
    *,
    ledger: AllocationLedger,
    config: PlatformConfig | str,
    requests: Iterable[HostRequest],
    settled: frozenset[str],
    observations: Mapping[str, MachineObservation],
    used_by_other_platforms: Mapping[str, int],
    now: datetime,
    reports: Mapping[str, HostReport] | None = None,
    access: Callable[[Host | MachineSpec], HostAccess | None] = lambda _: None,
    limits: HostLimits = UNLIMITED,
) -> AllocationOutcome:
    """Run one round for one platform.

    `config`: a text if the platform cannot be served; it is the error message. `requests`: all TaskRuns
    of the platform that have not ended. `settled`: uids of those that have their secret already; they
    get no second machine if theirs vanishes. `observations`: by machine name. `used_by_other_platforms`:
    static host to the slots on it that TaskRuns of other platforms hold, since a host may have changed
    its platform. `reports`: by slot uid. `access`: how to log in to a host or machine, None for no login.
    """
    active = {request.uid: request for request in sorted(requests, key=lambda r: r.queue_key)}
    round_ = _Round(ledger, config, active, settled, used_by_other_platforms, now, access, limits)
    round_.refresh_access()
    round_.release_ended()
    round_.apply_reports(reports or {})
    round_.apply_observations(observations)
    round_.fail_overdue()
    round_.transfer_reserved()
    round_.end_unused()
    results = {
        uid: round_.serve(request)
        for uid, request in active.items()
        if (uid not in settled and not request.existing_only) or uid in round_.slots
    }
    return AllocationOutcome(ledger=round_.ledger(), results=results, events=tuple(round_.events))


class _Round:
    """A mutable copy of the ledger during one round."""

    def __init__(
        self,
        ledger: AllocationLedger,
        config: PlatformConfig | str,
        active: Mapping[str, HostRequest],
        settled: frozenset[str],
        used_by_other_platforms: Mapping[str, int],
        now: datetime,
        access: Callable[[Host | MachineSpec], HostAccess | None],
        limits: HostLimits,
    ) -> None:
        self._access = access
        self._before = ledger
        self._config = config
        self._spec = machine_spec_of(config)
        self._active = active
        self._settled = settled
        self._used_by_other_platforms = used_by_other_platforms
        self._now = now
        self._budgets = Budgets(limits)
        self.slots = dict(ledger.slots)
        self._machines = dict(ledger.machines)
        self._attempts = dict(ledger.attempts)
        self._refusals = dict(ledger.refusals)
        self._failed_hosts = dict(ledger.failed_hosts)
        self.events: list[LedgerEvent] = []
        self._starting_slots: int | None = None
        """Free slots on pool machines that are starting. None until the first request needs it."""

    def ledger(self) -> AllocationLedger:
        """The next ledger; the very object that came in if nothing changed."""
        after = replace(
            self._before,
            slots=self.slots,
            machines=self._machines,
            attempts=self._attempts,
            refusals=self._refusals,
            failed_hosts=self._failed_hosts,
        )
        return self._before if after == self._before else after

    # --- the end of slots and machines ---

    def refresh_access(self) -> None:
        """Log in to static hosts as they are configured now: a key or port may have been corrected."""
        if not isinstance(self._config, StaticPlatform):
            return
        hosts = {host.name: host for host in self._config.hosts}
        for uid, slot in list(self.slots.items()):
            host = hosts.get(slot.host)
            if host is None or slot.access is None or host.address != slot.address:
                continue  # Another machine has the name now. The user is on the one of the record.
            access = self._access(host)
            if access is not None and access != slot.access:
                self.slots[uid] = replace(slot, access=access)

    def release_ended(self) -> None:
        """Release the slots of TaskRuns that ended, and forget those TaskRuns."""
        for uid, slot in list(self.slots.items()):
            if uid in self._active:
                continue
            # Nothing is to clean if nobody logged in, or if the machine ends with all that is on it.
            if slot.access is None or slot.state == "held" or self._is_exclusive(slot.host):
                self._release(slot)
            elif slot.state != "cleaning":
                self.slots[uid] = replace(slot, state="cleaning", sealed="")
        by_uid: tuple[dict[str, Any], ...] = (self._attempts, self._refusals, self._failed_hosts)
        for entries in by_uid:
            for uid in entries.keys() - self._active.keys():
                del entries[uid]

    def _is_exclusive(self, host: str) -> bool:
        """Whether `host` is a machine that was ordered for one TaskRun."""
        machine = self._machines.get(host)
        return machine is not None and not machine.shared

    def _release(self, slot: HostSlot) -> None:
        del self.slots[slot.uid]
        self.events.append(SlotReleased(uid=slot.uid, host=slot.host))

    def apply_reports(self, reports: Mapping[str, HostReport]) -> None:
        """Apply what was done on hosts. A report that does not fit the slot's state is late: ignored."""
        for uid, slot in list(self.slots.items()):
            match reports.get(uid):
                case HostPrepared(sealed=sealed) if slot.state == "preparing":
                    self.slots[uid] = replace(slot, state="ready", sealed=sealed)
                case HostUnusable() as report if slot.state == "preparing":
                    self._leave_host(slot, report)
                case HostCleaned() if slot.state == "cleaning":
                    self._release(slot)
                case _:
                    pass

    def _leave_host(self, slot: HostSlot, report: HostUnusable) -> None:
        """The TaskRun does not get this host again. Without another machine it fails."""
        failed = self._failed_hosts.get(slot.uid, {})
        self._failed_hosts[slot.uid] = {**failed, slot.host: report.reason}
        if self._is_exclusive(slot.host):
            self._release(slot)
            self._refuse(
                slot.uid, f"Error allocating host: failed to provision host: {report.reason}"
            )
            return
        if not report.entered:
            self._release(slot)
            return
        # A visit may have made the user: the host is cleaned before the slot is free.
        del self.slots[slot.uid]
        left = f"{slot.uid}@{slot.host}"
        self.slots[left] = replace(slot, uid=left, state="cleaning")

    def apply_observations(self, observations: Mapping[str, MachineObservation]) -> None:
        """Apply what providers reported. An observation of a machine that ends already is ignored."""
        for name, machine in list(self._machines.items()):
            match observations.get(name):
                case None:
                    pass
                case MachineUp(address=address) if machine.state == "launching":
                    self._start(replace(machine, state="running", address=address))
                case MachineBroken(reason=reason) if machine.state == "launching":
                    self._end(machine, f"it came up broken: {reason}")
                    self._refuse_after_attempts(machine, reason)
                case LaunchRefused(reason=reason) if machine.state == "launching":
                    self._end(machine, f"the provider refused it: {reason}")
                    self._refuse(machine.holder, f"Error allocating host: {reason}")
                case MachineGone():
                    self._remove(machine)
                case MachineUp() | MachineBroken() | LaunchRefused():
                    pass
                case observation:
                    assert_never(observation)

    def _start(self, machine: Machine) -> None:
        """A machine runs. One that was ordered for a single TaskRun goes to it."""
        self._machines[machine.name] = machine
        holder = self._active.get(machine.holder)
        if not machine.shared and holder is not None and self._needs_slot(holder):
            access = self._access(self._spec) if self._spec is not None else None
            self._add_slot(holder, host=machine.name, address=machine.address, access=access)

    def _remove(self, machine: Machine) -> None:
        del self._machines[machine.name]
        for slot in [slot for slot in self.slots.values() if slot.host == machine.name]:
            self._release(slot)
        if machine.state == "launching":
            self._refuse_after_attempts(machine, "it vanished")

    def _refuse_after_attempts(self, machine: Machine, reason: str) -> None:
        """Fail the TaskRun if it had its attempts. Otherwise `serve` orders the next machine."""
        if self._attempts.get(machine.holder, 0) >= MACHINES_PER_REQUEST_MAX:
            self._refuse(machine.holder, machines_failed(MACHINES_PER_REQUEST_MAX, reason))

    def fail_overdue(self) -> None:
        """End machines that have no address at their deadline, and fail their TaskRuns."""
        for machine in list(self._machines.values()):
            if machine.state == "launching" and self._now >= machine.deadline:
                self._end(machine, "it has no address in time")
                self._refuse(
                    machine.holder,
                    "Error allocating host: timed out waiting for instance address",
                )

    def transfer_reserved(self) -> None:
        """Give each TaskRun the slot or machine that is reserved for its run, whoever else waits."""
        for request in self._active.values():
            if request.reserved or not request.workload or not self._needs_slot(request):
                continue
            slot = self._reserved_slot(request)
            if slot is not None:
                del self.slots[slot.uid]
                self._add_slot(request, host=slot.host, address=slot.address, access=slot.access)
            self._transfer_machine(request, slot)

    def _reserved_slot(self, request: HostRequest) -> HostSlot | None:
        failed = self._failed(request)
        for slot in self.slots.values():
            run = (slot.namespace, slot.name)
            if slot.state == "held" and run == (request.namespace, request.workload):
                return None if slot.host in failed else slot
        return None

    def _transfer_machine(self, request: HostRequest, slot: HostSlot | None) -> None:
        """Make `request` the holder of the slot's machine; without a slot, of one that starts."""
        for machine in self._machines.values():
            reserved = is_reserved(machine.holder) and machine.task_run == request.run
            starts = machine.state == "launching" and reserved
            if machine.shared or not (machine.name == slot.host if slot else starts):
                continue
            self._machines[machine.name] = replace(
                machine, holder=request.uid, task_run=f"{request.namespace}:{request.name}"
            )
            return

    def end_unused(self) -> None:
        """Terminate the machines that no TaskRun will use (again)."""
        for machine in list(self._machines.values()):
            reason = self._reason_to_end(machine)
            if reason is not None:
                self._end(machine, reason)

    def _reason_to_end(self, machine: Machine) -> str | None:
        if any(slot.host == machine.name for slot in self.slots.values()):
            return None
        if not machine.shared:
            holder = self._active.get(machine.holder)
            if holder is None:
                return "its TaskRun has ended"
            if machine.state == "launching" and self._needs_slot(holder) and self._spec is not None:
                return None
            return "its TaskRun does not use it"
        if not isinstance(self._config, PoolPlatform):
            return "the platform is no pool any more"
        if machine.state == "running" and self._is_expired(machine, self._config):
            return EXPIRED
        return None

    def _end(self, machine: Machine, reason: str) -> None:
        if machine.state != "terminating":
            self._machines[machine.name] = replace(machine, state="terminating")
            self.events.append(MachineEnding(name=machine.name, reason=reason))

    def _refuse(self, uid: str, message: str) -> None:
        request = self._active.get(uid)
        if request is not None and self._needs_slot(request):
            self._refusals[uid] = message

    def _needs_slot(self, request: HostRequest) -> bool:
        uid = request.uid
        return uid not in self.slots and uid not in self._refusals and uid not in self._settled

    # --- new slots and machines; called by age of the requests ---

    def serve(self, request: HostRequest) -> Result:
        """The result for `request`, after giving it a slot or ordering a machine if that is possible."""
        slot = self.slots.get(request.uid)
        if slot is not None:
            return result_of(slot, self._own_failures(request))
        refusal = self._refusals.get(request.uid)
        if refusal is not None:
            return Failed(message=refusal)
        match self._config:
            case str(problem):
                return Failed(message=problem)
            case LocalPlatform():
                return Placed(host=LOCALHOST, address="")
            case StaticPlatform() as config:
                return self._serve_static(request, config)
            case DynamicPlatform() as config:
                return self._serve_dynamic(request, config)
            case PoolPlatform() as config:
                return self._serve_pool(request, config)
            case _:
                assert_never(self._config)

    def _serve_static(self, request: HostRequest, config: StaticPlatform) -> Result:
        hosts = {
            host.name: (
                host.address,
                host.concurrency - self._used_by_other_platforms.get(host.name, 0),
                self._access(host),
            )
            for host in config.hosts
        }
        return self._pick_host(request, hosts) or Waiting(
            message=all_hosts_busy(config.platform, self._own_failures(request))
        )

    def _serve_dynamic(self, request: HostRequest, config: DynamicPlatform) -> Result:
        for machine in self._machines.values():
            if machine.holder == request.uid and machine.state == "launching":
                return Launching(host=machine.name)
        if self._failed(request):
            return Failed(message="Error allocating host: failed to provision host")
        if len(self._machines) >= config.machines.max_instances:
            return self._wait_for_machine(config.machines)
        return self._order(request, config.machines, shared=False)

    def _serve_pool(self, request: HostRequest, config: PoolPlatform) -> Result:
        running = {
            machine.name: (machine.address, config.concurrency, self._access(config.machines))
            for machine in self._pool_machines("running")
            if not self._is_expired(machine, config)
        }
        result = self._pick_host(request, running) if running else None
        if isinstance(result, Placed | Preparing | Waiting):
            return result
        starting = self._pool_machines("launching")
        if self._starting_slots is None:
            self._starting_slots = len(starting) * config.concurrency
        if self._starting_slots == 0:
            if len(self._machines) >= config.machines.max_instances:
                return result or self._wait_for_machine(config.machines)
            ordered = self._order(request, config.machines, shared=True)
            if isinstance(ordered, Launching):
                self._starting_slots = config.concurrency - 1
            return ordered
        self._starting_slots -= 1
        for machine in starting:
            if machine.holder == request.uid:
                return Launching(host=machine.name)
        return Waiting(message=f"a machine of {config.platform} is starting")

    def _pool_machines(self, state: MachineState) -> list[Machine]:
        return [m for m in self._machines.values() if m.shared and m.state == state]

    def _pick_host(
        self, request: HostRequest, hosts: Mapping[str, tuple[str, int, HostAccess | None]]
    ) -> Placed | Preparing | Waiting | Failed | None:
        """Give `request` a slot on the host with the most free ones. None if all are taken.

        `hosts`: name to address, number of slots, and access.
        """
        failed = self._failed(request)
        usable = [name for name in sorted(hosts) if name not in failed]
        if not usable:
            return Failed(message=all_hosts_failed(hosts, self._own_failures(request)))
        used = dict.fromkeys(usable, 0)
        for slot in self.slots.values():
            if slot.host in used:
                used[slot.host] += 1
        free = {name: hosts[name][1] - used[name] for name in usable}
        suspect = {name for failed in self._failed_hosts.values() for name in failed}
        # A host that failed for others is tried if no other one is free. `max` returns the first of
        # equals: the order of names decides ties.
        best = max(usable, key=lambda name: (free[name] > 0, name not in suspect, free[name]))
        address, _, access = hosts[best]
        if free[best] <= 0:
            return None
        if (limited := self._budgets.use(request)) is not None:
            return limited
        slot = self._add_slot(request, host=best, address=address, access=access)
        return result_of(slot, self._own_failures(request))

    def _own_failures(self, request: HostRequest) -> Mapping[str, str]:
        return self._failed_hosts.get(request.uid, {})

    def _failed(self, request: HostRequest) -> frozenset[str]:
        return frozenset((*request.failed_hosts, *self._own_failures(request)))

    def _add_slot(
        self, request: HostRequest, *, host: str, address: str, access: HostAccess | None
    ) -> HostSlot:
        slot = new_slot(request, host=host, address=address, access=access)
        self.slots[slot.uid] = slot
        return slot

    def _order(
        self, request: HostRequest, spec: MachineSpec, *, shared: bool
    ) -> Launching | Waiting:
        if (limited := self._budgets.use(request)) is not None:
            return limited
        attempt = self._attempts.get(request.uid, 0) + 1
        self._attempts[request.uid] = attempt
        machine = Machine(
            name=machine_name(
                cluster=self._before.cluster, uid=request.uid, attempt=attempt, tag=spec.tag
            ),
            provider=spec.account,
            tag=spec.tag,
            state="launching",
            shared=shared,
            holder=request.uid,
            task_run=f"{request.namespace}:{request.name}",
            launched_at=self._now,
            deadline=self._now + timedelta(seconds=spec.allocation_timeout_seconds),
        )
        self._machines[machine.name] = machine
        self.events.append(MachineOrdered(machine=machine))
        return Launching(host=machine.name)

    def _is_expired(self, machine: Machine, config: PoolPlatform) -> bool:
        return self._now - machine.launched_at >= timedelta(seconds=config.max_age_seconds)

    def _wait_for_machine(self, spec: MachineSpec) -> Waiting:
        count = len(self._machines)
        return Waiting(message=machines_used(count, most=spec.max_instances, tag=spec.tag))
