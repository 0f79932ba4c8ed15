"""Carries out the provisioning checks of one cluster: makes requests, follows them, answers.

Everything that it knows is in the cluster. Each write can be the last one before a crash, and each can be
repeated: a request has the name of its attempt, and the attempt follows from the Workload's `retryCount`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import structlog

from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.pacing import Backlog, RateLimiter, WriteLoad, drain
from services.patcher.cluster.patches import if_unchanged, status_patch
from services.patcher.cluster.writer import create_or_get, get_or_none
from services.patcher.metrics import PROVISIONING_REQUESTS
from services.patcher.provisioning.answers import (
    Answer,
    State,
    answer,
    ends_requests,
    needs_requests,
)
from services.patcher.provisioning.requests import (
    RequestedPodSet,
    owned_by,
    owner_reference,
    request_name,
    request_object,
    requested_pod_sets,
    template_name,
    template_object,
)
from services.patcher.provisioning.store import ProvisioningStore
from shared.bus.follow import follow
from shared.bus.port import Bus, Entry
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, Metadata, spec_of, status_of
from shared.contracts.kube.conditions import (
    ACTIVE,
    MESSAGE_MAX,
    QUOTA_RESERVED,
    Conditions,
    find_condition,
    timestamp,
    transition_time,
)
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import observed_filter, synced_filter
from shared.kube.port import ConflictError, Kube, NotFoundError, RefusedError

log = structlog.get_logger(__name__)

PER_SECOND: Final = 50.0
"""Workloads looked at per second. A machine takes minutes."""

BURST: Final = 20

REFUSED_SECONDS: Final = 60.0
"""Delay before a request that the API server refused is made again."""

NAME_TAKEN_SECONDS: Final = 5.0
"""Delay while an earlier object of the name is being deleted, or a foreign object has the name."""


class ProvisioningController:
    """Answers the provisioning checks of one cluster. Reads Workloads only where there is such a check."""

    def __init__(
        self,
        *,
        bus: Bus,
        kube: Kube,
        events: EventRecorder,
        cluster: str,
        now: Callable[[], datetime],
        load: WriteLoad,
    ) -> None:
        self._bus = bus
        self._kube = kube
        self._events = events
        self._cluster = cluster
        self._now = now
        self._load = load
        self._store = ProvisioningStore(cluster)
        self._checks: Backlog[str, None] = Backlog()
        self._workloads: Backlog[WorkloadRef, None] = Backlog()
        self._has_checks = asyncio.Event()
        self._is_read = False
        """All objects that exist are known: before that a missing request may only be unread."""

        self._handed_over: set[str] = set()
        """Uids of requests that control their PodTemplates, as far as this process has seen."""

    async def run(self) -> None:
        """Follow and write until cancelled."""
        cluster = self._cluster
        async with asyncio.TaskGroup() as group:
            configuration = (kinds.ADMISSION_CHECK, kinds.PROVISIONING_REQUEST_CONFIG)
            filters = [observed_filter(kind, cluster) for kind in configuration]
            group.create_task(
                follow(
                    self._bus,
                    {Observed: self._on_configuration, Synced: self._on_synced},
                    filters=[*filters, synced_filter(cluster)],
                )
            )
            limiter = RateLimiter(PER_SECOND, burst=BURST, load=self._load)
            group.create_task(drain(self._checks, self._write_active, limiter, what="active"))
            await self._has_checks.wait()
            work = (kinds.WORKLOAD, kinds.RESOURCE_FLAVOR, kinds.PROVISIONING_REQUEST)
            group.create_task(
                follow(
                    self._bus,
                    {Observed: self._on_work},
                    filters=[observed_filter(kind, cluster) for kind in work],
                    on_caught_up=self._on_read,
                )
            )
            limiter = RateLimiter(PER_SECOND, burst=BURST)
            group.create_task(
                drain(self._workloads, self._reconcile, limiter, what="provisioning request")
            )

    # --- input ---

    def _on_configuration(self, observed: Observed, _entry: Entry) -> None:
        if observed.plural == kinds.ADMISSION_CHECK.plural:
            self._store.apply_check(observed)
        else:
            self._store.apply_config(observed)
        self._enqueue_all()

    def _on_synced(self, synced: Synced, _entry: Entry) -> None:
        self._store.apply_synced(synced)
        self._enqueue_all()

    def _enqueue_all(self) -> None:
        for check in self._store.checks:
            self._checks.put(check, None)
        if self._store.checks:
            self._has_checks.set()
        for ref in self._store.workloads():
            self._enqueue(ref)

    def _on_work(self, observed: Observed, _entry: Entry) -> None:
        match observed.plural:
            case kinds.RESOURCE_FLAVOR.plural:
                self._store.apply_flavor(observed)
            case kinds.WORKLOAD.plural:
                self._store.apply_workload(observed)
                self._enqueue(
                    WorkloadRef(observed.cluster, observed.namespace or "", observed.name)
                )
            case _:
                owner = self._store.apply_request(observed)
                if owner is not None:
                    self._enqueue(owner)

    def _on_read(self) -> None:
        self._is_read = True
        self._enqueue_all()

    def _enqueue(self, ref: WorkloadRef) -> None:
        if self._is_read and self._store.workload(ref) is not None:
            self._workloads.put(ref, None)

    def _enqueue_later(self, ref: WorkloadRef, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._enqueue, ref)

    def _ref_of(self, metadata: Metadata) -> WorkloadRef:
        return WorkloadRef(self._cluster, metadata["namespace"], metadata["name"])

    # --- the check itself ---

    async def _write_active(self, check: str, _value: None) -> None:
        """Write the condition `Active` of a check, if it is another one. Can be repeated."""
        if check not in self._store.checks:
            return
        condition = self._store.condition_of(check)
        if condition is None:
            return
        obj = await get_or_none(self._kube, kinds.ADMISSION_CHECK, None, check)
        if obj is None:
            return
        conditions = Conditions.of(obj, at=self._now())
        conditions.set(ACTIVE, *condition)
        patch = status_patch(obj, {**status_of(obj), "conditions": conditions.items})
        if patch is not None:
            await self._patch_status(kinds.ADMISSION_CHECK, obj, patch)

    async def _patch_status(self, kind: kinds.Kind, obj: Body, patch: Any) -> Body | None:
        metadata = obj["metadata"]
        try:
            after: Body = await self._kube.patch(
                kind, metadata.get("namespace"), metadata["name"], patch, subresource="status"
            )
        except NotFoundError:
            return None  # It was deleted meanwhile.
        return after

    # --- one workload ---

    async def _reconcile(self, ref: WorkloadRef, _value: None) -> None:
        """Do what is left to do for one workload. Can be repeated."""
        workload = self._store.workload(ref)
        if workload is None:
            return
        owned = self._store.requests_of(workload)
        if ends_requests(workload):
            await self._delete(owned)
        if not needs_requests(workload):
            return
        answers = [self._answer(workload, state, owned) for state in self._states(workload)]
        if not await self._are_current(answers):
            self._enqueue(ref)
            return
        counting = [one.request for one in answers if one.request is not None]
        await self._delete([one for one in owned if one not in counting])
        workload = await self._write(workload, answers)
        for one in answers:
            if one.next_attempt is not None:
                await self._request(workload, one.state, one.next_attempt)
            elif one.request is not None:
                await self._hand_over_templates(workload, one.request)

    def _states(self, workload: Body) -> list[State]:
        """The present entries of our checks."""
        listed = status_of(workload).get("admissionChecks") or []
        return [one for one in listed if one.get("name") in self._store.checks]

    def _answer(self, workload: Body, state: State, owned: Sequence[Body]) -> Answer:
        config = self._store.config_of(str(state["name"]))
        spec = None if config is None else spec_of(config)
        needed = spec is not None and bool(requested_pod_sets(workload, spec))
        return answer(workload, state, spec, owned, needed=needed)

    async def _are_current(self, answers: Sequence[Answer]) -> bool:
        """Whether the requests behind new answers still are what was observed: they may be deleted.

        1. A request is provisioned, and its workload is evicted. Its request is deleted.
        2. The workload gets quota again before that deletion is observed here.
        3. The request in the cache must not admit it: nothing is provisioned any more.
        """
        for one in answers:
            if one.request is None or one.state.get("state") == "Pending":
                continue
            metadata = one.request["metadata"]
            kind, where = kinds.PROVISIONING_REQUEST, metadata["namespace"]
            found = await get_or_none(self._kube, kind, where, metadata["name"])
            if found is None or found["metadata"]["uid"] != metadata["uid"]:
                self._store.remove_request(one.request)
                return False
            if "deletionTimestamp" in found["metadata"]:
                self._store.store_request(found)
                return False
        return True

    async def _delete(self, requests: Sequence[Body]) -> None:
        for request in requests:
            metadata = request["metadata"]
            with suppress(NotFoundError, ConflictError):  # It is gone, or the name has another uid.
                await self._kube.delete(
                    kinds.PROVISIONING_REQUEST,
                    metadata["namespace"],
                    metadata["name"],
                    uid=metadata["uid"],
                )
            self._store.remove_request(request)
            log.info("provisioning request deleted", request=metadata["name"])

    async def _write(self, workload: Body, answers: Sequence[Answer]) -> Body:
        """Write the answers that differ; return the Workload as stored. Raises `ConflictError`."""
        answered = {str(one.state["name"]): one.state for one in answers}
        return await self._write_states(workload, answered)

    async def _write_states(self, workload: Body, answered: dict[str, State]) -> Body:
        listed = status_of(workload).get("admissionChecks") or []
        states = [self._entry(workload, one, answered.get(one.get("name"), one)) for one in listed]
        patch = status_patch(workload, {**status_of(workload), "admissionChecks": states})
        if patch is None:
            return workload
        try:
            after = await self._patch_status(kinds.WORKLOAD, workload, patch)
        except ConflictError:
            # The next observation may be this one already: the cache was behind.
            metadata = workload["metadata"]
            name = metadata["name"]
            fresh = await get_or_none(self._kube, kinds.WORKLOAD, metadata["namespace"], name)
            if fresh is not None and fresh["metadata"]["uid"] == metadata["uid"]:
                self._store.store_workload(fresh)
            raise
        if after is None:
            return workload
        self._store.store_workload(after)
        for before, now in zip(listed, states, strict=True):
            if before.get("state") != now.get("state"):
                self._report_change(after, before, now)
        return after

    def _entry(self, workload: Body, before: State, now: State) -> State:
        entry = {**now, "message": str(now.get("message") or "")[:MESSAGE_MAX]}
        if not entry["message"] and "message" not in before:
            entry.pop("message")
        if before.get("state") != now.get("state"):
            # Quota ignores answers that are older than the reservation, and this clock may be behind.
            since = transition_time(find_condition(workload, QUOTA_RESERVED))
            at = self._now()
            entry["lastTransitionTime"] = timestamp(at if since is None else max(at, since))
        return entry

    def _report_change(self, workload: Body, before: State, now: State) -> None:
        text = (
            f"Admission check {now.get('name')} updated state "
            f"from {before.get('state')} to {now.get('state')}"
        )
        if now.get("message"):
            text += f" with message: {now['message']}"
        self._events.record(kinds.WORKLOAD, workload, "AdmissionCheckUpdated", text)

    # --- one request ---

    async def _request(self, workload: Body, state: State, attempt: int) -> None:
        """Make the request of an attempt with its templates, unless it is there."""
        check, metadata = str(state["name"]), workload["metadata"]
        config = self._store.config_of(check)
        if config is None:
            return
        name = request_name(metadata["name"], check, attempt)
        pod_sets = requested_pod_sets(workload, spec_of(config))
        what = f'ProvisioningRequest "{name}"'
        try:
            for pod_set in pod_sets:
                what = f'PodTemplate "{template_name(name, pod_set.name)}"'
                await self._create_template(workload, name, pod_set)
            what = f'ProvisioningRequest "{name}"'
            wanted = request_object(workload, name, spec_of(config), pod_sets)
            request, is_new = await create_or_get(self._kube, kinds.PROVISIONING_REQUEST, wanted)
        except (RefusedError, NotFoundError, ValueError) as error:
            await self._report_refused(workload, state, f"Error creating {what}: {error}")
            return
        ours = owned_by(request, metadata["uid"])
        if not ours or "deletionTimestamp" in request["metadata"]:
            self._enqueue_later(self._ref_of(metadata), NAME_TAKEN_SECONDS)
            if not ours:
                text = f"Error creating {what}: the name is taken by another object; delete it"
                await self._write_states(workload, {check: {**state, "message": text}})
            return
        self._store.store_request(request)
        if is_new:
            PROVISIONING_REQUESTS.labels("created").inc()
            text = f'Created ProvisioningRequest: "{name}"'
            self._events.record(kinds.WORKLOAD, workload, "ProvisioningRequestCreated", text)
        await self._hand_over_templates(workload, request)

    async def _create_template(
        self, workload: Body, request: str, pod_set: RequestedPodSet
    ) -> None:
        name = template_name(request, pod_set.name)
        wanted = template_object(workload, name, pod_set, self._store.flavors)
        await create_or_get(self._kube, kinds.POD_TEMPLATE, wanted)

    async def _report_refused(self, workload: Body, state: State, text: str) -> None:
        """Say on the check why there is no request, and try again later."""
        PROVISIONING_REQUESTS.labels("refused").inc()
        log.warning("the cluster refuses a ProvisioningRequest", check=state["name"], error=text)
        metadata = workload["metadata"]
        self._enqueue_later(self._ref_of(metadata), REFUSED_SECONDS)
        self._events.record(kinds.WORKLOAD, workload, "FailedCreate", text, type_="Warning")
        await self._write_states(workload, {str(state["name"]): {**state, "message": text}})

    async def _hand_over_templates(self, workload: Body, request: Body) -> None:
        """Let the request control its templates, so that they go with it. Once in a process' life."""
        uid = request["metadata"]["uid"]
        if uid in self._handed_over:
            return
        for pod_set in spec_of(request).get("podSets") or []:
            namespace, name = request["metadata"]["namespace"], pod_set["podTemplateRef"]["name"]
            template = await get_or_none(self._kube, kinds.POD_TEMPLATE, namespace, name)
            if template is None or not owned_by(template, workload["metadata"]["uid"]):
                continue
            owners = [owner_reference(kinds.PROVISIONING_REQUEST, request)]
            owners += [
                one
                for one in template["metadata"].get("ownerReferences") or []
                if not one.get("controller")
            ]
            operation = {"op": "add", "path": "/metadata/ownerReferences", "value": owners}
            patch = if_unchanged(template, operation)
            await self._kube.patch(kinds.POD_TEMPLATE, namespace, name, patch)
        self._handed_over.add(uid)
