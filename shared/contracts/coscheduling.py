"""Coscheduling per run: its modes, its names, and who serves which mode. Pure.

The modes are Tekton's (TEP-0135), chosen run by run instead of for a whole cluster. What stock Tekton
lets others do is in `research/tekton.md` 4.4: above all it leads the pods of a TaskRun to whatever pod
has the labels that an annotation names.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object

__all__ = [
    "AFFINITY_ANNOTATION",
    "ASSISTANT_COMPONENT",
    "AUTO_CLEANUP_ANNOTATION",
    "COMPONENT_LABEL",
    "COSCHEDULED_ANNOTATION",
    "COSCHEDULED_RUN_LABEL",
    "FEATURE_FLAGS",
    "INSTANCE_LABEL",
    "KEEP_ANNOTATION",
    "MODES",
    "NODE_SLOTS",
    "NODE_SLOTS_ANNOTATION",
    "PENDING",
    "PER_RUN",
    "PLACEHOLDERS_ANNOTATION",
    "PLACEHOLDER_PER_CLAIM",
    "RUN_LABEL",
    "RUN_UID_LABEL",
    "SEVERAL_CLAIMS",
    "TEKTON_DEFAULT",
    "WORKSPACE_LABEL",
    "Claim",
    "CoscheduleError",
    "Mode",
    "Placeholder",
    "Server",
    "claims_of",
    "mode_of",
    "placeholder_annotation",
    "placeholder_annotations",
    "placeholder_name",
    "placeholders_of",
    "served_by",
]

Mode = Literal["disabled", "workspaces", "pipelineruns", "isolate-pipelinerun"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
PER_RUN: Final[tuple[Mode, ...]] = ("pipelineruns", "isolate-pipelinerun")

NODE_SLOTS: Final = "node-slots"
"""The resource that counts nodes for isolated runs: each asks for one. Its quota is how many nodes
may be given to one run each."""

NODE_SLOTS_ANNOTATION: Final = names.REQUESTS_PREFIX + NODE_SLOTS

AFFINITY_ANNOTATION: Final = "pipeline.tekton.dev/affinity-assistant"
"""Tekton's: on a run it is copied to its TaskRuns; the pod of a TaskRun with it must go to the node of
the pod that is labelled with this instance and Tekton's component."""

PLACEHOLDERS_ANNOTATION: Final = "sluicegate.dev/anchored"
PLACEHOLDER_PER_CLAIM: Final = "by-claim"
"""On a run in mode `workspaces`, and so on its TaskRuns: each claim has a placeholder, and a task follows
that of its claim. The webhook says so to Tekton when the TaskRun is created."""

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
INSTANCE_LABEL: Final = "app.kubernetes.io/instance"
ASSISTANT_COMPONENT: Final = "affinity-assistant"
"""Tekton's word: a placeholder of ours and an assistant of Tekton's keep away from each other, too."""

RUN_LABEL: Final = "tekton.dev/pipelineRun"
RUN_UID_LABEL: Final = "tekton.dev/pipelineRunUID"
WORKSPACE_LABEL: Final = "tekton.dev/workspace"
COSCHEDULED_RUN_LABEL: Final = "sluicegate.dev/coscheduled-run"
"""On placeholders, and on claims that were made for one: the uid of their run."""

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
"""Tekton's sentence for a task of two claims, where claims choose the node."""

TEKTON_DEFAULT: Final[Mode] = "workspaces"
"""What Tekton does where its ConfigMap `feature-flags` says nothing."""

PLACEHOLDER_PREFIX: Final = "sluicegate-anchor-"
DIGEST_LENGTH: Final = 10

Server = Literal["nobody", "tekton", "placeholders"]
"""What brings the pods of a run together: nothing has to, Tekton does, or placeholders of the patcher."""


class CoscheduleError(ValueError):
    """What a run asks for cannot be. The text names the annotation, its value and the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that a workspace of a run is bound to."""

    workspace: str
    name: str
    template: Mapping[str, Any] | None = None
    """What it is to be made of; None for one that its user brought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """A placeholder pod that pods of a run follow, and the claims that it mounts."""

    name: str
    claims: tuple[str, ...]


def mode_of(obj: Object) -> Mode | None:
    """The mode that a run asks for; None if it asks for none. Raises `CoscheduleError`."""
    asked = ((obj.get("metadata") or {}).get("annotations") or {}).get(names.COSCHEDULE)
    if asked is None:
        return None
    for mode in MODES:
        if asked == mode:
            return mode
    raise CoscheduleError(
        f"annotation {names.COSCHEDULE}: {asked!r} is not one of {', '.join(MODES)}"
    )


def claims_of(run: Object) -> tuple[Claim, ...]:
    """The claims behind a run's workspaces, in their order; the names are Tekton's own for its uid."""
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
    """Name a placeholder: of the whole run, or of one of its claims.

    A pure function, so that whoever comes after a crash finds what was made before it.
    """
    return PLACEHOLDER_PREFIX + _digest(f"{run_uid}/{claim}")


def placeholder_annotations(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The annotations among these that lead to placeholders of ours: on a copy, to those of another run."""
    return tuple(
        key
        for key in (AFFINITY_ANNOTATION, PLACEHOLDERS_ANNOTATION)
        if key in annotations
        and (key == PLACEHOLDERS_ANNOTATION or annotations[key].startswith(PLACEHOLDER_PREFIX))
    )


def placeholders_of(run: Object, mode: Mode) -> tuple[Placeholder, ...]:
    """The placeholders that a run needs: one for all of it, or one for each of its claims."""
    uid, claims = run["metadata"]["uid"], claims_of(run)
    if mode in PER_RUN:
        return (Placeholder(name=placeholder_name(uid), claims=tuple(c.name for c in claims)),)
    if mode == "workspaces":
        return tuple(
            Placeholder(name=placeholder_name(uid, c.name), claims=(c.name,)) for c in claims
        )
    return ()


def placeholder_annotation(run: Object, mode: Mode) -> tuple[str, str]:
    """Key and value of the annotation by which the tasks of a run find their placeholders."""
    if mode in PER_RUN:
        return AFFINITY_ANNOTATION, placeholder_name(run["metadata"]["uid"])
    return PLACEHOLDERS_ANNOTATION, PLACEHOLDER_PER_CLAIM


def served_by(mode: Mode, *, tekton: str, claims: Iterable[Claim]) -> Server:
    """Who serves `mode` where Tekton itself is set to `tekton`.

    Raises `CoscheduleError` where that contradicts: Tekton's setting wins over what any run says.
    """
    if mode == tekton:
        return "nobody" if mode == "disabled" else "tekton"
    if tekton == "disabled":
        return "placeholders"
    if tekton == "workspaces" and not tuple(claims):
        # Without a claim it does nothing, and leaves alone what others say.
        return "nobody" if mode == "disabled" else "placeholders"
    raise CoscheduleError(
        f"annotation {names.COSCHEDULE}: {mode!r} contradicts Tekton's own setting coschedule: "
        f"{tekton!r} (ConfigMap feature-flags)"
        + (", which decides for runs with claims" if tekton == "workspaces" else "")
        + "; with 'disabled' there, every run may choose"
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
