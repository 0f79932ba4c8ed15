"""Coscheduling of one run's pods: modes, names, and what implements which mode. Pure.

The modes are Tekton's (TEP-0135), chosen for each run instead of for a whole cluster. Tekton gives the
pods of a TaskRun a required affinity to the pod that the annotation `AFFINITY_ANNOTATION` names. With
Tekton's own coscheduling disabled, the patcher creates that pod: a placeholder.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of

Mode = Literal["disabled", "workspaces", "pipelineruns", "isolate-pipelinerun"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
PER_RUN: Final[tuple[Mode, ...]] = ("pipelineruns", "isolate-pipelinerun")

NODE_SLOTS: Final = "node-slots"
"""The resource that counts nodes of isolated runs: each run requests one. Its quota is the number of
nodes that isolated runs may occupy."""

NODE_SLOTS_ANNOTATION: Final = names.REQUESTS_PREFIX + NODE_SLOTS

AFFINITY_ANNOTATION: Final = "pipeline.tekton.dev/affinity-assistant"
"""Tekton's annotation of a run, which Tekton copies to its TaskRuns. The pod of such a TaskRun must go to
the node of the pod that has this value as `INSTANCE_LABEL` and `ASSISTANT_COMPONENT` as component."""

PLACEHOLDERS_ANNOTATION: Final = "sluicegate.dev/anchored"
PLACEHOLDER_PER_CLAIM: Final = "by-claim"
"""Annotation of a run in mode `workspaces`, copied to its TaskRuns: each claim has a placeholder, and a
task follows that of its claim. The webhook sets `AFFINITY_ANNOTATION` when the TaskRun is created."""

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
ASSISTANT_COMPONENT: Final = "affinity-assistant"
"""The component of Tekton's own affinity assistants, so that they and placeholders repel each other."""

RUN_LABEL: Final = "tekton.dev/pipelineRun"
RUN_UID_LABEL: Final = "tekton.dev/pipelineRunUID"
WORKSPACE_LABEL: Final = "tekton.dev/workspace"
COSCHEDULED_RUN_LABEL: Final = "sluicegate.dev/coscheduled-run"
"""Label of placeholders, and of claims created for one: the uid of their run."""

COSCHEDULED_ANNOTATION: Final = "sluicegate.dev/coscheduled"
"""Annotation of a Workload, with the mode, while placeholders may exist for it. It is written before
the first placeholder is created and removed after the last is gone, so that none is left behind."""

KEEP_ANNOTATION: Final = "sluicegate.dev/keep"
"""Annotation of a claim that outlives its run, as claims do in Tekton's mode `workspaces`."""

AUTO_CLEANUP_ANNOTATION: Final = "tekton.dev/auto-cleanup-pvc"
"""Tekton's annotation of a run whose claims are deleted also in mode `workspaces`."""

PENDING: Final = "PipelineRunPending"
"""`spec.status` of a run that does not start yet."""

FEATURE_FLAGS: Final = "feature-flags"
"""Tekton's ConfigMap with its settings for the whole cluster."""

SEVERAL_CLAIMS: Final = "more than one PersistentVolumeClaim is bound"
"""Tekton's message for a task with two claims in mode `workspaces`."""

TEKTON_DEFAULT: Final[Mode] = "workspaces"
"""Tekton's mode if its ConfigMap `feature-flags` names none."""

PLACEHOLDER_PREFIX: Final = "sluicegate-anchor-"
DIGEST_LENGTH: Final = 10

Mechanism = Literal["none", "tekton", "placeholders"]
"""What brings the pods of a run together: nothing, Tekton itself, or placeholders of the patcher."""


