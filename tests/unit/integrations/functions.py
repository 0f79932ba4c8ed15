"""What the documents of Job and PipelineRun say, once more and independently: as plain functions.

An oracle for the documents, and what their cost is measured against.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.workloads import Finish
from shared.integrations import PodSetInfo

__all__ = ["JOB", "PIPELINE_RUN", "Functions"]

TEKTON_SLOT: Final = "tekton.dev/pipelineruns"
PENDING: Final = "PipelineRunPending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """All that is asked about an object."""

    held: Callable[[Object], bool]
    active: Callable[[Object], bool]
    ready: Callable[[Object], bool | None]
    finish: Callable[[Object], Finish | None]
    pod_sets: Callable[[Object], list[Object]]
    reclaimable: Callable[[Object], dict[str, int]]
    release: Callable[[Object, tuple[PodSetInfo, ...]], list[Object]]
    hold: Callable[[Object], list[Object]]
    carry: Callable[[Object], Object]
    stop: Callable[[Object], list[Object] | None]
    restore: Callable[[Object, list[Object]], list[Object] | None] | None = None


def _uid_test(obj: Object) -> Object:
    return {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]}


def _time(value: object) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None


def _condition(obj: Object, type_: str) -> Object | None:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == type_), None)


# --- Tekton PipelineRun, as tektoncd/pipeline v1.11.1 validates it ---


def _run_held(run: Object) -> bool:
    return (run.get("spec") or {}).get("status") == PENDING


def _run_finish(run: Object) -> Finish | None:
    succeeded = _condition(run, "Succeeded")
    if succeeded is None or succeeded.get("status") not in {"True", "False"}:
        return None
    return Finish(
        success=succeeded["status"] == "True",
        message=succeeded.get("message") or succeeded.get("reason") or "",
        at=_time((run.get("status") or {}).get("completionTime"))
        or _time(succeeded.get("lastTransitionTime")),
    )


def _run_active(run: Object) -> bool:
    return bool((run.get("status") or {}).get("startTime")) and _run_finish(run) is None


def _run_pod_sets(run: Object) -> list[Object]:
    """One pod set that stands for the run: a slot, and one request for each annotation."""
    requests: dict[str, str] = {TEKTON_SLOT: "1"}
    annotations = (run.get("metadata") or {}).get("annotations") or {}
    for key, value in annotations.items():
        if not key.startswith(names.REQUESTS_PREFIX):
            continue
        resource = key.removeprefix(names.REQUESTS_PREFIX)
        if not resource:
            raise ValueError(f"annotation {key}: no resource name after the prefix")
        requests[resource] = value
    container = {"name": "run", "image": "none", "resources": {"requests": requests}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return [{"name": "pod-set-1", "count": 1, "template": template}]


def _run_release(run: Object, _infos: tuple[PodSetInfo, ...]) -> list[Object]:
    # A run has no pod template that could still be changed: flavors choose quota, not nodes.
    return [
        _uid_test(run),
        {"op": "test", "path": "/spec/status", "value": PENDING},
        {"op": "remove", "path": "/spec/status"},
    ]


def _run_hold(run: Object) -> list[Object]:
    return [_uid_test(run), {"op": "add", "path": "/spec/status", "value": PENDING}]


def _run_carry(run: Object) -> Object:
    """The copy is the spoke's own business: `managedBy` would keep its Tekton off."""
    return {key: value for key, value in run["spec"].items() if key != "managedBy"}


PIPELINE_RUN: Final = Functions(
    held=_run_held,
    active=_run_active,
    ready=lambda _run: None,
    finish=_run_finish,
    pod_sets=_run_pod_sets,
    reclaimable=lambda _run: {},
    release=_run_release,
    hold=_run_hold,
    carry=_run_carry,
    # Tekton refuses to set a started run back to Pending (tektoncd/pipeline v1.11.1).
    stop=lambda _run: None,
)


# --- batch/v1 Job, as kubernetes-sigs/kueue@ff69552 pkg/controller/jobs/job/job_controller.go ---

_MAIN: Final = "main"
_JOB_OWN_LABELS: Final = frozenset(
    f"{prefix}{name}"
    for prefix in ("", "batch.kubernetes.io/")
    for name in ("controller-uid", "job-name")
)
"""Labels that the API server puts on the pods of a Job."""


def _job_count(job: Object) -> int:
    spec = job.get("spec") or {}
    parallelism = spec.get("parallelism")
    parallelism = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, int(completions))


def _job_finish(job: Object) -> Finish | None:
    for type_, success in (("Complete", True), ("Failed", False)):
        condition = _condition(job, type_)
        if condition is not None and condition.get("status") == "True":
            return Finish(
                success=success,
                message=condition.get("message") or condition.get("reason") or "",
                at=_time(condition.get("lastTransitionTime")),
            )
    return None


def _job_active(job: Object) -> bool:
    status = job.get("status") or {}
    return bool(status.get("active") or status.get("terminating"))


def _job_ready(job: Object) -> bool | None:
    status = job.get("status") or {}
    return (status.get("succeeded") or 0) + (status.get("ready") or 0) >= _job_count(job)


def _job_template(job: Object) -> Object:
    """Without what the API server made of uid and name, but for one label (Kueue's `cleanLabels`)."""
    template = (job.get("spec") or {}).get("template") or {"spec": {"containers": []}}
    labels = (template.get("metadata") or {}).get("labels") or {}
    own = {job["metadata"]["uid"], job["metadata"]["name"]}
    cleaned = _JOB_OWN_LABELS - {"batch.kubernetes.io/job-name"}
    if all(key not in cleaned or value not in own for key, value in labels.items()):
        return dict(template)
    kept = {k: v for k, v in labels.items() if k not in cleaned or v not in own}
    return {**template, "metadata": {**template["metadata"], "labels": kept}}


