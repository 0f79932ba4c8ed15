"""Computes the state of one workload from its job and its Workload object. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

import orjson

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.growth import (
    growth_fields,
    pod_sets_by_name,
    running_fields,
    with_largest,
)
from services.classifier.projection.machine_slots import MachineSlots
from services.classifier.projection.not_offered import requests_not_offered
from services.classifier.projection.owners.prebuilt import named_workload
from services.classifier.projection.pods.pod_templates import pod_spec_of
from services.classifier.projection.pods.requests import RequestsError, resolve_pod_sets
from services.classifier.projection.pods.size import clipped
from services.classifier.projection.policy import DEFAULT_POLICY, Policy
from services.classifier.projection.priority import Priority, external_priority, job_priority
from services.classifier.projection.workload_status import (
    finish_on_record,
    has_quota,
    status_fields,
    with_reclaimed,
)
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of, labels_of, spec_of
from shared.contracts.kube.conditions import PODS_READY, is_true
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.numbers import INT32_MAX, whole_number
from shared.contracts.messages.workloads import Finish, JobRef, Phase, PodSet, WorkloadState
from shared.contracts.refs import WorkloadRef
from shared.integrations import Integration, queue_of
from shared.telemetry.traceparent import carried, parse_traceparent

R = TypeVar("R")
D = TypeVar("D")

_SET_BY_ADMISSION: Final = ("nodeSelector", "tolerations")
"""Fields of a pod spec that an admission changes."""

LABELS_BYTES_MAX: Final = 4096
"""Bytes of keys and values of the labels in a state: ten times what a usual job has. An object may have a
megabyte, and each state would repeat it."""


def project_job(
    job: Body,
    *,
    integration: Integration,
    workload: Body | None,
    cluster: str,
    name: str,
    cluster_objects: ClusterObjects,
    machines: MachineSlots,
    policy: Policy = DEFAULT_POLICY,
    last: WorkloadState | None = None,
    without_workload: str | None = None,
    queue_left: str = "",
) -> WorkloadState:
    """Return the state of the workload of `job`. `workload`: its Workload object, if it exists.

    `last` is the state published before under that name, of this job or of an earlier one.
    `without_workload`: why the job has not the Workload that its user names. `queue_left`: the queue of the
    controller that it was let out of.
    """
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    problems = _unread(job, workload, without_workload)
    current = _raw_pod_sets(problems, job, integration)
    raw = _without_admission_changes(current or [], workload, integration.released(job))
    resolve = partial(
        _resolve_cached, namespace=namespace, cluster_objects=cluster_objects, policy=policy
    )
    known = last.pod_sets if last is not None and last.uid == uid else []
    ref = WorkloadRef(cluster, namespace, name)
    refused: list[str] = []  # As in Kueue it is in its queue all the same.
    pod_sets = machines.with_returned(ref, resolve(refused, raw), known)
    reclaimed = _read_or(problems, lambda: integration.reclaimable(job), {})
    holder = workload if has_quota(workload) else None
    queue = _queue(job, workload) or queue_left
    priority = job_priority(
        job, raw, integration.priority_class(job), queue, workload, cluster_objects, last
    )
    progress = _progress_fields(job, integration, workload)
    hold = _hold_fields(job, integration, last)
    if progress["phase"] == "waiting":  # The TaskRuns of a running job report the problem.
        problems += machines.problems(job, pod_sets)
        refused += requests_not_offered(job, workload, current or [])
        problems += (one for one in integration.refusals(job) if one not in "; ".join(problems))
    limit = _read_or(problems, lambda: _max_execution_seconds(job, holder), None)
    kept_out = clipped("; ".join([*problems, *refused]) or None)
    keeps = None if _is_told_to_wait(job, integration) else holder
    asked = with_reclaimed(pod_sets, reclaimed, keeps, known)
    growth = running_fields(job, integration, holder, current, asked, last, held=hold["held"])
    if not hold["held"]:
        growth |= growth_fields(job, integration, holder, current, raw, asked, resolve, last)
    if growth.get("enlarged"):  # Of a group `raw` has what was admitted, whatever runs.
        asked = with_largest(asked, resolve([], integration.variants(job)))
    return WorkloadState(
        cluster=cluster,
        name=name,
        adopts="" if integration.is_group else _uncontrolled(workload),
        active=bool(spec_of(workload).get("active", True)),
        queue=queue,
        pod_sets=asked,
        inadmissible=kept_out,
        unresolved=priority.missing or (kept_out if problems else None),
        on_eviction=_on_eviction(job, integration, queue=queue, cluster_objects=cluster_objects),
        max_execution_seconds=limit,
        **growth,
        **progress,
        **hold,
        **_job_fields(job, integration),
        **_common_fields(job, priority),
        **status_fields(workload, cluster_objects.is_foreign_check),
    )


def pod_sets_of(
    job: Body, integration: Integration, cluster_objects: ClusterObjects, policy: Policy
) -> list[PodSet] | None:
    """Return what the job asks for as it is; None if that cannot be read."""
    raw = _raw_pod_sets([], job, integration)
    if raw is None:
        return None
    namespace = job["metadata"]["namespace"]
    return _resolve_cached(
        [], raw, namespace=namespace, cluster_objects=cluster_objects, policy=policy
    )


def project_external(
    workload: Body,
    *,
    cluster: str,
    cluster_objects: ClusterObjects,
    policy: Policy = DEFAULT_POLICY,
    last: WorkloadState | None = None,
) -> WorkloadState:
    """Return the state of a Workload object without a job of ours: its own status says all."""
    metadata, spec = workload["metadata"], spec_of(workload)
    problems: list[str] = []
    pod_sets = _resolve_cached(
        problems,
        spec.get("podSets") or [],
        namespace=metadata["namespace"],
        cluster_objects=cluster_objects,
        policy=policy,
    )
    problems += requests_not_offered(workload, workload, spec.get("podSets") or [])
    priority = external_priority(workload, cluster_objects)
    known = last.pod_sets if last is not None and last.uid == metadata["uid"] else []
    finish = finish_on_record(workload)
    return WorkloadState(
        cluster=cluster,
        name=metadata["name"],
        phase=_phase(finish=finish, active=False),
        active=bool(spec.get("active", True)),
        queue=str(spec.get("queueName") or ""),
        pod_sets=with_reclaimed(pod_sets, {}, workload, known),
        inadmissible=clipped("; ".join(problems) or None),
        unresolved=priority.missing,
        # Its controller waits for the condition, so without quota it is held.
        held=not has_quota(workload),
        gated=None if finish else _gates(workload, workload),
        pods_ready=is_true(workload, PODS_READY),
        finish=finish,
        max_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
        **_common_fields(workload, priority),
        **status_fields(workload, cluster_objects.is_foreign_check),
    )


def _on_eviction(
    job: Body, integration: Integration, *, queue: str, cluster_objects: ClusterObjects
) -> Literal["suspend", "recreate", "run-on"]:
    """A kind that cannot be suspended runs on, unless its queue wants it stopped and recreated."""
    if integration.can_stop:
        return "suspend"
    namespace = job["metadata"]["namespace"]
    policy = cluster_objects.queue_annotation(namespace, queue, names.ON_PREEMPTION)
    recreates = policy == names.STOP_AND_RECREATE and integration.end(job) is not None
    return "recreate" if recreates else "run-on"


def _raw_pod_sets(problems: list[str], job: Body, integration: Integration) -> list[Object] | None:
    """Return the pod sets of a job, also if only its status is wrong; None if they cannot be read."""
    found = _read_or(problems, lambda: integration.pod_sets(job), None)
    if found is not None or integration.is_group:
        return found or []
    own = {key: value for key, value in job.items() if key != "status"}
    return _read_or([], lambda: integration.pod_sets(own), None)


def _without_admission_changes(
    raw: list[Object], workload: Body | None, released: Mapping[str, int] | None
) -> list[Object]:
    """Return the pod sets as the user requested them: without what the admission changed.

    While the workload has quota, its Workload object holds the original pod sets; the patcher restores
    the job before the quota is gone. Growth beyond the admitted count is the user's, and is kept. Of a group
    `released` says how many pods were let go: others come and go while it holds quota for all. A group
    without any asks for what it had.
    """
    if workload is None or not (has_quota(workload) or (released is not None and not raw)):
        return raw
    original = pod_sets_by_name(workload)
    if released is not None:
        counts = {
            name: max(int(was.get("count") or 0), released.get(name, 0))
            for name, was in original.items()
        }
        return [{**was, "count": counts[name]} for name, was in original.items()]
    return [_with_original_pod(now, original.get(now.get("name"))) for now in raw]


def _with_original_pod(now: Object, was: Object | None) -> Object:
    if was is None:
        return now
    before = pod_spec_of(was)
    pod = {k: v for k, v in pod_spec_of(now).items() if k not in _SET_BY_ADMISSION}
    pod |= {key: before[key] for key in _SET_BY_ADMISSION if key in before}
    count = max(int(now.get("count") or 0), int(was.get("count") or 0))
    return {**now, "count": count, "template": {"spec": pod}}


def _phase(*, finish: Finish | None, active: bool) -> Phase:
    if finish is not None:
        return "finished"
    return "running" if active else "waiting"


@dataclass(frozen=True, slots=True)
class _ResolvedPodSets:
    pod_sets: list[PodSet]
    problems: list[str]


def _resolve_cached(
    problems: list[str],
    raw: list[Object],
    *,
    namespace: str,
    cluster_objects: ClusterObjects,
    policy: Policy,
) -> list[PodSet]:
    """Resolve pod sets; most jobs are alike, so equal ones are resolved once.

    Alike but for the metadata of their pods, where a Job's controller writes the uid of each: nothing that
    is asked for depends on it.
    """
    cache = cluster_objects.pod_sets_cache
    try:
        text = orjson.dumps([namespace, [_without_metadata(pod_set) for pod_set in raw]])
    except orjson.JSONEncodeError:  # A manifest file may hold numbers that no cluster accepts.
        resolved = _resolve(raw, namespace, cluster_objects, policy)
    else:
        known = cache.get(text)
        if isinstance(known, _ResolvedPodSets):
            resolved = known
        else:
            resolved = _resolve(raw, namespace, cluster_objects, policy)
            cache.put(text, resolved)
    problems += resolved.problems
    return list(resolved.pod_sets)


def _without_metadata(pod_set: Object) -> Object:
    template = pod_set.get("template")
    if not isinstance(template, dict) or "metadata" not in template:
        return pod_set
    return {**pod_set, "template": {**template, "metadata": None}}


def _resolve(
    raw: list[Object], namespace: str, cluster_objects: ClusterObjects, policy: Policy
) -> _ResolvedPodSets:
    try:
        pod_sets = resolve_pod_sets(
            raw,
            limit_ranges=cluster_objects.limit_ranges(namespace),
            runtime_class=cluster_objects.runtime_class,
            transformations=policy.transformations,
        )
    except RequestsError as error:
        return _ResolvedPodSets(error.pod_sets, [str(error)])
    return _ResolvedPodSets(pod_sets, [])


def _queue(job: Body, workload: Body | None) -> str:
    """Return the queue of the job; while its Workload holds quota, the queue of that.

    The API fixes `spec.queueName` while quota is reserved: a job that takes such a Workload, or whose label
    changes before it starts, starts in that queue, as in Kueue (kubernetes-sigs/kueue@ff69552
    pkg/controller/jobframework/reconciler.go, "handle job is suspended").
    """
    of_job, of_workload = queue_of(job), str(spec_of(workload).get("queueName") or "")
    return (of_workload or of_job) if has_quota(workload) else (of_job or of_workload)


def _is_told_to_wait(job: Body, integration: Integration) -> bool:
    """Whether none of its pods runs in this cluster or another: what it says of those that ended holds."""
    if integration.is_group or integration.runs_elsewhere(job):
        return False
    return integration.held(job)


def _progress_fields(job: Body, integration: Integration, workload: Body | None) -> dict[str, Any]:
    """Return the fields that say how far the job is."""
    finish, active = _finish(job, integration, workload), integration.active(job)
    return {
        "phase": _phase(finish=finish, active=active),
        "gated": None if finish or active else _gates(job, workload),
        "pods_active": active,
        "pods_ready": integration.ready(job),
        "finish": finish,
    }


def _finish(job: Body, integration: Integration, workload: Body | None) -> Finish | None:
    """Return how the job has ended; None if it has not.

    What a group has lost after its end is not missed, also by a release that cannot read what the one before
    it published: the Workload tells it, as long as nothing of the group runs.
    """
    finish = integration.finish(job)
    if finish is None and integration.is_group and not integration.active(job):
        return finish_on_record(workload)
    return finish


def _hold_fields(job: Body, integration: Integration, last: WorkloadState | None) -> dict[str, Any]:
    """Return the fields that say whether the job is kept from starting, and was before."""
    # A job that another cluster runs never starts here, whatever its user writes into it.
    held = integration.held(job) or integration.runs_elsewhere(job)
    on_hold = _on_hold(job)
    was_held = (held and on_hold is None) or _was_held(job, last) or _was_let_go(job, held=held)
    return {"held": held, "was_held": was_held, "on_hold": on_hold}


def _job_fields(job: Body, integration: Integration) -> dict[str, Any]:
    """Return the fields that the job's metadata says alone."""
    return {
        "owner": _owner(job, integration),
        "spec_generation": int(job["metadata"].get("generation") or 0),
        "prebuilt": named_workload(job) is not None,
        "coschedule": clipped(annotations_of(job).get(names.COSCHEDULE)),
        "members": integration.members(job),
        "run_of": labels_of(job).get(integration.trace_name_label),
        "trace_parent": _trace_parent(job, integration),
    }


