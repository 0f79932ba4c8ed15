"""Brings the pods of a run together before it starts, and clears up when it has ended.

The only room that acts on coscheduling. What to do is `placeholder.next_step`; each write may be the last
before a crash, and every repetition finds what was done.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

import structlog

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.events import Events
from services.patcher.cluster.writer import Writer
from services.patcher.coscheduling import plan as table
from services.patcher.coscheduling.plan import (
    CreateClaim,
    CreatePlaceholder,
    LeadTasks,
    MarkWorkload,
    MovePlaceholder,
    Ready,
    Seen,
    Wait,
    is_marked,
)
from shared.bus.port import LaterError
from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    COSCHEDULED_RUN_LABEL,
    NODE_SLOTS,
    RUN_LABEL,
    CoscheduleError,
    Mode,
    Placeholder,
)
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import PIPELINE_RUN, WORKLOAD, Kind, Object
from shared.contracts.messages.admissions import Admission
from shared.kube.port import AlreadyExistsError, Kube, KubeError, NotFoundError, RefusedError

__all__ = ["Placeholders"]

log = structlog.get_logger(__name__)

FEATURE_FLAGS: Final = "feature-flags"
"""Tekton's ConfigMap."""

PROTECTION: Final = "kubernetes.io/pvc-protection"
WAIT_SECONDS_MIN: Final = 0.5
WAIT_SECONDS_MAX: Final = 15.0
WAIT_SHARE: Final = 0.25
"""Of the time waited so far until the next look: soon at first, seldom where it takes long."""