def _job_pod_sets(job: Object) -> list[Object]:
    pod_set: Object = {
        "name": _MAIN,
        "count": _job_count(job),
        "template": _job_template(job),
    }
    annotations = (job.get("metadata") or {}).get("annotations") or {}
    least = annotations.get(names.MIN_PARALLELISM)
    if least is not None:
        if not least.isascii() or not least.isdigit():
            raise ValueError(f"annotation {names.MIN_PARALLELISM}: {least!r} is no whole number")
        pod_set["minCount"] = int(least)
    return [pod_set]


def _job_reclaimable(job: Object) -> dict[str, int]:
    """Pods that are done and will not be replaced, once fewer completions are left than run at once."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    parallelism = int(spec.get("parallelism") or 1)
    completions = parallelism if spec.get("completions") is None else int(spec["completions"])
    ended = int(status.get("succeeded") or 0)
    if spec.get("completionMode") == "Indexed":
        texts = [status.get(f"{how}Indexes") or "" for how in ("completed", "failed")]
        ended = len(_indexes(",".join(texts)) & {*range(completions)})
    if parallelism <= 1 or ended == 0:
        return {}
    done = min(parallelism, completions) - max(completions - ended, 0)
    return {_MAIN: done} if done > 0 else {}


def _indexes(text: str) -> set[int]:
    ranges = (part.split("-") for part in text.split(",") if part)
    return {index for ends in ranges for index in range(int(ends[0]), int(ends[-1]) + 1)}


def _job_release(job: Object, infos: tuple[PodSetInfo, ...]) -> list[Object]:
    """Unsuspend; the flavor's labels and tolerations go into the pod template in the same write."""
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    patch: list[Object] = [
        _uid_test(job),
        {"op": "test", "path": "/spec/suspend", "value": True},
    ]
    for info in infos:
        if info.name != _MAIN:
            continue
        if info.node_selector:
            selector = {**(pod.get("nodeSelector") or {}), **info.node_selector}
            path = "/spec/template/spec/nodeSelector"
            patch.append({"op": "add", "path": path, "value": selector})
        if info.tolerations:
            tolerations = [*(pod.get("tolerations") or []), *map(dict, info.tolerations)]
            path = "/spec/template/spec/tolerations"
            patch.append({"op": "add", "path": path, "value": tolerations})
        if info.count < _job_count(job):
            patch += _job_counted(job, info.count)
    patch.append({"op": "replace", "path": "/spec/suspend", "value": False})
    return patch


def _job_counted(job: Object, count: int) -> list[Object]:
    annotations = job["metadata"].get("annotations") or {}
    if "kueue.x-k8s.io/job-min-parallelism" not in annotations:
        return []
    paths = ["/spec/parallelism"]
    if annotations.get("kueue.x-k8s.io/job-completions-equal-parallelism") == "true":
        paths.append("/spec/completions")
    return [{"op": "add", "path": path, "value": count} for path in paths]


_SET_BY_SERVER = (
    *("controller-uid", "job-name"),
    *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
)


def _job_restore(job: Object, pod_sets: list[Object]) -> list[Object] | None:
    """Labels, placement and parallelism as in the pod set `main` (Kueue's `RestorePodSetsInfo`)."""
    main = next((p for p in pod_sets if p.get("name") == _MAIN), None)
    if main is None:
        return None
    now = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    was = (main.get("template") or {}).get("spec") or {}
    patch: list[Object] = []
    metadata = ((job.get("spec") or {}).get("template") or {}).get("metadata") or {}
    original = (main.get("template") or {}).get("metadata") or {}
    for field in ("labels", "annotations"):
        there, wanted = metadata.get(field) or {}, dict(original.get(field) or {})
        wanted |= {key: there[key] for key in _SET_BY_SERVER if key in there}
        path = f"/spec/template/metadata/{field}"
        if there != wanted:
            patch.append(
                {"op": "add", "path": path, "value": wanted}
                if wanted
                else {"op": "remove", "path": path}
            )
    for field in ("nodeSelector", "tolerations"):
        before, after = now.get(field) or None, was.get(field) or None
        path = f"/spec/template/spec/{field}"
        if after is not None and before != after:
            patch.append({"op": "add", "path": path, "value": after})
        elif after is None and before is not None:
            patch.append({"op": "remove", "path": path})
    count = main.get("count")
    if isinstance(count, int) and _job_count(job) < count:
        patch += _job_counted(job, count)
    if not patch:
        return None
    return [_uid_test(job), {"op": "test", "path": "/spec/suspend", "value": True}, *patch]


def _job_hold(job: Object) -> list[Object]:
    return [_uid_test(job), {"op": "add", "path": "/spec/suspend", "value": True}]


def _job_carry(job: Object) -> Object:
    spec = {key: value for key, value in job["spec"].items() if key != "managedBy"}
    if spec.get("manualSelector"):
        return spec
    spec.pop("selector", None)
    template = spec["template"]
    metadata = template.get("metadata") or {}
    if "labels" not in metadata:
        return spec
    labels = {k: v for k, v in metadata["labels"].items() if k not in _JOB_OWN_LABELS}
    return spec | {"template": template | {"metadata": metadata | {"labels": labels}}}


JOB: Final = Functions(
    held=lambda job: bool((job.get("spec") or {}).get("suspend")),
    active=_job_active,
    ready=_job_ready,
    finish=_job_finish,
    pod_sets=_job_pod_sets,
    reclaimable=_job_reclaimable,
    release=_job_release,
    hold=_job_hold,
    carry=_job_carry,
    stop=_job_hold,
    restore=_job_restore,
)
