"""A Workload that a user wrote for a job that comes later: the job names it, and takes it if it fits.

The annotation is Kueue's `kueue.x-k8s.io/prebuilt-workload-name`, or a label of that name. A job that names a
Workload never gets another. What makes the two fit follows
kubernetes-sigs/kueue@ff69552 pkg/controller/jobframework/reconciler.go (EquivalentToWorkload).
"""

from collections.abc import Mapping
from typing import Any, Final

from services.classifier.projection.workload_status import has_quota
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, labels_of, spec_of
from shared.contracts.kube.conditions import FINISHED, is_true
from shared.contracts.kube.names import ORIGIN, PREBUILT_WORKLOAD
from shared.contracts.kube.numbers import whole_number
from shared.contracts.kube.quantities import QuantityError, amount
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import prebuilt_workload_of
from shared.contracts.refs import ObjectRef, WorkloadRef
from shared.integrations import Integration

_DEFAULTED: Final = ("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy")
"""Fields of a container that the API server fills in a job, and in no Workload."""


def named_workload(job: Body) -> str | None:
    """The Workload that the job's user names; None for none, and for a copy of another cluster's job."""
    return None if ORIGIN in labels_of(job) else prebuilt_workload_of(job) or None


def why_not(job: Body, integration: Integration, workload: Body | None, name: str) -> str | None:
    """Why the job cannot have the Workload that it names; None if it can."""
    if workload is None:
        return f"{_what(name)} does not exist: create it, or remove the label {PREBUILT_WORKLOAD}"
    for owner in workload["metadata"].get("ownerReferences") or []:
        if owner.get("controller") and owner.get("uid") != job["metadata"]["uid"]:
            return f"{_what(name)} belongs to {owner.get('kind')} {owner.get('name')}"
    if "deletionTimestamp" in workload["metadata"]:
        return f"{_what(name)} is being deleted"
    if has_quota(workload) and not names.may_be_of(workload, ""):
        return (
            None  # It was taken when it fitted; what the job has since is what the admission added.
        )
    if is_true(workload, FINISHED):
        return f"{_what(name)} is finished"
    limit = whole_number(labels_of(job).get(names.MAX_EXECUTION, ""))
    if spec_of(workload).get("maximumExecutionTimeSeconds") != limit:
        return f"{_what(name)}: spec.maximumExecutionTimeSeconds is not that of the job"
    problem = _difference(integration.pod_sets(job), spec_of(workload).get("podSets") or [])
    return None if problem is None else f"{_what(name)}: {problem}"


def _what(name: str) -> str:
    return f"Workload {name}, which the job names,"


def _difference(of_job: list[Any], of_workload: list[Any]) -> str | None:
    """The first pod set that differs, in words; None if they are equal."""
    if len(of_job) != len(of_workload):
        return f"it has {len(of_workload)} pod sets, and the job {len(of_job)}"
    for asked, written in zip(of_job, of_workload, strict=True):
        for field in ("count", "minCount"):
            one, other = (pod_set.get(field) for pod_set in (asked, written))
            if one != other:
                where = f"{field} of pod set {written.get('name')}"
                return f"{where} is {other}, and {one} in the job"
        pod, theirs = (_pod(pod_set) for pod_set in (asked, written))
        for field in ("tolerations", "initContainers", "containers"):
            if _plain(pod.get(field)) != _plain(theirs.get(field)):
                return f"{field} of pod set {written.get('name')} are not those of the job"
    return None


def _pod(pod_set: Mapping[str, Any]) -> Mapping[str, Any]:
    return (pod_set.get("template") or {}).get("spec") or {}


def _plain(value: Any, key: str = "") -> Any:
    """`value` without what is empty or a default, and quantities as numbers."""
    if isinstance(value, dict):
        quantities = key in {"requests", "limits"}
        items = ((k, _amount(k, v) if quantities else _plain(v, k)) for k, v in value.items())
        return {k: v for k, v in items if v not in (None, {}, []) and k not in _DEFAULTED}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _amount(resource: str, text: Any) -> Any:
    try:
        return amount(resource, str(text))
    except QuantityError:
        return text


class WaitingJobs:
    """Jobs that wait for the Workloads that their users name."""

    def __init__(self) -> None:
        self._wanted: dict[ObjectRef, WorkloadRef] = {}
        self._waiting: dict[WorkloadRef, dict[ObjectRef, tuple[Observed, Integration]]] = {}

    def add(
        self, job: ObjectRef, workload: WorkloadRef, observed: Observed, integration: Integration
    ) -> None:
        """Remember a job that does not have its Workload yet."""
        self.forget(job)
        self._wanted[job] = workload
        self._waiting.setdefault(workload, {})[job] = (observed, integration)

    def forget(self, job: ObjectRef) -> None:
        """Forget a job that has its Workload, or is gone."""
        workload = self._wanted.pop(job, None)
        if workload is not None:
            del self._waiting[workload][job]
            if not self._waiting[workload]:
                del self._waiting[workload]

    def of(self, workload: WorkloadRef) -> list[tuple[Observed, Integration]]:
        """The jobs to read again when that Workload, or who has it, changes."""
        return list(self._waiting.get(workload, {}).values())
