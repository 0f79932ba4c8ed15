"""Remembers which jobs name which controller, and what they ask for together. Pure.

A job that a waiting object's controller makes belongs to that object's workload. Its ownerReference is
not enough to say so, because its tenant may write one: the projector asks what the owner is, and asks
again when that changes. What runs below an owner runs on its quota only as far as that goes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, Final, NamedTuple

from services.classifier.projection.pods.run_by_jobs import run_by_jobs
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.quantities import nearest_amount
from shared.contracts.kueue.assignments import counts_given
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.contracts.refs import ObjectRef
from shared.integrations import Integration, Integrations

_COUNT: Final = ""
"""Stands for the number of pods among their resources."""

Amounts = Mapping[str, int]
"""Resource to what all pods together ask for, as quota counts it."""

Pods = Mapping[str, int]
"""What a pod asks for, in one word (`kind_of_pod`), to the number of such pods that run or end."""

ENDING: Final = "ending "
"""Before what a pod asks for: those of these pods that were told to end."""

_OTHERS: Final = "(others)"
"""Stands for pods that ask for what no pod set of their owner does."""

_BEYOND_MAX: Final = 4
"""Pods that count beyond those of a pod set, for each of its own: more end only until its job is stopped."""

_NAMES_MAX: Final = 64
"""Pod sets that are remembered of one job: more than any has at a time."""

UNCOUNTABLE: Final[Amounts] = {"(what cannot be counted)": 1}
"""What a job asks for that cannot be read: no owner has it to give."""


class _Controlled(NamedTuple):
    observed: Observed
    integration: Integration


class Nesting:
    """The jobs of one cluster that name a controller, by the controller's uid."""

    def __init__(self, integrations: Integrations) -> None:
        self._integrations = integrations
        self._children: dict[str, dict[ObjectRef, _Controlled]] = {}
        self._controller_of: dict[ObjectRef, str] = {}
        self._refs: dict[str, ObjectRef] = {}
        """Uid of each of these jobs to the job: it may control others itself."""

        self._below: dict[str, tuple[bool, Amounts, Pods]] = {}
        """Uid of each of these jobs to whether something below it ran when it was read, what that asked for,
        and its pods."""

        self._running = _Tally()
        """What runs on its controller's quota."""

        self._asking = _Tally()
        """What names no queue, and so cannot wait by itself: what it asks for until it has ended."""

        self._pods = _Tally()
        """Of the same jobs: the pods that run or end, by what each of them asks for."""

        self._most: dict[str, dict[str, PodSet]] = {}
        """Uid of each job whose pods may outlive its spec to the pod sets that it has had, by name."""

        self._beyond: set[str] = set()
        """Uids of owners below which more is asked for than they ask for."""

        self._running_on: set[str] = set()
        """Uids of owners that are held or have ended while jobs below them run or end."""

        self._leavers: dict[str, set[str]] = {}
        """Uid of an owner to the jobs that were let out of it, and still run as they did below it."""

        self._left: dict[str, str] = {}
        """Uid of each of these jobs to that of its owner."""

        self._may_leave: set[ObjectRef] = set()
        """Those of these jobs that can wait by themselves."""

        self._covering: set[str] = set()
        """Uids of owners that cover what they control: managed, and with quota."""

        self._moved: set[str] = set()
        """Uids of jobs that were managed by themselves and then became nested: once, so that jobs that
        name each other in a circle come to rest."""

    def observe(
        self,
        job_ref: ObjectRef,
        controller: str,
        observed: Observed,
        integration: Integration,
        *,
        may_leave: bool,
    ) -> None:
        """Record a job and the uid of the controller that it names; empty: it names none.

        `may_leave`: it can wait by itself, if its controller has no quota for it.
        """
        if self._controller_of.get(job_ref) != controller:
            self.forget(job_ref)
        if controller and controller != observed.uid:
            if may_leave:
                self._may_leave.add(job_ref)
            else:
                self._may_leave.discard(job_ref)
            self._controller_of[job_ref] = controller
            children = self._children.setdefault(controller, {})
            if (before := children.get(job_ref)) is not None:
                self._refs.pop(before.observed.uid, None)
            children[job_ref] = _Controlled(observed, integration)
            self._refs[observed.uid] = job_ref

    def forget(self, job_ref: ObjectRef, tombstone: Observed | None = None) -> None:
        """Forget a job that is gone. `tombstone`: not if it is that of an earlier job of the name."""
        if tombstone is not None and tombstone.deleted:  # What departs has pods still.
            self._most.pop(tombstone.uid, None)
        controller = self._controller_of.get(job_ref)
        if controller is None:
            return
        children = self._children[controller]
        known = children[job_ref].observed
        if tombstone is not None and not tombstone.ends(known.uid, known.resource_version):
            return
        self.use(job_ref, {})
        self.ask_no_more(job_ref)
        self._below.pop(known.uid, None)
        self._refs.pop(known.uid, None)
        self._may_leave.discard(job_ref)
        del self._controller_of[job_ref]
        del children[job_ref]
        if tombstone is not None:
            self._moved.discard(known.uid)
            self._beyond.discard(known.uid)
            self._running_on.discard(known.uid)
        if not children:
            del self._children[controller]

    def most_of(self, job: Body, integration: Integration, now: list[PodSet]) -> list[PodSet]:
        """Return what a job asks for; of a kind whose pods outlive its status the most since it was let go.

        Pods may run on when its user has taken them out of the spec, or asks for others in their place.
        """
        uid = job["metadata"]["uid"]
        if not integration.pods_outlive_status:
            return now
        if integration.held(job) and not integration.active(job):
            self._most.pop(uid, None)
            return now
        most = self._most.setdefault(uid, {})
        for pod_set in now:
            if pod_set.name in most or len(most) < _NAMES_MAX:
                most[pod_set.name] = _covering(pod_set, most.get(pod_set.name, pod_set))
        return list(most.values())

    def use(self, job_ref: ObjectRef, amounts: Amounts) -> bool:
        """Record what a child asks for while it runs; nothing once it does not.

        Returns whether it is more of something than before.
        """
        controller = self._controller_of.get(job_ref)
        return controller is not None and self._running.record(controller, job_ref, amounts)

    def ask(self, job_ref: ObjectRef, uid: str, amounts: Amounts, pods: Pods) -> None:
        """Record what a child that names no queue asks for, until it has ended, and its pods that run.

        Of one that has children itself, what those ask for is recorded where it is more, and their pods.
        """
        controller = self._controller_of.get(job_ref)
        if controller is None:
            return
        below = self._asking.sums.get(uid, {})
        more = {name: amount for name, amount in below.items() if amount > amounts.get(name, 0)}
        self._asking.record(controller, job_ref, {**amounts, **more})
        self._pods.record(controller, job_ref, dict(self._pods.sums.get(uid) or pods))

    def ask_no_more(self, job_ref: ObjectRef) -> None:
        """Record that a child asks for nothing that its controller has to have."""
        self.ask(job_ref, "", {}, {})

    def leave(self, owner: str, uid: str, *, runs: bool) -> bool:
        """Record a job that was let out of an owner, as long as it runs. Returns whether that is news."""
        if runs == (uid in self._left):
            return False
        if not runs:
            return bool(self.forget_leaver(uid))
        self._left[uid] = owner
        self._leavers.setdefault(owner, set()).add(uid)
        return True

    def forget_leaver(self, uid: str) -> str:
        """Forget a job that was let out and has stopped; return the uid of its owner, empty for none."""
        owner = self._left.pop(uid, "")
        if owner:
            self._leavers[owner].discard(uid)
            if not self._leavers[owner]:
                del self._leavers[owner]
        return owner

    def pods_beyond(self, owner: WorkloadState) -> int:
        """How many pods more children without a queue ask for than their owner does; 0: it is no more.

        At least one where their pods are larger. A controller makes no such children: somebody changed one,
        or deletes pods so fast that more of them end than run at once.
        """
        asked = self._asking.sums.get(owner.uid)
        own = _summed(self._run_by_jobs(owner), {}, reclaims=False) if asked else {}
        more = self._pods_replaced(owner)
        if asked is not None and any(amount > own.get(name, 0) for name, amount in asked.items()):
            more = max(1, more, asked.get(_COUNT, 0) - own.get(_COUNT, 0))
        if more:
            self._beyond.add(owner.uid)
        else:
            self._beyond.discard(owner.uid)
        return more

    def _pods_replaced(self, owner: WorkloadState) -> int:
        """How many pods run or end below a job beyond its own, where they are replaced too fast."""
        if owner.held:
            return 0
        pods = self._pods.sums.get(owner.uid, {})
        own, ending = Counter[str](), Counter[str]()
        for pod_set in self._run_by_jobs(owner):
            own[kind_of_pod(pod_set)] += max(0, pod_set.count - pod_set.reclaimable)
        own[_OTHERS] = own.total()
        for kind, count in pods.items():
            if kind.startswith(ENDING):
                known = kind.removeprefix(ENDING)
                ending[known if known in own else _OTHERS] += count
        if all(count <= own[kind] for kind, count in ending.items()):
            return 0
        return sum(more for _, _, more in self._pod_sets_beyond(owner))

    def _pod_sets_beyond(self, owner: WorkloadState) -> Iterator[tuple[str, int, int]]:
        """Yield pod sets of which more pods run or end below an owner than have quota: name, own, more.

        Of pod sets whose pods ask for the same, the first has all that are more. Pods that ask for what no
        pod set does take the room of those that have too few; the first pod set has what is left of them, as
        many of its pods as ask for that much. A user who names the owner in jobs of his own keeps others out
        by `_BEYOND_MAX` at most.
        """
        pods = self._pods.sums.get(owner.uid, {})
        others = {kind: count for kind, count in pods.items() if not kind.startswith(ENDING)}
        first: dict[str, tuple[str, int]] = {}
        more: dict[str, int] = {}
        pod_sets = self._run_by_jobs(owner) if others else []
        for pod_set in pod_sets:
            kind, own = kind_of_pod(pod_set), max(0, pod_set.count - pod_set.reclaimable)
            name, _ = first.setdefault(kind, (pod_set.name, own))
            more[name] = more.get(name, others.pop(kind, 0)) - own
        left = sum(min(0, count) for count in more.values())
        left += _as_many_of(pod_sets[0], others) if pod_sets else 0
        for place, (name, own) in enumerate(first.values()):
            beyond = max(0, more[name]) + (max(0, left) if place == 0 else 0)
            if beyond := min(beyond, _BEYOND_MAX * max(1, own)):
                yield name, own, beyond

    def _run_by_jobs(self, owner: WorkloadState) -> list[PodSet]:
        """The pod sets of an owner that jobs below it run."""
        if (job := owner.owner) is None:
            return owner.pod_sets
        integration = self._integrations.find(group=job.group, plural=job.plural)
        return run_by_jobs(integration, owner.pod_sets)

    def middle(self, uid: str) -> _Controlled | None:
        """The job of that uid, if it names a controller: it may be between that one and others."""
        job_ref = self._refs.get(uid)
        return None if job_ref is None else self._children[self._controller_of[job_ref]][job_ref]

    def read(self, uid: str) -> None:
        """Note what is below a job that names a controller, which is read now."""
        if uid in self._refs:
            self._below[uid] = self._what_is_below(uid)

    def is_news(self, uid: str) -> bool:
        """Whether what is below a job asks for or runs more or less than when the job was read."""
        return self._what_is_below(uid) != self._below.get(uid, (False, {}, {}))

    def _what_is_below(self, uid: str) -> tuple[bool, Amounts, Pods]:
        asked, pods = self._asking.sums.get(uid, {}), self._pods.sums.get(uid, {})
        return self.has_running(uid), dict(asked), dict(pods)

    def controller_of(self, job_ref: ObjectRef) -> str:
        """Uid of the controller that a job named when it was observed last; empty if none."""
        return self._controller_of.get(job_ref, "")

    def with_children(self, owner: WorkloadState, last: WorkloadState | None) -> WorkloadState:
        """Return the state of an owner with what follows from the jobs below it. `last`: the one before."""
        if last is not None and last.uid == owner.uid and last.phase == "finished":
            return owner  # Its quota is given back already.
        if owner.finish is None and (more := self.pods_beyond(owner)):
            owner = owner.with_larger_children(more)
        owner = owner.with_running_pods(self._running_pods(owner, last) or {})
        if self._run_on(owner):
            self._running_on.add(owner.uid)
            return owner.with_active_children()
        self._running_on.discard(owner.uid)
        return owner

    def has_changed(self, owner: WorkloadState) -> bool:
        """Whether `with_children` may return something else than for this state of the owner."""
        was_beyond = owner.uid in self._beyond
        differs = self._run_on(owner) != (owner.uid in self._running_on)
        differs = differs or self._running_pods(owner, owner) != owner.running_pods
        return was_beyond or self.pods_beyond(owner) > 0 or differs

    def _running_pods(
        self, owner: WorkloadState, last: WorkloadState | None
    ) -> dict[str, int] | None:
        """Return the pods of each pod set of which more run or end below an owner than have quota.

        While the owner is held, the number does not go down before they are gone: a state for each pod that
        ends would be a message for each. `last`: the state before.
        """
        if owner.uid not in self._pods.sums:
            return None
        found: dict[str, int] = {}
        if owner.held and last is not None and last.uid == owner.uid:
            found |= last.running_pods or {}
        for name, own, more in self._pod_sets_beyond(owner):
            found[name] = max(found.get(name, 0), own + more)
        return found or None

    def _run_on(self, owner: WorkloadState) -> bool:
        """Whether jobs below an owner run or end although it is held or has ended.

        Its own status counts them no more: a JobSet counts the Jobs of which pods are active, and not those
        whose pods still end.
        """
        return (owner.held or owner.finish is not None) and self.has_running(owner.uid)

    def fits(self, controller: str, given: Amounts) -> bool:
        """Whether what runs below a controller is no more than what the controller was given."""
        total = self._running.sums.get(controller, {})
        return all(amount <= given.get(resource, 0) for resource, amount in total.items())

    def fits_in(self, owner: WorkloadState) -> bool:
        """Whether what runs below an owner is no more than what it has in this state."""
        counts = counts_given(owner.admission or {})
        return self.fits(owner.uid, _summed(self._run_by_jobs(owner), counts))

    def has_running(self, controller: str) -> bool:
        """Whether jobs run below a controller, or run as they did when they were let out of it."""
        return controller in self._running.sums or controller in self._leavers

    def leaving(self, controller: str) -> list[_Controlled]:
        """The jobs that run on a controller's quota and can wait by themselves, the last created first."""
        refs = self._running.children(controller) & self._may_leave
        children = self._children.get(controller, {})
        return sorted((children[ref] for ref in refs), key=_age, reverse=True)

    def may_move(self, uid: str) -> bool:
        """Whether a job that is managed by itself may become nested; true once."""
        if uid in self._moved:
            return False
        self._moved.add(uid)
        return True

    def changed_owner(self, uid: str, *, covers: bool | None) -> list[_Controlled]:
        """Record whether an owner covers its children; None: it is not managed, or gone.

        Returns the children to read again, none if nothing changed for them.
        """
        if covers is None:
            self._beyond.discard(uid)
        if uid not in self._children and covers is None:
            self._covering.discard(uid)
            return []
        before = uid in self._covering
        if covers:
            self._covering.add(uid)
        else:
            self._covering.discard(uid)
        return list(self._children.get(uid, {}).values()) if before != bool(covers) else []


