"""What to do next for a coscheduled run, and the objects to create for it. Pure.

`next_step` is the table: it returns the first step that is missing in the observed state. Nothing is
remembered between two steps, so after a crash the next call continues. The objects are those of
Tekton's affinity assistant (`tektoncd/pipeline` `pkg/reconciler/pipelinerun/affinity_assistant.go`),
except for the differences in `docs/how-to/coschedule.md`.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    ASSISTANT_COMPONENT,
    AUTO_CLEANUP_ANNOTATION,
    COMPONENT_LABEL,
    COSCHEDULED_ANNOTATION,
    COSCHEDULED_RUN_LABEL,
    INSTANCE_LABEL,
    KEEP_ANNOTATION,
    PER_RUN,
    RUN_LABEL,
    RUN_UID_LABEL,
    WORKSPACE_LABEL,
    Claim,
    Mode,
    Placeholder,
)
from shared.contracts.kube.bodies import Body, OwnerReference, annotations_of, spec_of
from shared.contracts.kube.conditions import find_condition, has_status, message_of
from shared.contracts.kube.kinds import PERSISTENT_VOLUME_CLAIM, STATEFUL_SET
from shared.contracts.kube.names import (
    HOSTNAME,
    PREFERRED_WHILE_SCHEDULING,
    REQUIRED_WHILE_SCHEDULING,
)

RESOURCES: Final = {"cpu": "50m", "memory": "100Mi"}
"""The requests and limits of Tekton's affinity assistant."""

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
"""Fields of the run's pod template that a placeholder copies, so that both fit on the same nodes."""


# --- the table -------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run and the objects around it, as just read from the API server."""

    run: Body
    mode: Mode
    workload: Body
    claims: dict[str, Body | None] = field(default_factory=dict)
    """By name. Only those created from a template; the others belong to users."""

    stateful_sets: dict[str, Body | None] = field(default_factory=dict)
    """By the name of the placeholder. So are the pods."""

    pods: dict[str, Body | None] = field(default_factory=dict)
    nodes: dict[str, Body | None] = field(default_factory=dict)
    """The nodes of the pods, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateWorkload:
    """Annotate the Workload before the first placeholder is created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateClaim:
    """Create a claim from the template of its workspace, under the name that Tekton computes."""

    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePlaceholder:
    """Create the StatefulSet of a placeholder."""

    placeholder: Placeholder


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait for the cluster."""

    reason: str
    unschedulable: bool = False
    """True if the scheduler finds no node: users get an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete the placeholder's pod, so that its StatefulSet creates one on a schedulable node."""

    placeholder: Placeholder
    pod: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotateRun:
    """Annotate the run with its placeholders. Tekton copies annotations to TaskRuns."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The run may start."""


Step = AnnotateWorkload | CreateClaim | CreatePlaceholder | Wait | DeletePod | AnnotateRun | Ready


def next_step(state: RunState) -> Step:
    """The first step that is missing before the run may start."""
    if not has_placeholders(state.workload):
        return AnnotateWorkload()
    for claim in coscheduling.claims_of(state.run):
        if claim.template is None:
            continue
        existing = state.claims.get(claim.name)
        if existing is None:
            return CreateClaim(claim=claim)
        if "deletionTimestamp" in existing["metadata"]:
            return Wait(reason=f"claim {claim.name} of an earlier attempt is still being deleted")
    placeholders = coscheduling.placeholders_of(state.run, state.mode)
    for one in placeholders:
        existing = state.stateful_sets.get(one.name)
        if existing is None:
            return CreatePlaceholder(placeholder=one)
        if "deletionTimestamp" in existing["metadata"]:
            return Wait(
                reason=f"placeholder {one.name} of an earlier attempt is still being deleted"
            )
    for one in placeholders:
        if (step := _missing_node(state, one)) is not None:
            return step
    key, value = coscheduling.placeholder_annotation(state.run, state.mode)
    if annotations_of(state.run).get(key) != value:
        return AnnotateRun(key=key, value=value)
    return Ready()


def _missing_node(state: RunState, placeholder: Placeholder) -> Step | None:
    """None if the placeholder has a schedulable node, else what to do about it."""
    stateful_set, pod = state.stateful_sets[placeholder.name], state.pods.get(placeholder.name)
    assert stateful_set is not None
    if pod is None or "deletionTimestamp" in pod["metadata"] or not _owns(stateful_set, pod):
        return Wait(reason=f"placeholder {placeholder.name} has no pod yet")
    node_name = pod["spec"].get("nodeName")
    if not node_name:
        message = _unschedulable_message(pod)
        reason = f"placeholder {placeholder.name} has no node yet"
        return Wait(
            reason=f"{reason}: {message}" if message else reason, unschedulable=bool(message)
        )
    node = state.nodes.get(node_name)
    if node is None or spec_of(node).get("unschedulable"):
        return DeletePod(placeholder=placeholder, pod=pod)
    return None


