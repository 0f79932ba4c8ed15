"""From a job and its Workload object to the state of one workload. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

import orjson

from services.classifier.projection.cluster_objects import Surroundings
from services.classifier.projection.machine_slots import Machines
from services.classifier.projection.pod_templates import spec_of
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.priority import foreign_priority, job_priority
from services.classifier.projection.requests import RequestsError, pod_sets_asked
from services.classifier.projection.workload_status import (
    condition,
    is_true,
    pods_ready,
    recorded,
    reserves,
    with_reclaimed,
)
from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import amount
from shared.contracts.messages.spokes import is_managed_elsewhere
from shared.contracts.messages.workloads import Finish, OwnerReference, Phase, PodSet, WorkloadState
from shared.integrations import Integration, queue_of
from shared.telemetry.tracing import carried, parse_traceparent

__all__ = ["is_evicted", "project_foreign", "project_job", "tombstone"]

_GIVEN: Final = ("nodeSelector", "tolerations")
"""What an admission changes in a pod template."""

WORKED_OUT_MAX: Final = 10_000
"""Pod sets of which it is remembered what they ask."""

_SECONDS_MAX: Final = 2**31 - 1
"""As many as `spec.maximumExecutionTimeSeconds` of a Workload holds."""


def project_job(
    job: Object,
    *,
    integration: Integration,
    workload: Object | None,
    cluster: str,
    name: str,
    around: Surroundings,
    machines: Machines,
    policy: Policy = DEFAULT_POLICY,
    last: WorkloadState | None = None,
) -> WorkloadState:
    """The state of the workload behind `job`; `workload` is its Workload object, once there is one.

    `last`: what was said before, of this life or an earlier one of that name.
    """
    metadata = job["metadata"]
    namespace = metadata["namespace"]
    problems: list[str] = []
    raw = _collect(problems, lambda: integration.pod_sets(job), [])
    asked_now, raw = raw, _as_asked(raw, workload)
    asked = partial(_asked, namespace=namespace, around=around, policy=policy)
    pod_sets = asked(problems, raw)
    spec = (workload or {}).get("spec") or {}
    # A queue label that vanished after admission does not free the job of its quota.
    queue = queue_of(job) or str(spec.get("queueName") or "")
    priority = job_priority(job, raw, queue=queue, workload=workload, around=around)
    known = last.pod_sets if last is not None and last.uid == metadata["uid"] else []
    pod_sets = machines.with_returned((namespace, name), pod_sets, known)
    reclaimed = _collect(problems, lambda: integration.reclaimable(job), {})
    holder = workload if reserves(workload) else None
    finish = integration.finish(job)
    active = integration.active(job)
    if finish is None and not active:  # What runs has been let in: its TaskRuns are told instead.
        problems += machines.refusals(job, pod_sets)
    # Nobody starts here what another program runs elsewhere, whatever its user writes into it.
    held = integration.held(job) or is_managed_elsewhere(job)
    stoppable = not held and integration.stop(job) is not None
    limit = _collect(problems, lambda: _max_execution(metadata, holder), None)
    return WorkloadState(
        cluster=cluster,
        namespace=namespace,
        name=name,
        uid=metadata["uid"],
        owner=_owner(job, integration),
        version=str(metadata.get("resourceVersion", "")),
        spec_generation=int(metadata.get("generation") or 0),
        phase=_phase(finish=finish, active=active),
        active=bool(spec.get("active", True)),
        queue=queue,
        priority=priority.value,
        priority_class=priority.name,
        priority_class_source=priority.source,
        created_at=_time(metadata["creationTimestamp"]),
        pod_sets=with_reclaimed(pod_sets, reclaimed, holder, known),
        inadmissible="; ".join(problems) or None,
        unresolved=priority.missing,
        outgrown=None if held else _outgrown(asked_now, workload),
        enlarged=stoppable and _enlarged(raw, holder, asked),
        on_eviction=_on_eviction(job, integration, queue=queue, around=around),
        held=held,
        on_hold=_on_hold(metadata),
        pods_active=active,
        pods_ready=integration.ready(job),
        finish=finish,
        max_execution_seconds=limit,
        coschedule=(metadata.get("annotations") or {}).get(names.COSCHEDULE),
        **_told(metadata, integration),
        **recorded(workload),
    )


def project_foreign(
    workload: Object,
    *,
    cluster: str,
    around: Surroundings,
    policy: Policy = DEFAULT_POLICY,
    last: WorkloadState | None = None,
) -> WorkloadState:
    """The state of a Workload object that somebody else owns: it says itself how it stands."""
    metadata, spec = workload["metadata"], workload.get("spec") or {}
    problems: list[str] = []
    raw = spec.get("podSets") or []
    namespace = metadata["namespace"]
    pod_sets = _asked(problems, raw, namespace=namespace, around=around, policy=policy)
    priority = foreign_priority(workload, around)
    known = last.pod_sets if last is not None and last.uid == metadata["uid"] else []
    finished = condition(workload, "Finished")
    finish = None
    if finished is not None and finished.get("status") == "True":
        finish = Finish(
            success=finished.get("reason") != "Failed",
            message=finished.get("message") or "",
            at=_time(finished["lastTransitionTime"])
            if finished.get("lastTransitionTime")
            else None,
        )
    return WorkloadState(
        cluster=cluster,
        namespace=namespace,
        name=metadata["name"],
        uid=metadata["uid"],
        version=str(metadata.get("resourceVersion", "")),
        phase=_phase(finish=finish, active=False),
        active=bool(spec.get("active", True)),
        queue=str(spec.get("queueName") or ""),
        priority=priority.value,
        priority_class=priority.name,
        priority_class_source=priority.source,
        created_at=_time(metadata["creationTimestamp"]),
        pod_sets=with_reclaimed(pod_sets, {}, workload, known),
        inadmissible="; ".join(problems) or None,
        unresolved=priority.missing,
        # It is held for as long as it has no quota: its own controller waits for the condition.
        held=not reserves(workload),
        pods_ready=pods_ready(workload),
        finish=finish,
        max_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
        labels=_labels(metadata),
        traceparent=(metadata.get("annotations") or {}).get(names.TRACEPARENT_ANNOTATION),
        **recorded(workload),
    )


def _on_eviction(
    job: Object, integration: Integration, *, queue: str, around: Surroundings
) -> Literal["suspend", "recreate", "run-on"]:
    """A kind that cannot be suspended is left to run, unless its queue wants it stopped and made anew."""
    if integration.stop(job) is not None:
        return "suspend"
    namespace = job["metadata"]["namespace"]
    wanted = around.queue_annotation(namespace, queue, names.ON_PREEMPTION)
    can = wanted == names.STOP_AND_RECREATE and integration.end(job) is not None
    return "recreate" if can else "run-on"


def tombstone(last: WorkloadState) -> WorkloadState:
    """The end of a workload whose job was deleted."""
    changes = {"phase": "gone", "pods_active": False, "held": True, "admission": None}
    return last.model_copy(update=changes)


def is_evicted(workload: Object | None) -> bool:
    """Whether a Workload object says that it lost its quota, or is about to."""
    return workload is not None and is_true(workload, "Evicted")


def _as_asked(raw: list[Object], workload: Object | None) -> list[Object]:
    """What a job asked for, without what its admission gave it: labels, tolerations, fewer pods.

    While it has quota, that is in its Workload's pod sets; before that is gone the patcher has given
    the job back how it was. More pods than were admitted are the user's, and are seen.
    """
    if workload is None or not reserves(workload):
        return raw
    original = {p.get("name"): p for p in (workload.get("spec") or {}).get("podSets") or []}
    return [_one_as_asked(now, original.get(now.get("name"))) for now in raw]


def _outgrown(raw: list[Object], workload: Object | None) -> dict[str, int] | None:
    """More pods than were admitted: the API server lets a running job ask for them."""
    if workload is None or not reserves(workload):
        return None
    admission = workload["status"].get("admission") or {}
    given = {p.get("name"): p.get("count") for p in admission.get("podSetAssignments") or []}
    counts = {str(now.get("name")): int(now.get("count") or 0) for now in raw}
    more = {n: c for n, c in counts.items() if given.get(n) is not None and c > int(given[n])}
    return more or None


def _enlarged(
    raw: list[Object],
    holder: Object | None,
    asked: Callable[[list[str], list[Object]], list[PodSet]],
) -> bool:
    """Whether a pod asks for more than when it was admitted: not every kind keeps its template."""
    spec = (holder or {}).get("spec") or {}
    original = {p.get("name"): p for p in spec.get("podSets") or []}
    pairs = [(now, original[now.get("name")]) for now in raw if now.get("name") in original]
    changed = [(now, was) for now, was in pairs if spec_of(now) != spec_of(was)]
    return any(
        amount(resource, text) > amount(resource, before.requests.get(resource, "0"))
        for now, was in changed
        for after, before in zip(asked([], [now]), asked([], [was]), strict=True)
        for resource, text in after.requests.items()
    )


def _one_as_asked(now: Object, was: Object | None) -> Object:
    if was is None:
        return now
    before = spec_of(was)
    pod = {k: v for k, v in spec_of(now).items() if k not in _GIVEN}
    pod |= {key: before[key] for key in _GIVEN if key in before}
    count = max(int(now.get("count") or 0), int(was.get("count") or 0))
    return {**now, "count": count, "template": {"spec": pod}}


def _phase(*, finish: Finish | None, active: bool) -> Phase:
    if finish is not None:
        return "finished"
    return "running" if active else "waiting"


def _asked(
    problems: list[str],
    raw: list[Object],
    *,
    namespace: str,
    around: Surroundings,
    policy: Policy,
) -> list[PodSet]:
    """What pod sets ask here; worked out once for all that are alike, as most are."""
    try:
        key = (namespace, orjson.dumps(raw))
    except orjson.JSONEncodeError:  # A file may hold numbers that no cluster would.
        asked = _ask(raw, namespace, around, policy)
    else:
        known = around.worked_out.get(key)
        asked = known if isinstance(known, _Asked) else _ask(raw, namespace, around, policy)
        if len(around.worked_out) >= WORKED_OUT_MAX:
            around.worked_out.clear()
        around.worked_out[key] = asked
    problems += asked.problems
    return list(asked.pod_sets)


@dataclass(frozen=True, slots=True)
class _Asked:
    pod_sets: list[PodSet]
    problems: list[str]


def _ask(raw: list[Object], namespace: str, around: Surroundings, policy: Policy) -> _Asked:
    try:
        pod_sets = pod_sets_asked(
            raw,
            limit_ranges=around.limit_ranges(namespace),
            runtime_class=around.runtime_class,
            counting=policy.counting,
        )
    except RequestsError as error:
        return _Asked(error.pod_sets, [str(error)])
    return _Asked(pod_sets, [])


def _labels(metadata: Object) -> dict[str, str]:
    return dict(metadata.get("labels") or {})


def _told(metadata: Object, integration: Integration) -> dict[str, Any]:
    """What people and traces are told of a job."""
    return {
        "labels": _labels(metadata),
        "run_of": _labels(metadata).get(integration.trace_name_label),
        "trace_parent": _trace_parent(metadata, integration),
        "traceparent": (metadata.get("annotations") or {}).get(names.TRACEPARENT_ANNOTATION),
    }


def _trace_parent(metadata: Object, integration: Integration) -> str | None:
    """The span that the job was created under: its controller is told of it, too."""
    annotations = metadata.get("annotations") or {}
    ours = parse_traceparent(annotations.get(names.TRACEPARENT_ANNOTATION))
    theirs = parse_traceparent(carried(annotations.get(integration.trace_annotation)))
    if ours is None or theirs is None or ours[0] != theirs[0] or ours == theirs:
        return None
    return f"{theirs[1]:016x}"


def _on_hold(metadata: Object) -> str | None:
    paused = (metadata.get("annotations") or {}).get(names.USER_PENDING) == "true"
    return f"its user created it paused (annotation {names.USER_PENDING})" if paused else None


def _owner(job: Object, integration: Integration) -> OwnerReference:
    return OwnerReference(
        api_version=integration.kind.api_version,
        kind=integration.kind.kind,
        plural=integration.kind.plural,
        name=job["metadata"]["name"],
        uid=job["metadata"]["uid"],
    )


def _max_execution(metadata: Object, holder: Object | None) -> int | None:
    """What it was admitted with counts until it waits again (`research/kueue.md` 1.11)."""
    if holder is not None:
        spec = holder.get("spec") or {}
        return spec.get("maximumExecutionTimeSeconds")
    value = (metadata.get("labels") or {}).get(names.MAX_EXECUTION)
    if value is None:
        return None
    seconds = int(value) if value.isascii() and value.isdigit() else 0
    if not 0 < seconds <= _SECONDS_MAX:
        said = f"{value!r} is no number of seconds from 1 to {_SECONDS_MAX}"
        raise ValueError(f"label {names.MAX_EXECUTION}: {said}")
    return seconds


def _collect(problems: list[str], read: Any, otherwise: Any) -> Any:
    """`read()`, or `otherwise` with the problem noted: bad input waits with a reason, it does not vanish."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problems.append(str(error))
        return otherwise


def _time(value: str) -> datetime:
    return datetime.fromisoformat(value)