class _Tally:
    """What the children of each controller ask for, added up."""

    def __init__(self) -> None:
        self.sums: dict[str, dict[str, int]] = {}
        """By the controller's uid; only of those with children that ask for something."""

        self._each: dict[str, dict[ObjectRef, Amounts]] = {}

    def children(self, controller: str) -> KeysView[ObjectRef]:
        """The children of a controller that ask for something."""
        return self._each.get(controller, {}).keys()

    def record(self, controller: str, job_ref: ObjectRef, amounts: Amounts) -> bool:
        """Record what one child asks for; nothing takes it out. Returns whether it is more than before."""
        each, total = self._each.get(controller, {}), self.sums.get(controller, {})
        before: Amounts = each.pop(job_ref, {})
        if amounts:
            each[job_ref] = amounts
        for resource in {*before, *amounts}:
            more = amounts.get(resource, 0) - before.get(resource, 0)
            total[resource] = total.get(resource, 0) + more
            if not total[resource]:
                del total[resource]
        if each:
            self._each[controller], self.sums[controller] = each, total
        else:
            self._each.pop(controller, None)
            self.sums.pop(controller, None)
        return any(amount > before.get(resource, 0) for resource, amount in amounts.items())


def amounts_of(pod_sets: Iterable[PodSet]) -> dict[str, int]:
    """Return what pod sets ask for together."""
    return _summed(pod_sets, {})


