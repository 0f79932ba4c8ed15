"""What a job that is not held asks for beyond what was admitted. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from services.classifier.projection.nesting import ENDING, amounts_of, kind_of_pod
from services.classifier.projection.pods.pod_templates import pod_spec_of
from shared.contracts.kube.bodies import Body, spec_of, status_of
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import amount
from shared.contracts.kueue.assignments import counts_given
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.integrations import Integration

Resolve = Callable[[list[str], list[Object]], list[PodSet]]
"""Computes what raw pod sets request; problems go to the list."""


def growth_fields(
    job: Body,
    integration: Integration,
    holder: Body | None,
    current: list[Object] | None,
    raw: list[Object],
    asked: list[PodSet],
    resolve: Resolve,
    last: WorkloadState | None,
) -> dict[str, Any]:
    """Return the fields that say what a job that is not held asks for beyond its admission.

    `current`: its pod sets as they are; None if they cannot be read. `raw`: without what the admission
    changed. `asked`: what they ask for, with the pods that need no quota any more. `last`: the state
    published before.
    """
    if current is None:
        return {"outgrown": _outgrown_by_what_nobody_can_count(holder, integration)}
    pods = [*raw, *integration.variants(job)]
    same = last if last is not None and last.uid == job["metadata"]["uid"] else None
    released = integration.released(job)
    outgrown = _outgrown(current, holder, released)
    if released is None and outgrown is None:
        outgrown = _outgrown_by_what_had_ended(job, integration, holder, asked)
    return {
        "outgrown": outgrown or _outgrown_by_more_pod_sets(raw, holder, same, resolve),
        "enlarged": integration.can_stop and _enlarged(pods, holder, resolve),
    }


def running_fields(
    job: Body,
    integration: Integration,
    holder: Body | None,
    current: list[Object] | None,
    asked: list[PodSet],
    last: WorkloadState | None,
    *,
    held: bool,
) -> dict[str, Any]:
    """Return the field that says how many pods run of each pod set of which more run than have quota.

    Of a job that is held and has no admission on record, all that run count, and as many as did at most: so
    its state is not published anew for each pod that ends. `last`: the state published before.

    A status counts only where the kind's own controller here writes it: another cluster, or a user, could
    keep others out by a number.
    """
    theirs = integration.users_write_status or integration.runs_elsewhere(job)
    if current is None or theirs:
        return {}
    running, ending = integration.running(job), integration.ending(job)
    if not running and not ending:
        return {}
    same = last if last is not None and last.uid == job["metadata"]["uid"] else None
    before = (same and same.running_pods) or {}
    given, found = _given(holder), {}
    for pod_set in asked:
        name = pod_set.name
        runs = running.get(name, 0) + ending.get(name, 0)
        count = given.get(name, pod_set.count)
        if held and name not in given:
            runs = max(runs, before.get(name, 0)) if runs else 0
        elif runs <= min(count, max(count, pod_set.count) - pod_set.reclaimable):
            runs = 0
        if runs:
            found[name] = runs
    return {"running_pods": found or None}


def pods_of(job: Body, integration: Integration, asked: list[PodSet] | None) -> dict[str, int]:
    """Return the pods of a job that run or end, by what each of them asks for (`Pods`).

    `asked`: its pod sets; None if they cannot be read. As in `running_fields`, a status of users or of
    another cluster counts for nothing.
    """
    if asked is None or integration.users_write_status or integration.runs_elsewhere(job):
        return {}
    running, ending = integration.running(job), integration.ending(job)
    pods: dict[str, int] = {}
    for pod_set in asked:
        kind, ends = kind_of_pod(pod_set), ending.get(pod_set.name, 0)
        if runs := running.get(pod_set.name, 0) + ends:
            pods[kind] = pods.get(kind, 0) + runs
        if ends and integration.finish(job) is None:
            pods[ENDING + kind] = pods.get(ENDING + kind, 0) + ends
    return pods


def with_largest(asked: list[PodSet], pods: list[PodSet]) -> list[PodSet]:
    """Return pod sets with the most that one of their pods asks for, of each resource."""
    made = []
    for pod_set in asked:
        requests = dict(pod_set.requests)
        for pod in pods:
            for resource, text in pod.requests.items() if pod.name == pod_set.name else ():
                if amount(resource, text) > amount(resource, requests.get(resource, "0")):
                    requests[resource] = text
        made.append(pod_set.with_requests(requests))
    return made


def pod_sets_by_name(workload: Body | None) -> dict[Any, Object]:
    """Return the raw pod sets of a Workload object by name."""
    return {p.get("name"): p for p in spec_of(workload).get("podSets") or []}


def _outgrown(
    raw: list[Object], holder: Body | None, released: Mapping[str, int] | None
) -> dict[str, int] | None:
    """Return pod sets with more pods than were admitted, and how many; None if there are none.

    The API server lets a user raise the parallelism of a running job. A job that starts again after some of
    its pods have finished is admitted with fewer, and keeps its parallelism: the finished ones do not run.
    Of a group `released` counts, also what was let go of a pod set that was never admitted.
    """
    admission = status_of(holder).get("admission") or {}
    # Without a count an assignment is for all pods of its set: it is known, and never outgrown.
    assigned = [str(each.get("name")) for each in admission.get("podSetAssignments") or []]
    admitted: dict[str, int | None] = {**dict.fromkeys(assigned), **counts_given(admission)}
    for name, was in pod_sets_by_name(holder).items():
        if (count := admitted.get(name)) is not None and was.get("minCount") is None:
            admitted[name] = max(count, int(was.get("count") or 0))
    counts = {str(now.get("name")): int(now.get("count") or 0) for now in raw}
    if released is not None:
        counts = dict(released)
        admitted = admitted and {**dict.fromkeys(released, 0), **admitted}
    most = {name: count for name, count in admitted.items() if count is not None}
    more = {name: count for name, count in counts.items() if count > most.get(name, count)}
    return more or None


def _outgrown_by_what_nobody_can_count(
    holder: Body | None, integration: Integration
) -> dict[str, int] | None:
    """Return the first admitted pod set with a pod more than it had: what it asks for now may be anything."""
    original = pod_sets_by_name(holder)
    if not original or not integration.can_stop:
        return None
    name, first = next(iter(original.items()))
    return {str(name): int(first.get("count") or 0) + 1}


def _outgrown_by_what_had_ended(
    job: Body, integration: Integration, holder: Body | None, asked: list[PodSet]
) -> dict[str, int] | None:
    """Return pod sets of which more pods run than have quota, and how many; None if there are none.

    The quota of pods that have ended is others'. A controller may forget them nevertheless, and make them
    anew: that of a Job does where its user lowers the completions and raises them again. It also makes pods
    anew beside those that are ending, time and again if their user deletes them: where more are ending than
    run at once, no node was drained.
    """
    given, original = _given(holder), pod_sets_by_name(holder)
    running, ending = integration.running(job), integration.ending(job)
    more: dict[str, int] = {}
    for pod_set in asked:
        name, back = pod_set.name, pod_set.reclaimable
        runs, ends, count = running.get(name, 0), ending.get(name, 0), given.get(name)
        if count is None:
            continue
        runs += ends if ends > pod_set.count else 0
        was = int((original.get(name) or {}).get("count") or 0)
        if runs > (min(count, was - back) if back else max(count, was)):
            more[name] = runs
    return more or None


def _given(holder: Body | None) -> dict[str, int]:
    """Return how many pods of each pod set the admission on record has."""
    return counts_given(status_of(holder).get("admission") or {})


def _outgrown_by_more_pod_sets(
    raw: list[Object], holder: Body | None, last: WorkloadState | None, resolve: Resolve
) -> dict[str, int] | None:
    """Return the first admitted pod set, with the pods of those that came later beside its own; or None.

    Some controllers let users add pods of another kind to a running object, or give pods another name. They
    leave those that run under the former name: KubeRay looks at the groups of the spec only. Who wrote the
    Workload may have given it other names than the job's, in their order: pods that had these names in
    `last`, the job's state before, are no others. None: it was never seen before.
    """
    original, now = pod_sets_by_name(holder), {pod_set.get("name") for pod_set in raw}
    new = [
        each for each in raw if each.get("name") not in original and int(each.get("count") or 0) > 0
    ]
    if not original or not new:
        return None
    had = {each.name for each in last.pod_sets if each.count} if last is not None else now
    if {each.get("name") for each in new} <= had and (last is None or last.outgrown is None):
        gone = [was for name, was in original.items() if name not in now]
        asked, given = (amounts_of(resolve([], pod_sets)) for pod_sets in (new, gone))
        if all(amount <= given.get(resource, 0) for resource, amount in asked.items()):
            return None
    name, first = next(iter(original.items()))
    more = sum(int(each.get("count") or 0) for each in new)
    return {str(name): int(first.get("count") or 0) + more}


def _enlarged(
    raw: list[Object],
    holder: Body | None,
    resolve: Resolve,
) -> bool:
    """Return whether a pod requests more than at admission: some kinds let users change templates."""
    original = pod_sets_by_name(holder)
    pairs = [(now, original[now.get("name")]) for now in raw if now.get("name") in original]
    changed = [(now, was) for now, was in pairs if pod_spec_of(now) != pod_spec_of(was)]
    return any(
        amount(resource, text) > amount(resource, before.requests.get(resource, "0"))
        for now, was in changed
        for after, before in zip(resolve([], [now]), resolve([], [was]), strict=True)
        for resource, text in after.requests.items()
    )
