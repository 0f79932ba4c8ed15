"""Tekton's admission webhook: defaults, validation, and which updates are allowed.

Rules and messages were observed on Tekton 1.11: defaults at every write, timeouts that fit each
other, and after creation no change but of `spec.status`.
"""

from collections.abc import Iterable
from typing import Any, Final

from services.simulator.behaviour.clock import format_duration, parse_duration
from services.simulator.behaviour.conditions import condition
from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.errors import ApiError, bad_request
from services.simulator.cluster.kinds.catalogue import PIPELINERUNS, TASKRUNS
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.coscheduling import PENDING
from shared.contracts.kube.names import MANAGED_BY_LABEL

__all__ = ["PENDING", "SPEC_STATUSES", "TektonAdmission", "is_done", "pipeline_seconds"]

SPEC_STATUSES: Final = ("Cancelled", "CancelledRunFinally", "StoppedRunFinally", PENDING)
PIPELINE_SECONDS_DEFAULT: Final = 3600.0


def is_done(obj: Obj) -> bool:
    """Whether a PipelineRun or TaskRun has ended."""
    succeeded = condition(obj, "Succeeded")
    return succeeded is not None and succeeded["status"] != "Unknown"


def pipeline_seconds(obj: Obj) -> float:
    """Return the timeout of a PipelineRun in seconds; 0 means no limit."""
    asked = (obj["spec"].get("timeouts") or {}).get("pipeline")
    seconds = parse_duration(str(asked)) if asked is not None else None
    return PIPELINE_SECONDS_DEFAULT if seconds is None else seconds


class TektonAdmission:
    """Tekton's mutating and validating webhook, as an admission plugin of this process."""

    name = "webhook.pipeline.tekton.dev"

    def __init__(self) -> None:
        self.default_pod_template: dict[str, Any] | None = None
        """``default-pod-template`` of the ConfigMap ``config-defaults``. Setting it while runs
        wait makes Tekton refuse their release."""

    def _concerns(self, request: AdmissionRequest) -> bool:
        return (
            request.kind.resource in {PIPELINERUNS.resource, TASKRUNS.resource}
            and request.operation != "DELETE"
            and not request.subresource
        )

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        """Set the defaults, at creation and at every update."""
        obj = request.obj
        if obj is None or not self._concerns(request):
            return obj
        try:
            return self._with_defaults(request, obj)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _undecodable(self.name, error) from error

    def _with_defaults(self, request: AdmissionRequest, obj: Obj) -> Obj:
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return obj
        if request.kind.resource == TASKRUNS.resource:
            metadata = obj["metadata"]
            labels = {MANAGED_BY_LABEL: "tekton-pipelines", **(metadata.get("labels") or {})}
            spec = {"serviceAccountName": "default", "timeout": "1h0m0s", **spec}
            return {**obj, "metadata": {**metadata, "labels": labels}, "spec": spec}
        pipeline = format_duration(PIPELINE_SECONDS_DEFAULT)
        timeouts = {"pipeline": pipeline, **(spec.get("timeouts") or {})}
        template = {"serviceAccountName": "default", **(spec.get("taskRunTemplate") or {})}
        if self.default_pod_template is not None:
            own = template.get("podTemplate") or {}
            template["podTemplate"] = {**self.default_pod_template, **own}
        return {**obj, "spec": {**spec, "timeouts": timeouts, "taskRunTemplate": template}}

    async def validate(self, request: AdmissionRequest) -> None:
        """Raise 400 for what Tekton refuses."""
        if request.obj is None or not self._concerns(request):
            return
        if request.kind.resource != PIPELINERUNS.resource:
            return
        try:
            faults = _faults(request.obj, request.old)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _undecodable(f"validation.{self.name}", error) from error
        if faults:
            raise bad_request(
                f'admission webhook "validation.{self.name}" denied the request: '
                "validation failed: " + "\n".join(faults)
            )


def _undecodable(webhook: str, error: Exception) -> ApiError:
    """Message for a field of the wrong type, with which Tekton cannot decode the object; else None."""
    return bad_request(
        f'admission webhook "{webhook}" denied the request: '
        f"mutation failed: cannot decode incoming new object: {error}"
    )


def _faults(obj: Obj, old: Obj | None) -> list[str]:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return ["missing field(s): spec"]
    found = list(_spec_faults(spec))
    if old is not None:
        found += _update_faults(old, spec)
    return found


def _spec_faults(spec: Obj) -> Iterable[str]:
    ways = [way for way in ("pipelineRef", "pipelineSpec") if spec.get(way) is not None]
    if len(ways) != 1:
        got = "both" if ways else "neither"
        yield f"expected exactly one, got {got}: spec.pipelineRef, spec.pipelineSpec"
    status = spec.get("status", "")
    if status and status not in SPEC_STATUSES:
        rule = "Cancelled, CancelledRunFinally, StoppedRunFinally or PipelineRunPending"
        yield f"invalid value: {status} should be {rule}: spec.status"
    yield from _twice(spec.get("params"), "spec.params")
    pipeline = spec.get("pipelineSpec")
    if isinstance(pipeline, dict):
        for section in ("tasks", "finally"):
            for index, task in enumerate(pipeline.get(section) or ()):
                where = f"spec.pipelineSpec.{section}[{index}].params"
                yield from _twice(task.get("params"), where)
    yield from _timeout_faults(spec)


def _twice(params: Any, where: str) -> Iterable[str]:
    seen: dict[str, int] = {}
    for param in params or ():
        name = str(param.get("name"))
        seen[name] = seen.get(name, 0) + 1
    for name, times in seen.items():
        if times > 1:
            yield f"expected exactly one, got both: {where}[{name}].name"


def _timeout_faults(spec: Obj) -> Iterable[str]:
    timeouts = spec.get("timeouts") or {}
    limit = pipeline_seconds({"spec": spec})
    parts: dict[str, float] = {}
    for part in ("pipeline", "tasks", "finally"):
        if (asked := timeouts.get(part)) is None:
            continue
        seconds = parse_duration(str(asked))
        if seconds is None:
            yield f"invalid value: {asked} is not a duration: spec.timeouts.{part}"
            continue
        parts[part] = seconds
        if part != "pipeline" and limit and seconds > limit:
            shown = format_duration(seconds)
            yield f"invalid value: {shown} should be <= pipeline duration: spec.timeouts.{part}"
    total = parts.get("tasks", 0.0) + parts.get("finally", 0.0)
    if limit and {"tasks", "finally"} <= parts.keys() and total > limit:
        shown = f"{format_duration(parts['tasks'])} + {format_duration(parts['finally'])}"
        yield (
            f"invalid value: {shown} should be <= pipeline duration: "
            "spec.timeouts.tasks, spec.timeouts.finally"
        )


def _update_faults(old: Obj, spec: Obj) -> Iterable[str]:
    before = old["spec"]
    if is_done(old):
        if before != spec:
            yield "invalid value: Once the PipelineRun is complete, no updates are allowed: spec"
        return
    started = (old.get("status") or {}).get("startTime")
    asked = spec.get("status", "")
    if started and asked == PENDING and before.get("status", "") != PENDING:
        yield "invalid value: PipelineRun cannot be Pending after it is started: spec.status"
    if _without_status(before) != _without_status(spec):
        yield "invalid value: Once the PipelineRun has started, only status updates are allowed: spec"


def _without_status(spec: Obj) -> Obj:
    return {key: value for key, value in spec.items() if key != "status"}