ENDING_SECONDS: Final = 1.0
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class Placeholders:
    """The placeholders of one cluster's runs."""

    def __init__(
        self,
        *,
        kube: Kube,
        mirror: Mirror,
        writer: Writer,
        events: Events,
        now: Callable[[], datetime],
        image: str,
        tekton_namespace: str,
        care_seconds: float,
    ) -> None:
        self._kube = kube
        self._mirror = mirror
        self._writer = writer
        self._events = events
        self._now = now
        self._image = image
        self._tekton_namespace = tekton_namespace
        self._care_seconds = care_seconds

    # --- before a run starts -----------------------------------------------------------------------

    async def prepare(
        self, run: Object, workload: Object, admission: Admission, selector: Mapping[str, str]
    ) -> None:
        """Do what is left to do before the run may start; return when it may.

        Raises `LaterError` while the cluster has to catch up, and `RefusedError` where what the run
        asks for cannot be: its quota goes back with that reason. `selector` is what its flavors ask.
        """
        annotations = run["metadata"].get("annotations") or {}
        marked = (workload["metadata"].get("annotations") or {}).get(table.MARK)
        stale = coscheduling.placeholder_annotations(annotations) if marked is None else ()
        if not is_run(run) or not (names.COSCHEDULE in annotations or marked or stale):
            return
        if (run.get("spec") or {}).get("status") != table.PENDING:
            return  # It was started: nothing leads its pods any more.
        mode = await self._mode(run, admission)
        if marked not in {None, mode}:
            # Its user thought better of it: what was begun in another mode goes first.
            workload = await self.withdraw(run, workload)
        for key in stale:
            run = await self._lead(
                run, key, None
            )  # Copied from another run, with its placeholders.
        if mode is None:
            return
        seen = await self._look(run, mode, workload)
        while not isinstance(step := table.next_step(seen), Ready):
            match step:
                case MarkWorkload():
                    seen.workload = await self._mark(seen.workload, mode)
                case CreateClaim():
                    made = table.claim_object(seen.run, mode, step.claim)
                    seen.claims[step.claim.name] = await self._create(
                        kinds.PERSISTENT_VOLUME_CLAIM, made
                    )
                case CreatePlaceholder():
                    seen.sets[step.placeholder.name] = await self._placeholder(
                        seen, step.placeholder, selector
                    )
                case MovePlaceholder():
                    await self._move(step.pod)
                    seen.pods[step.placeholder.name] = None
                case LeadTasks():
                    seen.run = await self._lead(seen.run, step.key, step.value)
                case Wait():
                    if step.unschedulable:
                        self._events.say(
                            PIPELINE_RUN, run, "AnchorUnschedulable", step.why, type_="Warning"
                        )
                    raise LaterError(step.why, delay_seconds=self._patience(seen))

    async def _mode(self, run: Object, admission: Admission) -> Mode | None:
        """The mode in which placeholders are needed; None where nobody has to do anything."""
        try:
            mode = coscheduling.mode_of(run)
            if mode is None:
                return None
            server = coscheduling.served_by(
                mode, tekton=await self._tekton(), claims=coscheduling.claims_of(run)
            )
        except CoscheduleError as error:
            raise RefusedError(str(error), reason="Coscheduling") from error
        if mode == "isolate-pipelinerun" and not any(
            NODE_SLOTS in pod_set.usage for pod_set in admission.pod_sets
        ):
            raise RefusedError(
                f"annotation {names.COSCHEDULE}: {mode!r} needs a node of its own, but the run has "
                f"no {NODE_SLOTS}: it lacks the annotation {coscheduling.NODE_SLOTS_ANNOTATION}, "
                "which is set when a run is created",
                reason="Coscheduling",
            )
        needed = server == "placeholders" and bool(coscheduling.placeholders_of(run, mode))
        return mode if needed else None

    async def _tekton(self) -> str:
        """Tekton's own setting for the whole cluster. Read anew each time, as Tekton does."""
        found = await self._get(kinds.CONFIG_MAP, self._tekton_namespace, FEATURE_FLAGS)
        data = (found or {}).get("data") or {}
        return str(data.get("coschedule") or coscheduling.TEKTON_DEFAULT)

    async def _look(self, run: Object, mode: Mode, workload: Object) -> Seen:
        namespace = run["metadata"]["namespace"]
        seen = Seen(run=run, mode=mode, workload=workload)
        if not is_marked(workload):
            return seen  # Whatever there is of ours is marked first.
        for claim in coscheduling.claims_of(run):
            if claim.template is not None:
                seen.claims[claim.name] = await self._get(
                    kinds.PERSISTENT_VOLUME_CLAIM, namespace, claim.name
                )
        for placeholder in coscheduling.placeholders_of(run, mode):
            seen.sets[placeholder.name] = await self._get(
                kinds.STATEFUL_SET, namespace, placeholder.name
            )
            pod = await self._get(kinds.POD, namespace, pod_of(placeholder.name))
            seen.pods[placeholder.name] = pod
            if pod is not None and (node := pod["spec"].get("nodeName")):
                seen.nodes[node] = await self._get(kinds.NODE, None, node)
        return seen

    async def _mark(self, workload: Object, mode: Mode) -> Object:
        def patch(current: Object) -> Object | None:
            if is_marked(current):
                return None
            uid = current["metadata"]["uid"]
            return {"metadata": {"uid": uid, "annotations": {table.MARK: mode}}}

        return await self._writer.patch(WORKLOAD, workload, patch)

    async def _placeholder(
        self, seen: Seen, placeholder: Placeholder, selector: Mapping[str, str]
    ) -> Object:
        made = table.placeholder_stateful_set(
            seen.run, seen.mode, placeholder, image=self._image, node_selector=selector
        )
        return await self._create(kinds.STATEFUL_SET, made)

    async def _lead(self, run: Object, key: str, value: str | None) -> Object:
        def patch(current: Object) -> list[Object] | None:
            return _annotation_patch(current, key, value)

        return await self._writer.patch(PIPELINE_RUN, run, patch)

    def _patience(self, seen: Seen) -> float:
        begun = [
            datetime.fromisoformat(found["metadata"]["creationTimestamp"])
            for found in seen.sets.values()
            if found is not None
        ]
        waited = (self._now() - max(begun)).total_seconds() if begun else 0.0
        return min(max(waited * WAIT_SHARE, WAIT_SECONDS_MIN), WAIT_SECONDS_MAX)

    # --- afterwards --------------------------------------------------------------------------------

    async def withdraw(self, run: Object, workload: Object) -> Object:
        """Its quota is gone before it started: take away what was made for it.

        Returns the Workload as it then is. A run that somebody started meanwhile keeps its placeholders,
        for its pods follow them. Raises `LaterError` while placeholders end.
        """
        if not is_marked(workload):
            return workload
        namespace, name = run["metadata"]["namespace"], run["metadata"]["name"]
        current = await self._writer.get(PIPELINE_RUN, namespace, name)
        if current is None or current["metadata"]["uid"] != run["metadata"]["uid"]:
            return workload  # What it owned goes with it.
        if (current.get("spec") or {}).get("status") != table.PENDING:
            return workload
        for key in coscheduling.placeholder_annotations(
            current["metadata"].get("annotations") or {}
        ):
            current = await self._lead(current, key, None)
        await self._clear(namespace, run["metadata"]["uid"], keep=False)

        def unmarked(one: Object) -> Object | None:
            if not is_marked(one):
                return None
            return {"metadata": {"uid": one["metadata"]["uid"], "annotations": {table.MARK: None}}}

        return await self._writer.patch(WORKLOAD, workload, unmarked)

    async def clean_up(self, run_name: str, run_uid: str, workload: Object) -> None:
        """The run has ended: take away its placeholders, and its claims where its mode says so.

        Raises `LaterError` while pods of it still end.
        """
        if not is_marked(workload):
            return
        namespace = workload["metadata"]["namespace"]
        tasks = await self._kube.list(
            kinds.POD, namespace=namespace, labels=f"{RUN_LABEL}={run_name}"
        )
        if any((pod.get("status") or {}).get("phase") not in _ENDED for pod in tasks.items):
            # Until then the node is its own.
            raise LaterError(f"pods of {run_name} still end", delay_seconds=ENDING_SECONDS)
        await self._clear(namespace, run_uid, keep=True)

    async def _clear(self, namespace: str, run_uid: str, *, keep: bool) -> None:
        """Delete placeholders, then claims, those to keep only where `keep` is False."""
        ours = f"{COSCHEDULED_RUN_LABEL}={run_uid}"
        for one in await self._listed(kinds.STATEFUL_SET, namespace, ours):
            await self._delete(kinds.STATEFUL_SET, one)
        if await self._listed(kinds.POD, namespace, ours):
            raise LaterError("placeholders still end", delay_seconds=ENDING_SECONDS)
        for claim in await self._listed(kinds.PERSISTENT_VOLUME_CLAIM, namespace, ours):
            if keep and table.KEEP in (claim["metadata"].get("annotations") or {}):
                continue
            await self._delete(kinds.PERSISTENT_VOLUME_CLAIM, claim)
            await self._unprotect(claim)

    async def _unprotect(self, claim: Object) -> None:
        """Let a deleted claim go though pods that have ended still name it, as Tekton does."""
        finalizers = list(claim["metadata"].get("finalizers") or ())
        if PROTECTION not in finalizers:
            return
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": claim["metadata"]["uid"]},
            {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
            {
                "op": "replace",
                "path": "/metadata/finalizers",
                "value": [one for one in finalizers if one != PROTECTION],
            },
        ]
        metadata = claim["metadata"]
        with suppress(NotFoundError):  # Nobody used it any more.
            await self._kube.patch(
                kinds.PERSISTENT_VOLUME_CLAIM, metadata["namespace"], metadata["name"], patch
            )

    # --- while runs go on --------------------------------------------------------------------------

    async def run(self) -> None:
        """Move placeholders off nodes that take no more pods, until cancelled.

        Else a task that starts later would have to go where nothing may go, and wait for ever
        (Tekton's #6586). Running tasks are left alone.
        """
        while True:
            await asyncio.sleep(self._care_seconds)
            if next(self._coscheduled_workloads(), None) is None:
                continue
            try:
                await self.care()
            except KubeError as error:
                log.warning("cannot look after placeholders; trying again", error=str(error))

    def _coscheduled_workloads(self) -> Iterator[Object]:
        return (obj for obj in self._mirror.objects(WORKLOAD) if is_marked(obj))

    async def care(self) -> None:
        """Look once at all placeholders."""
        pods = await self._kube.list(kinds.POD, labels=COSCHEDULED_RUN_LABEL)
        nodes: dict[str, Object | None] = {}
        for pod in pods.items:
            node = pod["spec"].get("nodeName")
            if not node or "deletionTimestamp" in pod["metadata"]:
                continue
            if node not in nodes:
                nodes[node] = await self._get(kinds.NODE, None, node)
            found = nodes[node]
            if found is not None and (found.get("spec") or {}).get("unschedulable"):
                log.info(
                    "a placeholder leaves a cordoned node", node=node, pod=pod["metadata"]["name"]
                )
                await self._move(pod)

    # --- single calls ------------------------------------------------------------------------------

    async def _get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        try:
            return await self._kube.get(kind, namespace, name)
        except NotFoundError:
            return None

    async def _listed(self, kind: Kind, namespace: str, labels: str) -> list[Object]:
        return (await self._kube.list(kind, namespace=namespace, labels=labels)).items

    async def _create(self, kind: Kind, obj: Object) -> Object:
        try:
            return await self._kube.create(kind, obj)
        except AlreadyExistsError:
            # An earlier attempt was done, and its answer lost.
            return await self._kube.get(kind, obj["metadata"]["namespace"], obj["metadata"]["name"])

    async def _move(self, pod: Object) -> None:
        await self._delete(kinds.POD, pod)

    async def _delete(self, kind: Kind, obj: Object) -> None:
        metadata = obj["metadata"]
        with suppress(NotFoundError):
            await self._kube.delete(
                kind, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )


def is_run(obj: Object) -> bool:
    """Whether it is a PipelineRun: nothing else has workspaces and tasks to bring together."""
    return obj.get("kind") == PIPELINE_RUN.kind and str(obj.get("apiVersion", "")).startswith(
        f"{PIPELINE_RUN.group}/"
    )


def pod_of(placeholder: str) -> str:
    """The name that the StatefulSet of a placeholder gives its only pod."""
    return f"{placeholder}-0"


def _annotation_patch(run: Object, key: str, value: str | None) -> list[Object] | None:
    """Set or remove an annotation of a run that has not started. None: it is so."""
    metadata = run["metadata"]
    if (metadata.get("annotations") or {}).get(key) == value:
        return None
    path = "/metadata/annotations/" + key.replace("/", "~1")
    change: Object = {"op": "remove", "path": path}
    if value is not None:
        change = {"op": "add", "path": path, "value": value}
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/spec/status", "value": table.PENDING},
        change,
    ]