class CoscheduleError(ValueError):
    """The mode of a run is impossible. The text names the annotation, its value and the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The PersistentVolumeClaim of a workspace of a run."""

    workspace: str
    name: str
    template: Mapping[str, Any] | None = None
    """From which the claim is created; None for a claim that exists already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """A pod that holds a node for the pods of a run, and the claims that it names as volumes."""

    name: str
    claims: tuple[str, ...]


def mode_of(obj: Mapping[str, Any]) -> Mode | None:
    """The mode that the annotation of a run names; None without one. Raises `CoscheduleError`."""
    asked = annotations_of(obj).get(names.COSCHEDULE)
    if asked is None:
        return None
    for mode in MODES:
        if asked == mode:
            return mode
    raise CoscheduleError(
        f"annotation {names.COSCHEDULE}: {asked!r} is not one of {', '.join(MODES)}"
    )


def claims_of(run: Body) -> tuple[Claim, ...]:
    """The claims of a run's workspaces, in their order, under the names that Tekton computes."""
    uid = run["metadata"]["uid"]
    found: dict[str, Claim] = {}
    for binding in (run.get("spec") or {}).get("workspaces") or ():
        workspace = str(binding.get("name", ""))
        template = binding.get("volumeClaimTemplate")
        if template:
            own = (template.get("metadata") or {}).get("name") or "pvc"
            name = f"{own}-{_digest(workspace + uid)}"
            found.setdefault(name, Claim(workspace=workspace, name=name, template=template))
        elif brought := (binding.get("persistentVolumeClaim") or {}).get("claimName"):
            found.setdefault(brought, Claim(workspace=workspace, name=brought))
    return tuple(found.values())


def placeholder_name(run_uid: str, claim: str = "") -> str:
    """Name the placeholder of a whole run, or of one of its claims.

    The name depends on nothing else, so a process finds after a crash what it created before.
    """
    return PLACEHOLDER_PREFIX + _digest(f"{run_uid}/{claim}")


def placeholder_annotations(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of annotations that name placeholders. A copied run has those of the original run."""
    return tuple(
        key
        for key in (AFFINITY_ANNOTATION, PLACEHOLDERS_ANNOTATION)
        if key in annotations
        and (key == PLACEHOLDERS_ANNOTATION or annotations[key].startswith(PLACEHOLDER_PREFIX))
    )


def placeholders_of(run: Body, mode: Mode) -> tuple[Placeholder, ...]:
    """The placeholders that a run needs: one for the run, or one for each of its claims."""
    uid, claims = run["metadata"]["uid"], claims_of(run)
    if mode in PER_RUN:
        return (Placeholder(name=placeholder_name(uid), claims=tuple(c.name for c in claims)),)
    if mode == "workspaces":
        return tuple(
            Placeholder(name=placeholder_name(uid, c.name), claims=(c.name,)) for c in claims
        )
    return ()


def placeholder_annotation(run: Body, mode: Mode) -> tuple[str, str]:
    """Key and value of the annotation by which the tasks of a run find their placeholders."""
    if mode in PER_RUN:
        return AFFINITY_ANNOTATION, placeholder_name(run["metadata"]["uid"])
    return PLACEHOLDERS_ANNOTATION, PLACEHOLDER_PER_CLAIM


def mechanism_for(mode: Mode, *, tekton: str, claims: Iterable[Claim]) -> Mechanism:
    """What implements `mode` if Tekton's own mode is `tekton`.

    Raises `CoscheduleError` if they contradict, because Tekton's mode applies to all runs.
    """
    if mode == tekton:
        return "none" if mode == "disabled" else "tekton"
    if tekton == "disabled":
        return "placeholders"
    if tekton == "workspaces" and not tuple(claims):
        # Without a claim Tekton does nothing, and keeps annotations as they are.
        return "none" if mode == "disabled" else "placeholders"
    raise CoscheduleError(
        f"annotation {names.COSCHEDULE}: {mode!r} contradicts Tekton's own setting coschedule: "
        f"{tekton!r} (ConfigMap feature-flags)"
        + (", which decides for runs with claims" if tekton == "workspaces" else "")
        + "; with 'disabled' there, every run may choose"
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
