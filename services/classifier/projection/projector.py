"""Joins jobs with their Workload objects and says which workloads changed. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog

from services.classifier.projection.cluster_objects import Surroundings
from services.classifier.projection.machine_slots import Machines
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.project import (
    is_evicted,
    project_foreign,
    project_job,
    tombstone,
)
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import may_be_of, workload_name
from shared.contracts.messages.effects import HostState, PlatformOffer
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.messages.workloads import WorkloadState
from shared.integrations import (
    INTEGRATIONS,
    Integration,
    Integrations,
    queue_of,
)

__all__ = ["Change", "Projector", "asks"]

log = structlog.get_logger(__name__)

_Name = tuple[str, str]
"""Namespace and name of a Workload."""

_ASKS = (
    "queue",
    "priority",
    "priority_class",
    "pod_sets",
    "active",
    "inadmissible",
    "unresolved",
    "on_hold",
    "max_execution_seconds",
    "coschedule",
)


_RECORDED: Final = frozenset(
    {
        "version",
        "admission",
        "admitted_at",
        "evicted_at",
        "evicted_reason",
        "evicted",
        "traceparent",
    }
)
"""What a Workload object says of a decision that was written into it; `held` besides, if no job owns it."""

_WHEN_READ: Final = frozenset({"generation", "traceparent"})
"""What only says when a state was read."""


class Change(NamedTuple):
    """A state to publish."""

    state: WorkloadState
    is_echo: bool
    """All that is new is that a decision of ours was written down. Nobody waits to hear that; it is
    for who comes when the log of decisions is lost."""


def asks(state: WorkloadState) -> tuple[object, ...]:
    """The part of a state that a decision answers; a change of it is a new generation."""
    return tuple(getattr(state, field) for field in _ASKS)


class Projector:
    """The workloads of one cluster. Take in what was observed, then ask for `changes`."""

    def __init__(self, cluster: str, policy: Policy = DEFAULT_POLICY) -> None:
        self._cluster = cluster
        self._policy = policy
        self._around = Surroundings()
        self._machines = Machines()
        self._integrations = Integrations()
        self._jobs: dict[_Name, tuple[Integration, Object]] = {}
        """By the name of the Workload that stands for the job."""

        self._names: dict[tuple[str, str, str], _Name] = {}
        """(plural_group, namespace, job name) to the name of its Workload."""

        self._elsewhere: dict[tuple[str, str, str], tuple[Integration, Observed]] = {}
        """Jobs in namespaces that are not managed, by the same: a label of a namespace may change."""

        self._workloads: dict[_Name, Object] = {}
        self._published: dict[_Name, WorkloadState] = {}
        self._dirty: dict[_Name, None] = {}  # An ordered set: in the order of the changes.

    @staticmethod
    def watched() -> tuple[Kind, ...]:
        """Every kind that a projector wants to hear of."""
        return (
            *Surroundings.watched(),
            kinds.WORKLOAD,
            kinds.INTEGRATION,
            *(integration.kind for integration in INTEGRATIONS),
        )

    def brought(self) -> tuple[Kind, ...]:
        """Kinds that it wants to hear of because Integration objects speak of them."""
        return self._integrations.brought()

    def recall(self, state: WorkloadState) -> None:
        """Take note of what is on the log already: only what differs from it is a change."""
        self._published[state.namespace, state.name] = state

    def take(self, observed: Observed) -> None:
        """Take in one observation. Repeated ones change nothing."""
        if self._around.knows(observed):
            if self._around.take(observed):
                self._changed_around(observed)
        elif (observed.group, observed.plural) == (kinds.WORKLOAD.group, kinds.WORKLOAD.plural):
            self._take_workload(observed)
        elif (observed.group, observed.plural) == (
            kinds.INTEGRATION.group,
            kinds.INTEGRATION.plural,
        ):
            self._take_integration(observed)
        elif integration := self._integrations.find(group=observed.group, plural=observed.plural):
            self._take_job(observed, integration)

    def take_machines(self, said: HostState | PlatformOffer) -> None:
        """Take in what the provisioner says. Repeated, it changes nothing."""
        if isinstance(said, PlatformOffer):
            if self._machines.take_offer(said):
                self._touch(None)
        elif (name := self._machines.take_host(said)) is not None:
            self._dirty[name] = None

    def settle(self) -> None:
        """All was listed: what is on the log and was not seen is gone."""
        for name, state in self._published.items():
            if state.phase != "gone":
                self._dirty[name] = None

    def changes(self) -> Iterator[Change]:
        """Yield each workload whose state differs from the one last yielded or recalled."""
        while self._dirty:
            name = next(iter(self._dirty))
            del self._dirty[name]
            last = self._published.get(name)
            state = self._project(name, last)
            if state is not None:
                yield Change(state, is_echo=last is not None and _is_echo(last, state))

    def forget(self, namespace: str, name: str) -> None:
        """Make a workload be looked at again: publishing its last change did not succeed."""
        self._dirty[namespace, name] = None

    def _take_integration(self, observed: Observed) -> None:
        """What is said of a kind may have changed: look again at all that is of it."""
        before = {integration.kind.detail: integration for integration in self._integrations}
        self._integrations.take(observed)
        now = {integration.kind.detail: integration for integration in self._integrations}
        for key, name in list(self._names.items()):
            integration = now.get(key[0])
            if integration is None:
                self._drop(key, name)
            elif integration is not before.get(key[0]):
                self._jobs[name] = (integration, self._jobs[name][1])
                self._dirty[name] = None

    def _take_workload(self, observed: Observed) -> None:
        assert observed.namespace is not None
        name = (observed.namespace, observed.name)
        if observed.deleted or observed.object is None:
            self._workloads.pop(name, None)
        else:
            self._workloads[name] = observed.object
        self._dirty[name] = None

    def _take_job(self, observed: Observed, integration: Integration) -> None:
        assert observed.namespace is not None
        key = (integration.kind.detail, observed.namespace, observed.name)
        self._elsewhere.pop(key, None)
        before = self._names.get(key)
        if observed.deleted or observed.object is None:
            # A tombstone of an earlier life does not end the later one.
            if before is not None and self._jobs[before][1]["metadata"]["uid"] == observed.uid:
                self._drop(key, before)
            return
        name = (
            observed.namespace,
            self._prebuilt(observed.object, key)
            or workload_name(
                kind=integration.kind.kind,
                group=integration.kind.group,
                name=observed.name,
                uid=observed.uid,
            ),
        )
        if before is not None and before != name:
            self._drop(key, before)
        if not self._is_ours(observed.object, integration, name):
            if before is not None:
                self._drop(key, before)
            if not self._is_managed(observed.namespace):
                self._elsewhere[key] = (integration, observed)
            return
        self._names[key] = name
        self._jobs[name] = (integration, observed.object)
        self._dirty[name] = None

    def _prebuilt(self, job: Object, key: tuple[str, str, str]) -> str | None:
        """The copy of a job of another cluster goes by the name that its workload has there.

        Unless another job has that name already: then nobody meant it so.
        """
        labels = job["metadata"].get("labels") or {}
        if ORIGIN not in labels or not labels.get(PREBUILT_WORKLOAD):
            return None
        name = str(labels[PREBUILT_WORKLOAD])
        taken = (key[1], name) in self._jobs and self._names.get(key) != (key[1], name)
        return None if taken else name

    def _is_ours(self, job: Object, integration: Integration, name: _Name) -> bool:
        """It asks for a queue; or it did, and a label that was removed does not set it free.

        With `manageJobsWithoutQueueName` what asks for none waits too, unless it runs already.
        """
        if self._integrations.is_nested(job) or not integration.matches(job):
            return False
        if name in self._published or name in self._workloads:
            return True
        if not self._is_managed(name[0]):
            return False
        if queue_of(job):
            return True
        runs = integration.active(job) or integration.finish(job) is not None
        return self._policy.manage_without_queue and not runs

    def _is_managed(self, namespace: str) -> bool:
        return self._policy.manages(namespace, self._around.namespace_labels(namespace))

    def _drop(self, key: tuple[str, str, str], name: _Name) -> None:
        del self._names[key]
        del self._jobs[name]
        self._dirty[name] = None

    def _changed_around(self, observed: Observed) -> None:
        """Look again at what it may concern, also at jobs that were none of ours before."""
        if observed.plural != kinds.NAMESPACE.plural:
            self._touch(observed.namespace)
            return
        for key, (integration, job) in list(self._elsewhere.items()):
            if key[1] == observed.name:
                del self._elsewhere[key]
                self._take_job(job, integration)

    def _touch(self, namespace: str | None) -> None:
        """A class or range changed: look again at every workload that it may concern."""
        for name in (*self._jobs, *self._workloads):
            if namespace is None or name[0] == namespace:
                self._dirty[name] = None

    def _project(self, name: _Name, last: WorkloadState | None) -> WorkloadState | None:
        try:
            state = self._state_now(name, last)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Nothing that one object says may keep all others from being looked at.
            log.exception("an object cannot be read", namespace=name[0], workload=name[1])
            state = last and last.model_copy(update={"inadmissible": f"cannot be read: {error!r}"})
        versions = is_evicted(self._workloads.get(name))
        if state is None or (last is not None and _same(last, state, versions=versions)):
            return None
        if last is not None and last.uid == state.uid:
            grown = asks(last) != asks(state) or _corrected(last, state)
            state = state.model_copy(update={"generation": last.generation + grown})
        self._published[name] = state
        return state

    def _state_now(self, name: _Name, last: WorkloadState | None) -> WorkloadState | None:
        workload = self._workloads.get(name)
        if name in self._jobs:
            integration, job = self._jobs[name]
            its_own = workload is not None and may_be_of(workload, job["metadata"]["uid"])
            return project_job(
                job,
                integration=integration,
                workload=workload if its_own else None,
                cluster=self._cluster,
                name=name[1],
                around=self._around,
                machines=self._machines,
                policy=self._policy,
                last=last,
            )
        self._machines.forget(name)
        if workload is not None and (_was_foreign(last, workload) or not self._is_owned(workload)):
            return project_foreign(
                workload,
                cluster=self._cluster,
                around=self._around,
                policy=self._policy,
                last=last,
            )
        return None if last is None or last.phase == "gone" else tombstone(last)

    def _is_owned(self, workload: Object) -> bool:
        """A job of ours owns it (or did, and the garbage collector has not come by yet)."""
        for owner in workload["metadata"].get("ownerReferences") or []:
            group = owner.get("apiVersion", "").rpartition("/")[0]
            found = self._integrations.find(group=group, kind=owner.get("kind"))
            if owner.get("controller") and found:
                return True
        return False


def _is_echo(last: WorkloadState, state: WorkloadState) -> bool:
    """Whether all that is new is the quota that it was given."""
    if state.admission is None or state.evicted_at is not None:
        return False  # What ends a reservation is waited for.
    written = _RECORDED if state.owner is not None else _RECORDED | {"held"}
    return _alike(last, state, but=written)


def _was_foreign(last: WorkloadState | None, workload: Object) -> bool:
    """It began without a job of ours: claiming one later frees it of nothing that it was given."""
    return last is not None and last.owner is None and last.uid == workload["metadata"]["uid"]


def _corrected(last: WorkloadState, state: WorkloadState) -> bool:
    """Somebody changed a job that waits: what the cluster refused before, it may take now."""
    waited = all(
        one.held and one.phase == "waiting" and one.admission is None for one in (last, state)
    )
    return waited and last.spec_generation != state.spec_generation


def _same(a: WorkloadState, b: WorkloadState, *, versions: bool) -> bool:
    """Equal but for what only says when it was read.

    `versions`: the version counts, since somebody waits to see that an eviction came through (ADR 4).
    """
    return _alike(a, b, but=_WHEN_READ if versions else _WHEN_READ | {"version"})


def _alike(a: WorkloadState, b: WorkloadState, *, but: frozenset[str]) -> bool:
    """Whether they say the same in all fields but these. Makes no copy: it is asked of every event."""
    theirs = vars(b)
    return all(value == theirs[field] for field, value in vars(a).items() if field not in but)
