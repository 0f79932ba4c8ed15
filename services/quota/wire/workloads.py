"""A workload's state becomes a fact of the engine, with every number within its bounds.

The classifier checks the bounds and says what is wrong. Here they are kept whoever wrote the state: what
one leader writes about a workload, the next one reads.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from services.quota.engine import facts
from services.quota.wire.inbound import TranslateError, nanoseconds, requirement, toleration
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.kube.quantities import (
    QuantityError,
    amount,
    amount_max,
    format_amount,
    nearest_amount,
)
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import PodSet, WorkloadState

"""Kubernetes keeps counts and seconds of a Workload in 32 bits."""


class Identity(TypedDict):
    """The fields by which every fact names its workload."""

    cluster: str
    namespace: str
    name: str
    uid: str


def identity(of: WorkloadState | Admission) -> Identity:
    """The fields by which every fact names its workload."""
    return {"cluster": of.cluster, "namespace": of.namespace, "name": of.name, "uid": of.uid}


def bounded(state: WorkloadState) -> WorkloadState:
    """The state with every number in the range that Kubernetes gives it; the same one if all are.

    A number that had to be changed makes the workload inadmissible, with a message that names it.
    """
    changes: dict[str, Any] = {}
    problems = []
    for field in ("executed_seconds", "requeue_count", "max_execution_seconds"):
        value = getattr(state, field)
        if value is not None and not 0 <= value <= INT32_MAX:
            changes[field] = min(max(0, value), INT32_MAX)
            problems.append(f"{field}: {value} is not from 0 to {INT32_MAX}")
    if not -INT32_MAX <= state.priority <= INT32_MAX:
        changes["priority"] = min(max(-INT32_MAX, state.priority), INT32_MAX)
        problems.append(f"priority: {state.priority} is not a number of 32 bits")
    if not changes:
        return state
    text = f"workload {state.namespace}/{state.name}: {'; '.join(problems)}"
    return state.replace(**changes, inadmissible=state.inadmissible or text)


def workload_changed(
    state: WorkloadState, *, refused: str | None = None, held_back: str | None = None
) -> facts.WorkloadChanged:
    """The requests of a workload.

    `refused`: why the cluster refused to start its job. `held_back`: why a message about it could not
    be used. What it asks beyond the bounds of an amount counts as the nearest amount within them, for
    the case that it runs already, and makes it inadmissible.
    """
    what = f"workload {state.namespace}/{state.name}"
    problems: list[str] = []
    running = state.running_pods or {}
    pod_sets = tuple(
        _pod_set(problems, pod_set, running=running.get(pod_set.name, 0))
        for pod_set in state.pod_sets
    )
    out_of_bounds = f"{what}: {'; '.join(problems)}" if problems else None
    return facts.WorkloadChanged(
        cluster=state.cluster,
        namespace=state.namespace,
        name=state.name,
        uid=state.uid,
        job_uid="" if state.owner is None else state.owner.uid,
        # A refusal changes the fact without a new generation: count it as a half step.
        generation=2 * state.generation + (refused is not None),
        queue=state.queue,
        priority=state.priority,
        created_at=nanoseconds(state.created_at),
        pod_sets=pod_sets,
        active=state.active,
        runs=state.pods_active and state.phase == "running",
        inadmissible=refused or held_back or state.inadmissible or out_of_bounds,
        # What the cluster refuses, or nobody can use, lets others pass, also where its queue is strict.
        unresolved=state.unresolved or refused or held_back,
        preemptible=state.on_eviction != "run-on",
        on_hold=state.on_hold,
        gated=state.gated,
        requeue_at=None if state.requeue_at is None else nanoseconds(state.requeue_at),
    )


def _pod_set(problems: list[str], pod_set: PodSet, *, running: int) -> facts.PodSet:
    """A pod set within bounds; `problems` gets a sentence for each value that is not.

    `running`: the pods of it that run, if these are more than have quota; else 0.
    """
    here = f"pod set {pod_set.name}"
    count = pod_set.count
    if not 0 <= count <= INT32_MAX:
        problems.append(f"{here}: count: {count} is not from 0 to {INT32_MAX}")
        count = min(max(0, count), INT32_MAX)
    requests = _amounts(problems, f"{here}: requests", pod_set.requests)
    for resource, each in requests.items():
        most = amount_max(resource)
        if each * count > most:
            asked = f"{pod_set.requests[resource]} for each of {count} pods"
            limit = format_amount(resource, most)
            problems.append(
                f"{here}: requests[{resource}]: {asked} is more than {limit}: ask for less"
            )
            requests[resource] = most // count
    return facts.PodSet(
        name=pod_set.name,
        count=count,
        requests=requests,
        min_count=pod_set.min_count,
        node_selector=pod_set.node_selector,
        affinity=_affinity(problems, pod_set),
        tolerations=tuple(toleration(t) for t in pod_set.tolerations),
        reclaimable=pod_set.reclaimable,
        running=min(running, INT32_MAX),
        returned=_amounts(problems, f"{here}: returned", pod_set.returned),
    )


def _affinity(problems: list[str], pod_set: PodSet) -> tuple[tuple[facts.Requirement, ...], ...]:
    terms = (pod_set.node_affinity or {}).get("nodeSelectorTerms") or []
    try:
        return tuple(
            tuple(requirement("nodeAffinity", e) for e in term.get("matchExpressions") or [])
            for term in terms
        )
    except TranslateError as error:
        problems.append(f"pod set {pod_set.name}: {error}")
    except (AttributeError, TypeError):
        problems.append(f"pod set {pod_set.name}: nodeAffinity: must be a list of terms of lists")
    return ()


def _amounts(problems: list[str], path: str, given: Mapping[str, str]) -> dict[str, int]:
    """The amounts; one that is out of range counts as the nearest in range, no quantity as 0."""
    amounts = {}
    for resource, text in given.items():
        try:
            amounts[resource] = amount(resource, text)
        except QuantityError as error:
            problems.append(f"{path}[{resource}]: {error}")
            amounts[resource] = nearest_amount(resource, text)
    return amounts
