"""What is to be done next for a run whose pods shall be together, and the objects for it. Pure.

The table is `next_step`: from what is observed it tells the first thing that is missing. Nothing is
remembered between two steps, so a crash after any write goes on where it stopped. Objects are made
like Tekton's own (`research/tekton.md` 4.2), but for what `docs/how-to/coschedule.md` says.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    ASSISTANT_COMPONENT,
    COMPONENT_LABEL,
    COSCHEDULED_RUN_LABEL,
    INSTANCE_LABEL,
    PER_RUN,
    RUN_LABEL,
    RUN_UID_LABEL,
    WORKSPACE_LABEL,
    Claim,
    Mode,
    Placeholder,
)
from shared.contracts.kube.conditions import find_condition, has_status, message_of
from shared.contracts.kube.kinds import Object

__all__ = [
    "KEEP",
    "MARK",
    "PENDING",
    "CreateClaim",
    "CreatePlaceholder",
    "LeadTasks",
    "MarkWorkload",
    "MovePlaceholder",
    "Ready",
    "Seen",
    "Step",
    "Wait",
    "claim_object",
    "is_marked",
    "next_step",
    "placeholder_stateful_set",
]

MARK: Final = "sluicegate.dev/coscheduled"
"""Annotation of a Workload: placeholders are there, or are about to be, in this mode. It is written before
the first of them and taken off after the last, so none can be forgotten."""

KEEP: Final = "sluicegate.dev/keep"
"""Annotation of a claim that outlives its run, as claims do in Tekton's mode `workspaces`."""

AUTO_CLEANUP: Final = "tekton.dev/auto-cleanup-pvc"
"""Tekton's annotation of a run that wants those claims deleted all the same."""

PENDING: Final = "PipelineRunPending"
HOSTNAME: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
RESOURCES: Final = {"cpu": "50m", "memory": "100Mi"}
"""Tekton's for its assistants: it holds a place and does nothing."""

SECURITY_CONTEXT: Final = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}

_TEMPLATE_FIELDS: Final = (
    "tolerations",
    "nodeSelector",
    "imagePullSecrets",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
)
"""What a placeholder takes over from the pod template of its run: where it may go, its tasks may."""


# --- the table -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Seen:
    """What is there, as the API server said it just now."""

    run: Object
    mode: Mode
    workload: Object
    claims: dict[str, Object | None] = field(default_factory=dict)
    """Only of those that are made of a template; the others are their users' business."""

    sets: dict[str, Object | None] = field(default_factory=dict)
    pods: dict[str, Object | None] = field(default_factory=dict)
    """By the name of their placeholder."""

    nodes: dict[str, Object | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkWorkload:
    """Write on the Workload that placeholders come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateClaim:
    """Make a claim of its workspace's template, under the name that Tekton looks for."""

    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlaceholder:
    """Create the StatefulSet of a placeholder."""

    placeholder: Placeholder


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done but wait for the cluster."""

    why: str
    unschedulable: bool = False
    """The scheduler says that there is no place: worth telling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlaceholder:
    """Delete the placeholder's pod: it comes back on a node that still takes pods."""

    placeholder: Placeholder
    pod: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadTasks:
    """Say on the run which placeholders there are: its TaskRuns have it from there."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All is there: the run may start."""


Step = MarkWorkload | CreateClaim | CreatePlaceholder | Wait | MovePlaceholder | LeadTasks | Ready


def next_step(seen: Seen) -> Step:
    """The first thing that is missing before the run may start."""
    if not is_marked(seen.workload):
        return MarkWorkload()
    for claim in coscheduling.claims_of(seen.run):
        if claim.template is None:
            continue
        there = seen.claims.get(claim.name)
        if there is None:
            return CreateClaim(claim=claim)
        if "deletionTimestamp" in there["metadata"]:
            return Wait(why=f"claim {claim.name} of an earlier attempt is still being deleted")
    placeholders = coscheduling.placeholders_of(seen.run, seen.mode)
    for placeholder in placeholders:
        found = seen.sets.get(placeholder.name)
        if found is None:
            return CreatePlaceholder(placeholder=placeholder)
        if "deletionTimestamp" in found["metadata"]:
            return Wait(
                why=f"placeholder {placeholder.name} of an earlier attempt is still being deleted"
            )
    for placeholder in placeholders:
        if (step := _placed(seen, placeholder)) is not None:
            return step
    key, value = coscheduling.placeholder_annotation(seen.run, seen.mode)
    if (seen.run["metadata"].get("annotations") or {}).get(key) != value:
        return LeadTasks(key=key, value=value)
    return Ready()


def _placed(seen: Seen, placeholder: Placeholder) -> Step | None:
    """None once the placeholder has a node that takes pods."""
    found, pod = seen.sets[placeholder.name], seen.pods.get(placeholder.name)
    assert found is not None
    if pod is None or "deletionTimestamp" in pod["metadata"] or not _owned(pod, found):
        return Wait(why=f"placeholder {placeholder.name} has no pod yet")
    node = seen.nodes.get(pod["spec"].get("nodeName", ""))
    if not pod["spec"].get("nodeName"):
        said = _unschedulable(pod)
        why = f"placeholder {placeholder.name} has no node yet" + (f": {said}" if said else "")
        return Wait(why=why, unschedulable=bool(said))
    if node is None or (node.get("spec") or {}).get("unschedulable"):
        return MovePlaceholder(placeholder=placeholder, pod=pod)
    return None


def _owned(pod: Object, owner: Object) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == owner["metadata"]["uid"] for one in owners)


