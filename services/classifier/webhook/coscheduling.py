"""What the webhook makes of `sluicegate.dev/coschedule`: checked at creation, counted as quota. Pure.

Whether Tekton's own setting contradicts is not known here: the patcher finds out before it starts the
run (`services/patcher/coscheduling/reconciler.py`), and gives its quota back with that reason.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    PLACEHOLDER_PER_CLAIM,
    PLACEHOLDERS_ANNOTATION,
    CoscheduleError,
    placeholder_name,
)
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object

__all__ = ["check_and_count", "follow_placeholder"]


def check_and_count(annotations: dict[str, str], spec: Mapping[str, Any], *, is_run: bool) -> None:
    """Check a new object's mode, and let an isolated run ask for its node, as for any other quota.

    `annotations` are changed; done twice is done once. Raises `CoscheduleError`.
    """
    for key in coscheduling.placeholder_annotations(annotations):
        del annotations[key]  # A copy of another run must not follow that one's placeholders.
    asked = annotations.get(names.COSCHEDULE)
    if asked is None:
        return
    if not is_run:
        raise CoscheduleError(
            f"annotation {names.COSCHEDULE}: {asked!r}: only PipelineRuns can be coscheduled"
        )
    mode = coscheduling.mode_of({"metadata": {"annotations": annotations}})
    if mode == "isolate-pipelinerun":
        annotations[coscheduling.NODE_SLOTS_ANNOTATION] = "1"
    if mode == "workspaces":
        for task in _tasks_of_two_claims(spec):
            raise CoscheduleError(
                f"annotation {names.COSCHEDULE}: {asked!r}: {coscheduling.SEVERAL_CLAIMS} to task "
                f"{task!r}, and two claims may be on two nodes; 'pipelineruns' allows it"
            )


def follow_placeholder(task_run: Object) -> tuple[Object, ...]:
    """JSON patch that leads a TaskRun to the placeholder of its claim; empty for all but mode `workspaces`.

    In that mode each task follows the claim that it uses, so its run cannot say it for all of them.
    Raises `CoscheduleError`.
    """
    group = str(task_run.get("apiVersion", "")).rpartition("/")[0]
    if (group, task_run.get("kind")) != (kinds.TASK_RUN.group, kinds.TASK_RUN.kind):
        return ()
    metadata = task_run.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if annotations.get(PLACEHOLDERS_ANNOTATION) != PLACEHOLDER_PER_CLAIM:
        return ()
    owners = (
        owner
        for owner in _mappings(metadata.get("ownerReferences"))
        if owner.get("controller") and owner.get("kind") == kinds.PIPELINE_RUN.kind
    )
    run = next(owners, None)
    claims = list(dict.fromkeys(_claims(task_run)))
    if run is None or not claims:
        return ()
    if len(claims) > 1:
        raise CoscheduleError(
            f"annotation {names.COSCHEDULE}: 'workspaces': {coscheduling.SEVERAL_CLAIMS}: "
            f"{', '.join(claims)}"
        )
    path = "/metadata/annotations/" + AFFINITY_ANNOTATION.replace("/", "~1")
    return ({"op": "add", "path": path, "value": placeholder_name(str(run["uid"]), claims[0])},)


def _claims(task_run: Object) -> Iterator[str]:
    for binding in _mappings((task_run.get("spec") or {}).get("workspaces")):
        if claim := (binding.get("persistentVolumeClaim") or {}).get("claimName"):
            yield str(claim)


def _tasks_of_two_claims(spec: Mapping[str, Any]) -> Iterator[str]:
    """Tasks of a pipeline that can be seen in the run itself; the others are seen as TaskRuns."""
    claims: dict[str, str] = {}
    for binding in _mappings(spec.get("workspaces")):
        name = str(binding.get("name", ""))
        brought = binding.get("persistentVolumeClaim")
        if binding.get("volumeClaimTemplate"):
            claims[name] = f"template/{name}"
        elif isinstance(brought, Mapping):
            claims[name] = str(brought.get("claimName"))
    pipeline = spec.get("pipelineSpec")
    if not isinstance(pipeline, Mapping):
        return
    for section in ("tasks", "finally"):
        for task in _mappings(pipeline.get(section)):
            used = (
                use.get("workspace") or use.get("name") for use in _mappings(task.get("workspaces"))
            )
            if len({claims[str(one)] for one in used if str(one) in claims}) > 1:
                yield str(task.get("name", ""))


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """The members of a list that are objects: others are Tekton's webhook to refuse."""
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, Mapping))
