"""Who gets which host: state and facts in, the next state and what to tell everybody out.

Pure: the same input gives the same output, and a round that changes nothing may be repeated. The
rules are those of `research/tekton.md` 2.6 to 2.9 without the defects of 2.12. What differs, on
purpose: waiters are served strictly in order of age; a machine counts against the maximum from its
order until it is proved gone, old machines of a pool included; a pool does not order a second
machine for somebody whose machine is still starting.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from services.provisioner.allocation.ledger import (
    Access,
    Book,
    Machine,
    MachineState,
    Seat,
    SeatState,
    is_kept,
    machine_name,
)
from services.provisioner.allocation.results import (
    Broken,
    Cleaned,
    Failed,
    Gone,
    Launch,
    Launching,
    Outcome,
    Placed,
    Prepared,
    Preparing,
    Refused,
    Release,
    SeatReport,
    Sighting,
    Step,
    Terminate,
    Unusable,
    Up,
    Verdict,
    Waiting,
)
from services.provisioner.config.host_config import (
    DynamicPlatform,
    Host,
    LocalPlatform,
    MachineSpec,
    PlatformConfig,
    PoolPlatform,
    StaticPlatform,
)
from services.provisioner.task_runs.requests import Request
from services.provisioner.task_runs.ssh_secret import LOCALHOST

__all__ = ["MACHINES_PER_REQUEST_MAX", "OLD", "allocate"]

OLD: Final = "it is old and idle"
MACHINES_PER_REQUEST_MAX: Final = 3
"""Machines that come up broken before the TaskRun that they were ordered for is given up."""


def allocate(
    *,
    book: Book,
    config: PlatformConfig | str,
    requests: Iterable[Request],
    settled: frozenset[str],
    sightings: Mapping[str, Sighting],
    busy_elsewhere: Mapping[str, int],
    now: datetime,
    reports: Mapping[str, SeatReport] | None = None,
    access: Callable[[Host | MachineSpec], Access | None] = lambda _: None,
) -> Outcome:
    """One round for one platform.

    `config`: a text means that it cannot be served, and why. `requests`: every TaskRun of the platform
    that has not ended. `settled`: those among them that have their secret, so they get no second
    machine if theirs vanishes. `busy_elsewhere`: places on static hosts that TaskRuns of other
    platforms hold, since a host may have moved to another platform. `reports`: what was done on hosts,
    by TaskRun uid. `access`: how a host or a platform's machines are entered; None: nobody has to.
    """
    active = {request.uid: request for request in sorted(requests, key=lambda r: r.turn)}
    round_ = _Round(book, config, active, settled, busy_elsewhere, now, access)
    round_.release_ended()
    round_.take_reports(reports or {})
    round_.take(sightings)
    round_.give_up_late()
    round_.hand_on()
    round_.retire()
    verdicts = {
        uid: round_.verdict(request)
        for uid, request in active.items()
        if (uid not in settled and not request.keeps_only) or uid in round_.seats
    }
    return Outcome(book=round_.book(), verdicts=verdicts, steps=tuple(round_.steps))


class _Round:
    """A book while it is being written."""

    def __init__(
        self,
        book: Book,
        config: PlatformConfig | str,
        active: Mapping[str, Request],
        settled: frozenset[str],
        busy_elsewhere: Mapping[str, int],
        now: datetime,
        access: Callable[[Host | MachineSpec], Access | None],
    ) -> None:
        self._access = access
        self._before = book
        self._config = config
        self._active = active
        self._settled = settled
        self._busy_elsewhere = busy_elsewhere
        self._now = now
        self.seats = dict(book.seats)
        self._machines = dict(book.machines)
        self._attempts = dict(book.attempts)
        self._refusals = dict(book.refusals)
        self._failed_hosts = dict(book.failed_hosts)
        self.steps: list[Step] = []
        self._booting_places = -1
        """Places on machines of the pool that are starting, for those who come; -1: not counted."""

    def book(self) -> Book:
        """The next state; the very object that came in if nothing changed."""
        after = replace(
            self._before,
            seats=self.seats,
            machines=self._machines,
            attempts=self._attempts,
            refusals=self._refusals,
            failed_hosts=self._failed_hosts,
        )
        return self._before if after == self._before else after

    # --- endings ---

    def release_ended(self) -> None:
        """A TaskRun that ended gives its place back, and is forgotten."""
        for uid, seat in list(self.seats.items()):
            if uid in self._active:
                continue
            machine = self._machines.get(seat.host)
            alone = machine is not None and not machine.shared
            if seat.access is None or seat.state == "held" or alone:
                self._release(seat)  # Nobody was there, or the machine goes with all that is on it.
            elif seat.state != "cleaning":
                self.seats[uid] = replace(seat, state="cleaning", sealed="")
        memories: tuple[dict[str, Any], ...] = (
            self._attempts,
            self._refusals,
            self._failed_hosts,
        )
        for memory in memories:
            for uid in [uid for uid in memory if uid not in self._active]:
                del memory[uid]

    def _release(self, seat: Seat) -> None:
        del self.seats[seat.uid]
        self.steps.append(Release(uid=seat.uid, host=seat.host))

    def _leave(self, seat: Seat) -> None:
        """Its TaskRun goes elsewhere, but an earlier visit may have made its user there."""
        machine = self._machines.get(seat.host)
        if machine is not None and not machine.shared:
            self._release(seat)
            return
        del self.seats[seat.uid]
        left = f"{seat.uid}@{seat.host}"
        self.seats[left] = replace(seat, uid=left, state="cleaning")

    def take_reports(self, reports: Mapping[str, SeatReport]) -> None:
        """Take in what was done on hosts."""
        for uid, seat in list(self.seats.items()):
            match reports.get(uid):
                case Prepared(sealed=sealed) if seat.state == "preparing":
                    self.seats[uid] = replace(seat, state="ready", sealed=sealed)
                case Unusable(reason=reason) if seat.state == "preparing":
                    self._leave(seat)
                    self._avoid(seat, reason)
                case Cleaned() if seat.state == "cleaning":
                    self._release(seat)
                case _:
                    pass  # Nothing new, or about what it was before.

    def _avoid(self, seat: Seat, reason: str) -> None:
        """A host that could not be prepared is not tried again; a machine of its own was the only one."""
        failed = self._failed_hosts.get(seat.uid, ())
        self._failed_hosts[seat.uid] = (*failed, seat.host)
        machine = self._machines.get(seat.host)
        if machine is not None and not machine.shared:
            self._refuse(seat.uid, f"Error allocating host: failed to provision host: {reason}")

    def take(self, sightings: Mapping[str, Sighting]) -> None:
        """Take in what the providers said."""
        for name, machine in list(self._machines.items()):
            match sightings.get(name):
                case None:
                    pass
                case Up(address=address) if machine.state == "launching":
                    self._came_up(replace(machine, state="running", address=address))
                case Broken(reason=reason) if machine.state == "launching":
                    self._terminate(machine, f"it came up broken: {reason}")
                    self._try_another(machine, reason)
                case Refused(reason=reason) if machine.state == "launching":
                    self._terminate(machine, f"the provider refused it: {reason}")
                    self._refuse(machine.holder, f"Error allocating host: {reason}")
                case Gone():
                    self._vanished(machine)
                case Up() | Broken() | Refused():
                    pass  # Said before the machine was told to go, or twice.
                case sighting:
                    assert_never(sighting)

    def _came_up(self, machine: Machine) -> None:
        self._machines[machine.name] = machine
        holder = self._active.get(machine.holder)
        if not machine.shared and holder is not None and self._wants(holder):
            spec = self._spec()
            self._seat(
                holder,
                host=machine.name,
                address=machine.address,
                access=self._access(spec) if spec is not None else None,
            )

    def _vanished(self, machine: Machine) -> None:
        del self._machines[machine.name]
        for uid in [uid for uid, seat in self.seats.items() if seat.host == machine.name]:
            del self.seats[uid]
            self.steps.append(Release(uid=uid, host=machine.name))
        if machine.state == "launching":
            self._try_another(machine, "it vanished")

    def _try_another(self, machine: Machine, reason: str) -> None:
        """The next one is ordered further down, unless too many went wrong."""
        if self._attempts.get(machine.holder, 0) >= MACHINES_PER_REQUEST_MAX:
            self._refuse(
                machine.holder,
                f"Error allocating host: {MACHINES_PER_REQUEST_MAX} machines failed to start, "
                f"the last because {reason}",
            )

    def give_up_late(self) -> None:
        """A machine that has no address in time goes, and its TaskRun with it."""
        for machine in list(self._machines.values()):
            if machine.state == "launching" and self._now >= machine.deadline:
                self._terminate(machine, "it has no address in time")
                self._refuse(
                    machine.holder,
                    "Error allocating host: timed out waiting for instance address",
                )

    def hand_on(self) -> None:
        """A TaskRun whose run had a place kept for it takes that one, whoever else waits."""
        for request in self._active.values():
            if request.reserved or not request.workload or not self._wants(request):
                continue
            seat = self._kept_for(request)
            if seat is not None:
                del self.seats[seat.uid]
                self._seat(request, host=seat.host, address=seat.address, access=seat.access)
            self._take_machine(request, seat)

    def _kept_for(self, request: Request) -> Seat | None:
        failed = self._failed(request)
        for seat in self.seats.values():
            whose = (seat.namespace, seat.name)
            if seat.state == "held" and whose == (request.namespace, request.workload):
                return None if seat.host in failed else seat
        return None

    def _take_machine(self, request: Request, seat: Seat | None) -> None:
        """The machine of its place is its own now; without a place, one that starts for its run."""
        run = f"{request.namespace}:{request.workload}"
        for machine in self._machines.values():
            kept = is_kept(machine.holder) and machine.task_run == run
            starts = machine.state == "launching" and kept
            if machine.shared or not (machine.name == seat.host if seat else starts):
                continue
            self._machines[machine.name] = replace(
                machine, holder=request.uid, task_run=f"{request.namespace}:{request.name}"
            )
            return

    def retire(self) -> None:
        """Let go of the machines that nobody will use (again)."""
        for machine in list(self._machines.values()):
            if machine.state == "terminating":
                continue
            reason = self._useless(machine)
            if reason is not None:
                self._terminate(machine, reason)

    def _useless(self, machine: Machine) -> str | None:
        if any(seat.host == machine.name for seat in self.seats.values()):
            return None
        if not machine.shared:
            holder = self._active.get(machine.holder)
            if holder is None:
                return "its TaskRun has ended"
            if machine.state == "launching" and self._wants(holder) and self._spec() is not None:
                return None
            return "its TaskRun does not use it"
        if not isinstance(self._config, PoolPlatform):
            return "the platform is no pool any more"
        if machine.state == "running" and self._is_old(machine, self._config):
            return OLD
        return None

    def _terminate(self, machine: Machine, reason: str) -> None:
        if machine.state != "terminating":
            self._machines[machine.name] = replace(machine, state="terminating")
            self.steps.append(Terminate(name=machine.name, reason=reason))

    def _refuse(self, uid: str, message: str) -> None:
        request = self._active.get(uid)
        if request is not None and self._wants(request):
            self._refusals[uid] = message

    def _wants(self, request: Request) -> bool:
        uid = request.uid
        return uid not in self.seats and uid not in self._refusals and uid not in self._settled

    # --- beginnings, called in the order of the waiters ---

    def verdict(self, request: Request) -> Verdict:
        """What `request` is told; it gets a place or a machine if it is its turn."""
        seat = self.seats.get(request.uid)
        if seat is not None:
            return _told(seat)
        refusal = self._refusals.get(request.uid)
        if refusal is not None:
            return Failed(message=refusal)
        match self._config:
            case str(problem):
                return Failed(message=problem)
            case LocalPlatform():
                return Placed(host=LOCALHOST, address="")
            case StaticPlatform() as config:
                return self._static(request, config)
            case DynamicPlatform() as config:
                return self._dynamic(request, config)
            case PoolPlatform() as config:
                return self._pool(request, config)
            case _:
                assert_never(self._config)

    def _static(self, request: Request, config: StaticPlatform) -> Verdict:
        places = {
            host.name: (
                host.address,
                host.concurrency - self._busy_elsewhere.get(host.name, 0),
                self._access(host),
            )
            for host in config.hosts
        }
        return self._sit_down(request, places) or Waiting(
            message=f"all hosts of {config.platform} are busy"
        )

    def _dynamic(self, request: Request, config: DynamicPlatform) -> Verdict:
        for machine in self._machines.values():
            if machine.holder == request.uid and machine.state == "launching":
                return Launching(host=machine.name)
        if self._failed(request):
            return Failed(message="Error allocating host: failed to provision host")
        if len(self._machines) >= config.machines.max_instances:
            return Waiting(message=self._full(config.machines))
        machine = self._order(request, config.machines, shared=False)
        return Launching(host=machine.name)

    def _pool(self, request: Request, config: PoolPlatform) -> Verdict:
        offered = {
            machine.name: (machine.address, config.concurrency, self._access(config.machines))
            for machine in self._shared("running")
            if not self._is_old(machine, config)
        }
        verdict = self._sit_down(request, offered) if offered else None
        if isinstance(verdict, Placed | Preparing):
            return verdict
        starting = self._shared("launching")
        if self._booting_places < 0:
            self._booting_places = len(starting) * config.concurrency
        if self._booting_places == 0 and len(self._machines) < config.machines.max_instances:
            machine = self._order(request, config.machines, shared=True)
            self._booting_places += config.concurrency - 1
            return Launching(host=machine.name)
        if self._booting_places == 0:
            return verdict or Waiting(message=self._full(config.machines))
        self._booting_places -= 1
        for machine in starting:
            if machine.holder == request.uid:
                return Launching(host=machine.name)
        return Waiting(message=f"a machine of {config.platform} is starting")

    def _shared(self, state: MachineState) -> list[Machine]:
        return [m for m in self._machines.values() if m.shared and m.state == state]

    def _sit_down(
        self, request: Request, places: Mapping[str, tuple[str, int, Access | None]]
    ) -> Placed | Preparing | Failed | None:
        """The host with the most free places; None if there is none now."""
        failed = self._failed(request)
        usable = [name for name in sorted(places) if name not in failed]
        if not usable:
            names = ",".join(sorted(places))
            return Failed(
                message="Error allocating host: "
                f"all available hosts for the platform have failed: {names}"
            )
        taken = dict.fromkeys(usable, 0)
        for seat in self.seats.values():
            if seat.host in taken:
                taken[seat.host] += 1
        # `max` takes the first of equals: the order of names decides ties.
        best = max(usable, key=lambda name: places[name][1] - taken[name])
        address, concurrency, access = places[best]
        if concurrency <= taken[best]:
            return None
        return _told(self._seat(request, host=best, address=address, access=access))

    def _failed(self, request: Request) -> frozenset[str]:
        return frozenset((*request.failed_hosts, *self._failed_hosts.get(request.uid, ())))

    def _seat(self, request: Request, *, host: str, address: str, access: Access | None) -> Seat:
        self.seats[request.uid] = seat = Seat(
            uid=request.uid,
            namespace=request.namespace,
            name=request.name,
            host=host,
            address=address,
            access=access,
            state=_first_state(request, access),
        )
        return seat

    def _order(self, request: Request, spec: MachineSpec, *, shared: bool) -> Machine:
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
        self.steps.append(Launch(machine=machine))
        return machine

    # --- asking ---

    def _spec(self) -> MachineSpec | None:
        match self._config:
            case DynamicPlatform(machines=spec) | PoolPlatform(machines=spec):
                return spec
            case _:
                return None

    def _is_old(self, machine: Machine, config: PoolPlatform) -> bool:
        return self._now - machine.launched_at >= timedelta(seconds=config.max_age_seconds)

    def _full(self, spec: MachineSpec) -> str:
        return (
            f"{len(self._machines)} of {spec.max_instances} maxInstances running for {spec.tag}, "
            "waiting for existing tasks to finish"
        )


def _first_state(request: Request, access: Access | None) -> SeatState:
    if request.reserved:
        return "held"
    return "ready" if access is None else "preparing"


def _told(seat: Seat) -> Placed | Preparing:
    if seat.state == "preparing":
        return Preparing(host=seat.host, address=seat.address)
    return Placed(host=seat.host, address=seat.address, sealed=seat.sealed)