def _owns(owner: Body, pod: Body) -> bool:
    references = pod["metadata"].get("ownerReferences") or ()
    return any(one.get("uid") == owner["metadata"]["uid"] for one in references)


def _unschedulable_message(pod: Body) -> str:
    """The scheduler's message; empty unless it says that the pod fits on no node."""
    if not has_status(pod, "PodScheduled", "False"):
        return ""
    return message_of(find_condition(pod, "PodScheduled"))


def has_placeholders(workload: Body) -> bool:
    """True from before the first placeholder of a workload is created until all are gone."""
    return COSCHEDULED_ANNOTATION in annotations_of(workload)


# --- the objects -----------------------------------------------------------------------------------


def claim_object(run: Body, mode: Mode, claim: Claim) -> Body:
    """The claim that Tekton would create, with our labels and annotations added."""
    assert claim.template is not None
    template = deepcopy(dict(claim.template))
    given = template.get("metadata") or {}
    placeholders = coscheduling.placeholders_of(run, mode)
    placeholder = next(one for one in placeholders if claim.name in one.claims)
    annotations = annotations_of(run)
    keeps = mode not in PER_RUN and annotations.get(AUTO_CLEANUP_ANNOTATION) != "true"
    return {
        "apiVersion": PERSISTENT_VOLUME_CLAIM.api_version,
        "kind": PERSISTENT_VOLUME_CLAIM.kind,
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
                **({KEEP_ANNOTATION: "true"} if keeps else {}),
            },
            "ownerReferences": [_owner_reference(run)],
        },
        "spec": template.get("spec") or {},
    }


def placeholder_stateful_set(
    run: Body,
    mode: Mode,
    placeholder: Placeholder,
    *,
    image: str,
    node_selector: Mapping[str, str],
) -> Body:
    """The StatefulSet of one placeholder. `node_selector` is that of the run's flavors."""
    labels = _labels(run, placeholder)
    return {
        "apiVersion": STATEFUL_SET.api_version,
        "kind": STATEFUL_SET.kind,
        "metadata": {
            "name": placeholder.name,
            "namespace": run["metadata"]["namespace"],
            "labels": labels,
            "ownerReferences": [_owner_reference(run)],
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
    run: Body,
    mode: Mode,
    placeholder: Placeholder,
    *,
    image: str,
    node_selector: Mapping[str, str],
) -> dict[str, Any]:
    task_template = spec_of(run).get("taskRunTemplate") or {}
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
                # Requests equal limits: a Guaranteed pod is evicted from its node last.
                "resources": {"requests": RESOURCES, "limits": RESOURCES},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "affinity": _affinity(run, mode, given.get("affinity") or {}),
        # No container mounts them: the scheduler then picks a node where all volumes are available.
        "volumes": [
            {"name": f"workspace-{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(placeholder.claims)
        ],
    }


def _affinity(run: Body, mode: Mode, given: Mapping[str, Any]) -> dict[str, Any]:
    """The affinity of the run's pod template, and anti-affinity to placeholders in all namespaces."""
    other_placeholders: dict[str, Any] = {
        "labelSelector": {"matchLabels": {COMPONENT_LABEL: ASSISTANT_COMPONENT}},
        "namespaceSelector": {},
        "topologyKey": HOSTNAME,
    }
    affinity = deepcopy(dict(given))
    anti_affinity = affinity.setdefault("podAntiAffinity", {})
    if mode == "isolate-pipelinerun":
        # Runs without a placeholder are recognised by the pods of their tasks.
        uid = run["metadata"]["uid"]
        other_tasks: dict[str, Any] = {
            "labelSelector": {
                "matchExpressions": [
                    {"key": RUN_UID_LABEL, "operator": "Exists"},
                    {"key": RUN_UID_LABEL, "operator": "NotIn", "values": [uid]},
                ]
            },
            "namespaceSelector": {},
            "topologyKey": HOSTNAME,
        }
        present = anti_affinity.get(REQUIRED_WHILE_SCHEDULING) or ()
        anti_affinity[REQUIRED_WHILE_SCHEDULING] = [*present, other_placeholders, other_tasks]
    else:
        preferred = {"weight": 100, "podAffinityTerm": other_placeholders}
        present = anti_affinity.get(PREFERRED_WHILE_SCHEDULING) or ()
        anti_affinity[PREFERRED_WHILE_SCHEDULING] = [*present, preferred]
    return affinity


def _labels(run: Body, placeholder: Placeholder) -> dict[str, str]:
    """Unlike Tekton's, without the labels of the run: its queue label would queue the StatefulSet."""
    return {
        COMPONENT_LABEL: ASSISTANT_COMPONENT,
        INSTANCE_LABEL: placeholder.name,
        COSCHEDULED_RUN_LABEL: run["metadata"]["uid"],
    }


def _owner_reference(run: Body) -> OwnerReference:
    return {
        "apiVersion": run["apiVersion"],
        "kind": run["kind"],
        "name": run["metadata"]["name"],
        "uid": run["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