def _common_fields(obj: Body, priority: Priority) -> dict[str, Any]:
    """Return the fields that come from the metadata of a job or external Workload, and its priority."""
    metadata = obj["metadata"]
    return {
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "version": str(metadata.get("resourceVersion", "")),
        "created_at": datetime.fromisoformat(metadata["creationTimestamp"]),
        "labels": _labels(obj),
        "traceparent": annotations_of(obj).get(names.TRACEPARENT_ANNOTATION),
        "priority": priority.value,
        "priority_class": priority.name,
        "priority_class_source": priority.source,
    }


def _labels(obj: Body) -> dict[str, str]:
    """Return the mark of a copy, and in the order of their keys what fits of the other labels."""
    found = labels_of(obj)
    kept, room = {}, LABELS_BYTES_MAX
    for key in sorted(found, key=lambda key: (key != names.ORIGIN, key)):
        room -= len(key.encode()) + len(found[key].encode())
        if room < 0:
            break
        kept[key] = found[key]
    return kept


def _trace_parent(job: Body, integration: Integration) -> str | None:
    """Return the span under which the job was created, if its controller continues that trace."""
    annotations = annotations_of(job)
    ours = parse_traceparent(annotations.get(names.TRACEPARENT_ANNOTATION))
    theirs = parse_traceparent(carried(annotations.get(integration.trace_annotation)))
    if ours is None or theirs is None or ours[0] != theirs[0] or ours == theirs:
        return None
    return f"{theirs[1]:016x}"