def kind_of_pod(pod_set: PodSet) -> str:
    """Return what a pod of this pod set asks for as one word, the same for all that ask for the same."""
    return " ".join(f"{resource}={text}" for resource, text in sorted(pod_set.requests.items()))


def _as_many_of(pod_set: PodSet, pods: Pods) -> int:
    """Return how many pods of a pod set ask for as much as these together."""
    total = Counter[str]()
    for kind, count in pods.items():
        for resource, text in (one.split("=", 1) for one in kind.split()):
            total[resource] += count * nearest_amount(resource, text)
    each = {name: nearest_amount(name, text) for name, text in pod_set.requests.items()}
    return max((-(-total[name] // amount) for name, amount in each.items() if amount), default=0)


def _summed(
    pod_sets: Iterable[PodSet], counts: Mapping[Any, Any], *, reclaims: bool = True
) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        admitted = counts.get(pod_set.name)
        pods = pod_set.count if admitted is None else min(pod_set.count, int(admitted))
        pods = max(0, pods - pod_set.reclaimable) if reclaims else pods
        each = {
            resource: nearest_amount(resource, text) for resource, text in pod_set.requests.items()
        }
        for resource, amount in {_COUNT: 1, **each}.items():
            total[resource] = total.get(resource, 0) + pods * amount
    return total


def _covering(one: PodSet, other: PodSet) -> PodSet:
    """Return a pod set with the most that these two ask for."""
    requests = dict(one.requests)
    for resource, text in other.requests.items():
        if nearest_amount(resource, text) > nearest_amount(resource, requests.get(resource, "0")):
            requests[resource] = text
    return one.with_requests(requests).with_count(max(one.count, other.count))


def _age(child: _Controlled) -> tuple[str, str]:
    body = child.observed.body
    created = "" if body is None else body["metadata"].get("creationTimestamp")
    return str(created or ""), child.observed.uid
