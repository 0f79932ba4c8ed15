"""Simulates a change for the API: the same simulation as `sluice simulate`, on a copy of the view."""

from collections.abc import Callable
from typing import Final

import structlog

from services.classifier.projection.policy import Policy
from services.console.access.authorizer import ChangeScope, NamespaceFilter
from services.console.documents import CourseFigures, SimulateAnswer, SimulateRequest
from services.console.status_error import ConsoleRule, StatusError
from services.quota.forecast import History, Snapshot
from services.quota.wire.inbound import nanoseconds
from services.whatif.changes import Changes, removable, with_quota
from services.whatif.expected_start import with_forecast
from services.whatif.manifests import Manifest, to_manifest
from services.whatif.report import as_json, outcome_of, submission_sentences
from services.whatif.validation.problems import never_starting, not_admitting
from shared.contracts.kube.bodies import as_body, spec_of
from shared.contracts.kube.kinds import CLUSTER_QUEUE, Kind
from shared.runtime.command import CommandError

__all__ = ["ProposedChange", "with_forecast"]

log = structlog.get_logger(__name__)

TRIALS_MAX: Final = 1_000_000
"""Requests of pod sets times flavors of the longest resource group. A simulation keeps 0.2 kB for each."""


class ProposedChange:
    """A change that a user wants to try out.

    Raises `StatusError` 422 if the request is malformed.
    """

    def __init__(self, request: SimulateRequest, policy: Policy, *, cluster: str) -> None:
        """`cluster`: the one that a request means if it names none."""
        self._policy = policy
        self._cluster = request.cluster or cluster
        self._lost_spoke = request.lost_spoke
        self._manifests: list[Manifest] = []
        self._quotas = request.quotas
        self._removals: list[tuple[Kind, str, str | None]] = []
        try:
            for number, document in enumerate(request.manifests):
                self._manifests.append(to_manifest(f"manifests[{number}]", document))
            self._removals += [removable(name) for name in request.remove]
        except CommandError as error:
            raise _refused(error) from error

    @property
    def scope(self) -> ChangeScope:
        """Which namespaces and which cluster-scoped objects the change is about."""
        namespaces: set[str] = set()
        all_namespaces: list[str] = ["to lose a spoke"] if self._lost_spoke is not None else []
        cluster_scoped: list[str] = []
        for manifest in self._manifests:
            if manifest.kind.namespaced:
                namespaces.add(manifest.object["metadata"].get("namespace") or "default")
            else:
                cluster_scoped.append(f"to change {manifest.title}")
        cluster_scoped += [f"to change ClusterQueue {each.cluster_queue}" for each in self._quotas]
        for kind, name, namespace in self._removals:
            if not kind.namespaced:
                cluster_scoped.append(f"to remove {kind.kind} {name}")
            elif namespace is None:
                all_namespaces.append(f"to remove each {kind.kind} {name}")
            else:
                namespaces.add(namespace)
        return ChangeScope(
            namespaces=frozenset(namespaces),
            all_namespaces=", ".join(all_namespaces),
            cluster_scoped=", ".join(cluster_scoped),
        )

    def simulate(
        self,
        snapshot: Snapshot,
        history: History,
        *,
        shows: NamespaceFilter,
        guesses: bool,
        over: Callable[[], bool],
    ) -> SimulateAnswer:
        """Change a copy, simulate both, and compare. `over` tells whether the time limit is reached.

        Problems of queues are told of namespaces that `shows` allows; with `guesses` they
        tell which names were probably meant.
        Raises `StatusError` 422 for a change that an API server would refuse, 503 at the time limit.
        """
        changes, changed = Changes(policy=self._policy), snapshot.copy()
        try:
            self._apply(changes, snapshot, changed)
            _check_size(snapshot, changed)
            before, after = snapshot.simulation(history), changed.simulation(history)
        except CommandError as error:
            raise _refused(error) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # The code that reads objects expects those that an API server has validated.
            log.warning("cannot read the objects of a simulation", error=repr(error))
            problem = f"an API server would not take this change: {error}"
            raise StatusError(ConsoleRule.CHANGE, problem=problem) from error
        unusable = [problem for problem in changed.problems if problem not in snapshot.problems]
        for simulation in (before, after):
            simulation.run(over=over)
            if over():
                raise StatusError(ConsoleRule.SLOW, retry_after_seconds=60)
        if unusable:
            raise StatusError(ConsoleRule.CHANGE, problem=unusable[0])
        start = nanoseconds(snapshot.at)
        was, is_ = (
            CourseFigures.model_validate(as_json(outcome_of(simulation, start=start)))
            for simulation in (before, after)
        )
        return SimulateAnswer(
            changes=list(dict.fromkeys(changes.notes)),
            before=was,
            after=is_,
            submitted=list(submission_sentences(after, changes.added)),
            problems=[
                *(
                    problem
                    for namespace, problem in not_admitting(
                        before, after, changed, self._cluster, guesses=guesses
                    )
                    if namespace is None or shows(namespace)
                ),
                *never_starting(after, changed, changes.added, guesses=guesses),
            ],
        )

    def _apply(self, changes: Changes, snapshot: Snapshot, changed: Snapshot) -> None:
        for each in self._quotas:
            # One after the other: two may be about one ClusterQueue.
            place = (each.flavor, each.resource)
            manifest = with_quota(
                changed, self._cluster, each.cluster_queue, place, each.nominal_quota
            )
            changes.apply(changed, [manifest], cluster=self._cluster)
        changes.apply(changed, self._manifests, cluster=self._cluster)
        for removal in self._removals:
            changes.remove(changed, *removal)
        if self._lost_spoke is not None:
            changes.lose_spoke(snapshot, changed, self._lost_spoke)


def _check_size(snapshot: Snapshot, changed: Snapshot) -> None:
    """Raise `StatusError` if a change makes the simulation too large. What is there already may be larger."""
    trials = _trials(changed)
    if trials > max(TRIALS_MAX, _trials(snapshot)):
        problem = (
            f"the change makes {trials} requests of pod sets times flavors, and {TRIALS_MAX} are the most:"
            " add fewer workloads, or fewer flavors"
        )
        raise StatusError(ConsoleRule.CHANGE, problem=problem)


def _trials(snapshot: Snapshot) -> int:
    groups = (
        group
        for each in snapshot.observed.values()
        if each.plural == CLUSTER_QUEUE.plural and each.object is not None
        for group in spec_of(as_body(each.object)).get("resourceGroups") or []
    )
    flavors = max((len(group.get("flavors") or []) for group in groups), default=0)
    waiting = (state for state in snapshot.workloads.values() if state.phase != "finished")
    return flavors * sum(len(pods.requests) for state in waiting for pods in state.pod_sets)


def _refused(error: CommandError) -> StatusError:
    problem = f"{error} ({error.hint})" if error.hint else str(error)
    return StatusError(ConsoleRule.CHANGE, problem=problem)