def _uncontrolled(workload: Body | None) -> str:
    """Return the uid of a Workload object with quota that no job controls yet; else nothing."""
    if workload is None or not has_quota(workload) or not names.may_be_of(workload, ""):
        return ""
    return workload["metadata"]["uid"]


def _on_hold(job: Body) -> str | None:
    paused = annotations_of(job).get(names.USER_PENDING) == "true"
    return f"its user created it paused (annotation {names.USER_PENDING})" if paused else None


def _gates(obj: Body, workload: Body | None) -> str | None:
    """Gates that keep it out of every queue, by the job or its Workload; None once it has quota."""
    if workload is not None and has_quota(workload):
        return None
    found = (annotations_of(one).get(names.GATED_BY) for one in (obj, workload) if one is not None)
    return clipped(next((gates for gates in found if gates), None))


def _was_held(job: Body, last: WorkloadState | None) -> bool:
    return last is not None and last.uid == job["metadata"]["uid"] and last.was_held


def _was_let_go(job: Body, *, held: bool) -> bool:
    """Return whether our hold was taken off before anybody observed it.

    The API server counts a generation for each change of the spec, and the webhook keeps its mark where
    somebody takes the hold off. The mark alone may have come with a copied manifest.
    """
    changed = int(job["metadata"].get("generation") or 0) > 1
    return not held and changed and annotations_of(job).get(names.USER_PENDING) == "false"


