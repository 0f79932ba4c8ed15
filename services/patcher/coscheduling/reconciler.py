"""Creates placeholders before a run starts, and removes them when it has ended.

`plan.next_step` says what to do. Every write can be the last before a crash: each call starts from
what exists.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.patches import JsonPatch, remove_finalizer
from services.patcher.cluster.writer import Writer, create_or_get, get_or_none
from services.patcher.coscheduling.plan import (
    AnnotateRun,
    AnnotateWorkload,
    CreateClaim,
    CreatePlaceholder,
    DeletePod,
    Ready,
    RunState,
    Wait,
    claim_object,
    has_placeholders,
    next_step,
    placeholder_stateful_set,
)
from shared.bus.port import LaterError
from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    COSCHEDULED_ANNOTATION,
    COSCHEDULED_RUN_LABEL,
    FEATURE_FLAGS,
    KEEP_ANNOTATION,
    NODE_SLOTS,
    PENDING,
    RUN_LABEL,
    CoscheduleError,
    Mode,
)
from shared.contracts.kube.bodies import Body, annotations_of, pod_has_ended, spec_of
from shared.contracts.kube.kinds import (
    CONFIG_MAP,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    PIPELINE_RUN,
    POD,
    STATEFUL_SET,
    WORKLOAD,
    Kind,
)
from shared.contracts.kube.names import COSCHEDULE, PVC_PROTECTION
from shared.contracts.messages.admissions import Admission
from shared.kube.port import Kube, KubeError, NotFoundError, RefusedError

log = structlog.get_logger(__name__)

WAIT_SECONDS_MIN: Final = 0.5
WAIT_SECONDS_MAX: Final = 15.0
WAIT_SHARE: Final = 0.25
"""Share of the time waited so far after which the placeholder is checked again: a back-off."""

ENDING_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoschedulingReconciler:
    """The placeholders of one cluster's runs."""

    kube: Kube
    cache: ObjectCache
    writer: Writer
    events: EventRecorder
    now: Callable[[], datetime]
    image: str
    tekton_namespace: str
    cordon_check_seconds: float
    """Interval at which placeholders on cordoned nodes are looked for."""

    # --- before a run starts -----------------------------------------------------------------------

    async def prepare(
        self, run: Body, workload: Body, admission: Admission, selector: Mapping[str, str]
    ) -> None:
        """Do what is missing before the run may start; return when it may. `selector`: of its flavors.

        Raises `LaterError` while the cluster works, and `RefusedError` if the run cannot be
        coscheduled as it asks.
        """
        annotations = annotations_of(run)
        current = annotations_of(workload).get(COSCHEDULED_ANNOTATION)
        stale = coscheduling.placeholder_annotations(annotations) if current is None else ()
        if not _is_run(run) or not (COSCHEDULE in annotations or current or stale):
            return
        if spec_of(run).get("status") != PENDING:
            return  # It was started: annotations have no effect on its pods any more.
        mode = await self._mode(run, admission)
        if current not in {None, mode}:
            # Its user changed the mode: what was created for the other mode goes first.
            workload = await self.withdraw(run, workload)
        for key in stale:
            # The run is a copy of another one, with the annotations of that one's placeholders.
            run = await self._annotate_run(run, key, None)
        if mode is None:
            return
        state = await self._read_state(run, mode, workload)
        while not isinstance(step := next_step(state), Ready):
            match step:
                case AnnotateWorkload():
                    state.workload = await self._annotate_workload(state.workload, mode)
                case CreateClaim():
                    claim = claim_object(state.run, mode, step.claim)
                    state.claims[step.claim.name], _ = await create_or_get(
                        self.kube, PERSISTENT_VOLUME_CLAIM, claim
                    )
                case CreatePlaceholder():
                    stateful_set = placeholder_stateful_set(
                        state.run, mode, step.placeholder, image=self.image, node_selector=selector
                    )
                    state.stateful_sets[step.placeholder.name], _ = await create_or_get(
                        self.kube, STATEFUL_SET, stateful_set
                    )
                case DeletePod():
                    await self._delete(POD, step.pod)
                    state.pods[step.placeholder.name] = None
                case AnnotateRun():
                    state.run = await self._annotate_run(state.run, step.key, step.value)
                case Wait():
                    if step.unschedulable:
                        self.events.record(
                            PIPELINE_RUN, run, "AnchorUnschedulable", step.reason, type_="Warning"
                        )
                    raise LaterError(step.reason, delay_seconds=self._wait_seconds(state))

    async def _mode(self, run: Body, admission: Admission) -> Mode | None:
        """The mode for which placeholders are needed; None if none are."""
        try:
            mode = coscheduling.mode_of(run)
            if mode is None:
                return None
            mechanism = coscheduling.mechanism_for(
                mode, tekton=await self._tekton_setting(), claims=coscheduling.claims_of(run)
            )
        except CoscheduleError as error:
            raise RefusedError(str(error), reason="Coscheduling") from error
        if mode == "isolate-pipelinerun" and not any(
            NODE_SLOTS in pod_set.usage for pod_set in admission.pod_sets
        ):
            raise RefusedError(
                f"annotation {COSCHEDULE}: {mode!r} needs a node of its own, but the run has "
                f"no {NODE_SLOTS}: it lacks the annotation {coscheduling.NODE_SLOTS_ANNOTATION}, "
                "which is set when a run is created",
                reason="Coscheduling",
            )
        needed = mechanism == "placeholders" and bool(coscheduling.placeholders_of(run, mode))
        return mode if needed else None

    async def _tekton_setting(self) -> str:
        """Tekton's own mode for the whole cluster. Tekton reads it for each run, and so do we."""
        flags = await get_or_none(self.kube, CONFIG_MAP, self.tekton_namespace, FEATURE_FLAGS)
        data = (flags.get("data") if flags else None) or {}
        return data.get("coschedule") or coscheduling.TEKTON_DEFAULT

    async def _read_state(self, run: Body, mode: Mode, workload: Body) -> RunState:
        namespace = run["metadata"]["namespace"]
        state = RunState(run=run, mode=mode, workload=workload)
        if not has_placeholders(workload):
            return state  # The first step annotates the Workload; it needs no other object.
        for claim in coscheduling.claims_of(run):
            if claim.template is not None:
                state.claims[claim.name] = await get_or_none(
                    self.kube, PERSISTENT_VOLUME_CLAIM, namespace, claim.name
                )
        for placeholder in coscheduling.placeholders_of(run, mode):
            name = placeholder.name
            state.stateful_sets[name] = await get_or_none(self.kube, STATEFUL_SET, namespace, name)
            pod = await get_or_none(self.kube, POD, namespace, f"{name}-0")
            state.pods[name] = pod
            if pod is not None and (node := pod["spec"].get("nodeName")):
                state.nodes[node] = await get_or_none(self.kube, NODE, None, node)
        return state

    async def _annotate_workload(self, workload: Body, mode: Mode | None) -> Body:
        """Write the mode into the annotation of the Workload; None removes it."""

        def patch(current: Body) -> dict[str, Any] | None:
            if has_placeholders(current) == (mode is not None):
                return None
            uid = current["metadata"]["uid"]
            return {"metadata": {"uid": uid, "annotations": {COSCHEDULED_ANNOTATION: mode}}}

        return await self.writer.patch(WORKLOAD, workload, patch)

    async def _annotate_run(self, run: Body, key: str, value: str | None) -> Body:
        def patch(current: Body) -> JsonPatch | None:
            return _annotation_patch(current, key, value)

        return await self.writer.patch(PIPELINE_RUN, run, patch)

    def _wait_seconds(self, state: RunState) -> float:
        """A share of the time since the last placeholder was created."""
        created = [
            datetime.fromisoformat(found["metadata"]["creationTimestamp"])
            for found in state.stateful_sets.values()
            if found is not None
        ]
        waited = (self.now() - max(created)).total_seconds() if created else 0.0
        return min(max(waited * WAIT_SHARE, WAIT_SECONDS_MIN), WAIT_SECONDS_MAX)

    # --- afterwards --------------------------------------------------------------------------------

    async def withdraw(self, run: Body, workload: Body) -> Body:
        """Remove what was created for a run that lost its quota before it started.

        Returns the Workload as it is then. A run that a user started meanwhile keeps its placeholders,
        because its pods follow them. Raises `LaterError` while placeholders end.
        """
        if not has_placeholders(workload):
            return workload
        namespace, name = run["metadata"]["namespace"], run["metadata"]["name"]
        current = await self.writer.get(PIPELINE_RUN, namespace, name)
        if current is None or current["metadata"]["uid"] != run["metadata"]["uid"]:
            return workload  # The garbage collector removes what the run owned.
        if spec_of(current).get("status") != PENDING:
            return workload
        annotations = annotations_of(current)
        for key in coscheduling.placeholder_annotations(annotations):
            current = await self._annotate_run(current, key, None)
        await self._remove_all(namespace, run["metadata"]["uid"], keep_claims=False)
        return await self._annotate_workload(workload, None)

    async def clean_up(self, run_name: str, run_uid: str, workload: Body) -> None:
        """Remove the placeholders of a run that has ended, and its claims if its mode says so.

        Raises `LaterError` while pods of the run still end.
        """
        if not has_placeholders(workload):
            return
        namespace = workload["metadata"]["namespace"]
        tasks = await self.kube.list(POD, namespace=namespace, labels=f"{RUN_LABEL}={run_name}")
        if not all(map(pod_has_ended, tasks.items)):
            # The placeholder keeps other runs off the node until then.
            raise LaterError(f"pods of {run_name} still end", delay_seconds=ENDING_SECONDS)
        await self._remove_all(namespace, run_uid, keep_claims=True)

    async def _remove_all(self, namespace: str, run_uid: str, *, keep_claims: bool) -> None:
        """Delete placeholders, then claims. `keep_claims` spares those that outlive their run."""
        labels = f"{COSCHEDULED_RUN_LABEL}={run_uid}"
        for one in await self._list(STATEFUL_SET, namespace, labels):
            await self._delete(STATEFUL_SET, one)
        if await self._list(POD, namespace, labels):
            raise LaterError("placeholders still end", delay_seconds=ENDING_SECONDS)
        for claim in await self._list(PERSISTENT_VOLUME_CLAIM, namespace, labels):
            if keep_claims and KEEP_ANNOTATION in annotations_of(claim):
                continue
            await self._delete(PERSISTENT_VOLUME_CLAIM, claim)
            await self._remove_protection(claim)

    async def _remove_protection(self, claim: Body) -> None:
        """Let a deleted claim go although ended pods still name it, as Tekton does."""
        patch = remove_finalizer(claim, PVC_PROTECTION)
        if patch is None:
            return
        metadata = claim["metadata"]
        with suppress(NotFoundError):  # No pod named it any more.
            await self.kube.patch(
                PERSISTENT_VOLUME_CLAIM, metadata["namespace"], metadata["name"], patch
            )

    # --- while runs go on --------------------------------------------------------------------------

    async def run(self) -> None:
        """Move placeholders off cordoned nodes until cancelled.

        Otherwise a later task of the run must go to a node that takes no pods, and waits forever
        (tektoncd/pipeline#6586). Running tasks stay where they are.
        """
        while True:
            await asyncio.sleep(self.cordon_check_seconds)
            if not any(has_placeholders(workload) for workload in self.cache.objects(WORKLOAD)):
                continue
            try:
                await self.leave_cordoned_nodes()
            except KubeError as error:
                log.warning("cannot check placeholders; trying again", error=str(error))

    async def leave_cordoned_nodes(self) -> None:
        """Delete the pods of placeholders on cordoned nodes once; their StatefulSets replace them."""
        pods = await self.kube.list(POD, labels=COSCHEDULED_RUN_LABEL)
        nodes: dict[str, Body | None] = {}
        for pod in pods.items:
            name = pod["spec"].get("nodeName")
            if not name or "deletionTimestamp" in pod["metadata"]:
                continue
            if name not in nodes:
                nodes[name] = await get_or_none(self.kube, NODE, None, name)
            node = nodes[name]
            if node is not None and spec_of(node).get("unschedulable"):
                pod_name = pod["metadata"]["name"]
                log.info("a placeholder leaves a cordoned node", node=name, pod=pod_name)
                await self._delete(POD, pod)

    # --- single calls ------------------------------------------------------------------------------

    async def _list(self, kind: Kind, namespace: str, labels: str) -> list[Body]:
        return (await self.kube.list(kind, namespace=namespace, labels=labels)).items

    async def _delete(self, kind: Kind, obj: Body) -> None:
        metadata = obj["metadata"]
        with suppress(NotFoundError):
            await self.kube.delete(
                kind, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )


def _is_run(obj: Body) -> bool:
    """True for a PipelineRun: no other kind has workspaces and tasks."""
    return obj.get("kind") == PIPELINE_RUN.kind and obj.get("apiVersion", "").startswith(
        f"{PIPELINE_RUN.group}/"
    )


def _annotation_patch(run: Body, key: str, value: str | None) -> JsonPatch | None:
    """Set an annotation of a run that has not started, None removes it. None if that is done."""
    metadata = run["metadata"]
    if (metadata.get("annotations") or {}).get(key) == value:
        return None
    path = "/metadata/annotations/" + key.replace("/", "~1")
    change: dict[str, Any] = {"op": "remove", "path": path}
    if value is not None:
        change = {"op": "add", "path": path, "value": value}
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/spec/status", "value": PENDING},
        change,
    ]