def _unschedulable(pod: Object) -> str:
    scheduled = find_condition(pod, "PodScheduled")
    return message_of(scheduled) if has_status(pod, "PodScheduled", "False") else ""


def is_marked(workload: Object) -> bool:
    """Whether placeholders were begun for the workload."""
    return MARK in (workload["metadata"].get("annotations") or {})


# --- the objects -----------------------------------------------------------------------------------


def claim_object(run: Object, mode: Mode, claim: Claim) -> Object:
    """The claim as Tekton would make it, with marks of ours."""
    assert claim.template is not None
    template = deepcopy(dict(claim.template))
    given = template.get("metadata") or {}
    placeholders = coscheduling.placeholders_of(run, mode)
    placeholder = next(a for a in placeholders if claim.name in a.claims)
    told = run["metadata"].get("annotations") or {}
    keeps = mode not in PER_RUN and told.get(AUTO_CLEANUP) != "true"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim.name,
            "namespace": run["metadata"]["namespace"],
            "labels": {
                **(given.get("labels") or {}),
                **_labels(run, placeholder),
                RUN_LABEL: run["metadata"]["name"],
                WORKSPACE_LABEL: claim.workspace,
            },
            "annotations": {
                **(given.get("annotations") or {}),
                **({KEEP: "true"} if keeps else {}),
            },
            "ownerReferences": [_owner(run)],
        },
        "spec": template.get("spec") or {},
    }


def placeholder_stateful_set(
    run: Object,
    mode: Mode,
    placeholder: Placeholder,
    *,
    image: str,
    node_selector: Mapping[str, str],
) -> Object:
    """The StatefulSet that keeps one placeholder alive. `node_selector` comes from the run's flavors."""
    labels = _labels(run, placeholder)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": placeholder.name,
            "namespace": run["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [_owner(run)],
        },
        "spec": {
            "replicas": 1,
            "serviceName": "",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod_spec(run, mode, placeholder, image=image, node_selector=node_selector),
            },
        },
    }


def _pod_spec(
    run: Object,
    mode: Mode,
    placeholder: Placeholder,
    *,
    image: str,
    node_selector: Mapping[str, str],
) -> Object:
    task_template = (run.get("spec") or {}).get("taskRunTemplate") or {}
    given = task_template.get("podTemplate") or {}
    spec: dict[str, Any] = {name: given[name] for name in _TEMPLATE_FIELDS if given.get(name)}
    if selector := {**(given.get("nodeSelector") or {}), **node_selector}:
        spec["nodeSelector"] = selector
    if account := task_template.get("serviceAccountName"):
        spec["serviceAccountName"] = account
    return {
        **spec,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": given.get("securityContext") or SECURITY_CONTEXT,
        "containers": [
            {
                "name": ASSISTANT_COMPONENT,
                "image": image,
                # As much as limited: a guaranteed pod is the last to be thrown off its node.
                "resources": {"requests": RESOURCES, "limits": RESOURCES},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "affinity": _affinity(run, mode, given.get("affinity") or {}),
        # Mounted by nobody: naming them makes the scheduler mind where the volumes can be had.
        "volumes": [
            {"name": f"workspace-{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(placeholder.claims)
        ],
    }


def _affinity(run: Object, mode: Mode, given: Mapping[str, Any]) -> Object:
    """The run's own wishes, and: away from other placeholders, if need be in other namespaces too."""
    others: Object = {
        "labelSelector": {"matchLabels": {COMPONENT_LABEL: ASSISTANT_COMPONENT}},
        "namespaceSelector": {},
        "topologyKey": HOSTNAME,
    }
    affinity = deepcopy(dict(given))
    away = affinity.setdefault("podAntiAffinity", {})
    if mode == "isolate-pipelinerun":
        # Runs without a placeholder are told by their pods: nobody else's task shares the node.
        uid = run["metadata"]["uid"]
        tasks: Object = {
            "labelSelector": {
                "matchExpressions": [
                    {"key": RUN_UID_LABEL, "operator": "Exists"},
                    {"key": RUN_UID_LABEL, "operator": "NotIn", "values": [uid]},
                ]
            },
            "namespaceSelector": {},
            "topologyKey": HOSTNAME,
        }
        away[REQUIRED] = [*(away.get(REQUIRED) or ()), others, tasks]
    else:
        wish = {"weight": 100, "podAffinityTerm": others}
        away[PREFERRED] = [*(away.get(PREFERRED) or ()), wish]
    return affinity


def _labels(run: Object, placeholder: Placeholder) -> dict[str, str]:
    """Labels of a placeholder. Unlike Tekton's they lack the run's own: its queue label must stay off."""
    return {
        COMPONENT_LABEL: ASSISTANT_COMPONENT,
        INSTANCE_LABEL: placeholder.name,
        COSCHEDULED_RUN_LABEL: run["metadata"]["uid"],
    }


def _owner(run: Object) -> Object:
    return {
        "apiVersion": run["apiVersion"],
        "kind": run["kind"],
        "name": run["metadata"]["name"],
        "uid": run["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
