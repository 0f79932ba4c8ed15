"""Judges the cluster's own history: what has quota gets its pods, and who has none gives the quota back.

Nothing here reads the streams. A Workload says who holds quota, pods say what runs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import PODS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import labels_of, spec_of
from shared.contracts.kube.conditions import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, is_true
from shared.integrations import Integrations, controller_uid

BOUND: Final = timedelta(seconds=30)
"""How long a Workload may hold quota beside pods that wait, or without pods, in a calm world."""

_OTHER_PODS: Final = frozenset({kinds.PIPELINE_RUN.kind})
"""Kinds whose pods come through objects that are not followed here."""


@dataclass(slots=True, kw_only=True)
class _WatchedPod:
    name: str
    keys: tuple[str, ...]
    """What its Workload may be of: its group, or itself and what controls it."""

    by_itself: bool
    """It was made with a gate: its own Workload, or that of its group, holds its quota."""

    gated: bool = False
    ended: bool = False

    @property
    def runs(self) -> bool:
        return not self.gated and not self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class _WatchedWorkload:
    keys: tuple[str, ...]
    count: int
    """Pods that its quota is for."""

    reserved: bool
    admitted: bool
    evicted: bool


class PodsOfQuota:
    """Follows pods and Workloads from their creation; `problems` says what was wrong when."""

    def __init__(
        self, api: Api, *, now: Callable[[], datetime], integrations: Integrations
    ) -> None:
        self._now = now
        self._calm_since: datetime | None = None
        self._found: list[str] = []
        self._group = next((one.group for one in integrations if one.group is not None), None)
        self._above: dict[str, str] = {}
        """Uid of an object to that of its controller."""

        self._pods: dict[str, _WatchedPod] = {}
        self._of: dict[str, set[str]] = {}
        """Key to the uids of its pods."""

        self._workloads: dict[str, _WatchedWorkload] = {}
        """By namespace and name."""

        self._by_key: dict[str, str] = {}
        self._since: dict[str, tuple[str, str, datetime]] = {}
        """Workload to what is wrong, the whole sentence, and since when."""

        listeners = {one.kind: self._on_owner for one in integrations if one.gate is None}
        for kind, listener in (*listeners.items(), (kinds.WORKLOAD, self._on_workload)):
            served = api.kinds.find(kind.group, kind.version, kind.plural)
            if served is not None:
                api.store.subscribe(served, listener)
        api.store.subscribe(PODS, self._on_pod)

    def begin(self, *, in_seconds: float = 0.0) -> None:
        """Let the bound count from then on: nothing fails, and nobody is paused any more."""
        self._calm_since = self._now() + timedelta(seconds=in_seconds)

    def problems(self) -> list[str]:
        """Return what was wrong so far."""
        return [*self._found, *filter(None, map(self._late, self._since))]

    # What comes in

    def _on_owner(self, event: Event) -> None:
        if above := controller_uid(event.stored.obj):
            self._above[event.stored.uid] = above

    def _on_pod(self, event: Event) -> None:
        obj, uid = event.stored.obj, event.stored.uid
        self._on_owner(event)
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = self._new(obj)
            for key in pod.keys:
                self._of.setdefault(key, set()).add(uid)
        status, metadata = obj.get("status") or {}, obj["metadata"]
        pod.gated = bool(obj["spec"].get("schedulingGates"))
        # A finalizer may keep what its kubelet has ended.
        is_over = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
        has_ended = status.get("phase") in {"Succeeded", "Failed"}
        pod.ended = event.type == "DELETED" or is_over or has_ended
        if pod.gated and (obj["spec"].get("nodeName") or status.get("phase") == "Running"):
            self._tell(f"pod {pod.name} runs at its gate")
        for path in {self._by_key[key] for key in pod.keys if key in self._by_key}:
            self._count(path, pod)
            self._look(path)

    def _new(self, obj: Obj) -> _WatchedPod:
        metadata = obj["metadata"]
        path = f"{metadata['namespace']}/{metadata['name']}"
        label = None if self._group is None else labels_of(obj).get(self._group.label)
        keys = (f"{metadata['namespace']}/{label}",) if label else (*self._up(metadata["uid"]),)
        return _WatchedPod(name=path, keys=keys, by_itself=bool(obj["spec"].get("schedulingGates")))

    def _up(self, uid: str) -> Iterator[str]:
        while uid:
            yield uid
            uid = self._above.get(uid, "")

    def _on_workload(self, event: Event) -> None:
        obj, path = event.stored.obj, f"{event.stored.namespace}/{event.stored.name}"
        owners = obj["metadata"].get("ownerReferences") or []
        if any(owner["kind"] in _OTHER_PODS for owner in owners):
            return
        before, is_true_of = self._workloads.get(path), partial(is_true, obj)
        ends = event.type == "DELETED" or is_true_of(FINISHED)
        now = self._workloads[path] = _WatchedWorkload(
            keys=(path, *(owner["uid"] for owner in owners)),
            count=sum(int(one.get("count") or 0) for one in spec_of(obj).get("podSets") or []),
            reserved=not ends and is_true_of(QUOTA_RESERVED),
            admitted=not ends and is_true_of(ADMITTED),
            evicted=not ends and is_true_of(EVICTED),
        )
        self._by_key |= dict.fromkeys(now.keys, path)
        self._look_above(path, now)
        if before is not None and before.reserved and not now.reserved:
            for pod in self._pods_of(before):
                if pod.by_itself and pod.runs and not is_true_of(FINISHED):
                    self._tell(f"Workload {path} gives its quota back while pod {pod.name} runs")
        self._look(path)

    # What follows

    def _look_above(self, path: str, workload: _WatchedWorkload) -> None:
        """Look whether a pod waits by itself although what made it has quota for it."""
        for pod in self._pods_of(workload):
            for key in pod.keys[1:]:
                above = self._by_key.get(key, path)
                if above != path and pod.keys[0] in workload.keys:
                    self._tell(f"pod {pod.name} of Workload {above} has a Workload of its own")

    def _pods_of(self, workload: _WatchedWorkload) -> list[_WatchedPod]:
        uids = {uid for key in workload.keys for uid in self._of.get(key, ())}
        return [self._pods[uid] for uid in sorted(uids)]

    def _count(self, path: str, changed: _WatchedPod) -> None:
        """Look whether more of a group run than have quota."""
        workload = self._workloads[path]
        running = sum(pod.by_itself and pod.runs for pod in self._pods_of(workload))
        if changed.runs and workload.reserved and running > workload.count:
            self._tell(
                f"{running} pods of Workload {path} run, and it has quota for {workload.count}"
            )

    def _look(self, path: str) -> None:
        what, sentence = self._wrong(path)
        known = self._since.get(path)
        if known is not None and known[0] == what:
            self._since[path] = (what, sentence, known[2])
            return
        if known is not None:
            if late := self._late(path):
                self._found.append(late)
            del self._since[path]
        if what:
            self._since[path] = (what, sentence, self._now())

    def _wrong(self, path: str) -> tuple[str, str]:
        """What is wrong for as long as it lasts; empty if nothing is."""
        workload = self._workloads[path]
        if not workload.reserved or not (workload.admitted or workload.evicted):
            return "", ""  # It waits for an admission check.
        pods = [pod for pod in self._pods_of(workload) if not pod.ended]
        waiting = next((pod.name for pod in pods if pod.gated), "")
        if workload.admitted and waiting:
            return "waits", f"Workload {path} is admitted, and pod {waiting} is not let go"
        if not pods:
            return "none", f"Workload {path} holds quota, and has no pods"
        return "", ""

    def _late(self, path: str) -> str:
        """What has been wrong with a Workload for too long; empty if nothing has."""
        _, sentence, since = self._since[path]
        if self._calm_since is None:
            return ""
        lasted = self._now() - max(since, self._calm_since)
        return f"{sentence}, for {lasted.total_seconds():.1f} s" if lasted > BOUND else ""

    def _tell(self, sentence: str) -> None:
        if sentence not in self._found:
            self._found.append(sentence)