def _owner(job: Body, integration: Integration) -> JobRef:
    return JobRef(
        api_version=integration.kind.api_version,
        kind=integration.kind.kind,
        plural=integration.kind.plural,
        name=job["metadata"]["name"],
        uid=job["metadata"]["uid"],
        is_group=integration.is_group,
    )


def _max_execution_seconds(job: Body, holder: Body | None) -> int | None:
    """Return the limit of the job's label; while the job has quota, the limit at its admission.

    Raises `ValueError` for a label that is no number of seconds.
    """
    if holder is not None:
        return spec_of(holder).get("maximumExecutionTimeSeconds")
    value = labels_of(job).get(names.MAX_EXECUTION)
    if value is None:
        return None
    seconds = whole_number(value) or 0
    if not 0 < seconds <= INT32_MAX:
        problem = f"{value!r} is no number of seconds from 1 to {INT32_MAX}"
        raise ValueError(f"label {names.MAX_EXECUTION}: {problem}")
    return seconds


def _unread(job: Body, workload: Body | None, without_workload: str | None) -> list[str]:
    """The problems of a job without quota that no reading of its spec shows.

    It was published without its contents, or has not the Workload that its user names.
    """
    if has_quota(workload):
        return []
    note = annotations_of(job).get(names.TRUNCATED)
    cut = [] if note is None else [f"annotation {names.TRUNCATED}: {note}: make the object smaller"]
    return cut + ([] if without_workload is None else [without_workload])


def _read_or(problems: list[str], read: Callable[[], R], default: D) -> R | D:
    """Return `read()`, or `default` and note the problem: invalid input waits with a reason."""
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problems.append(str(error))
        return default
