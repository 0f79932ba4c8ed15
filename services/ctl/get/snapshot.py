"""The latest message of every subject that was read, by object."""

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from shared.bus.stream_reader import Seen
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.subjects import is_synced, message_sort

Json = dict[str, Any]
"""The body of a message, or a part of it."""


class ObjectKey(NamedTuple):
    """Which object of which cluster."""

    cluster: str
    namespace: str
    """Empty for cluster-scoped objects."""

    name: str


_GONE: Final = "gone"


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The state that the views hold. Messages of different streams may come in any order."""

    objects: dict[str, dict[ObjectKey, Json]] = field(default_factory=dict)
    """``<plural>_<group>`` to the objects as last observed."""

    too_large: dict[str, dict[ObjectKey, str]] = field(default_factory=dict)
    """Objects whose body is in the object store: only their names are known."""

    workloads: dict[ObjectKey, Json] = field(default_factory=dict)
    admissions: dict[ObjectKey, Json] = field(default_factory=dict)
    queues: dict[ObjectKey, Json] = field(default_factory=dict)
    hosts: dict[ObjectKey, Json] = field(default_factory=dict)
    """By TaskRun."""

    platforms: dict[ObjectKey, Json] = field(default_factory=dict)
    spokes: dict[ObjectKey, Json] = field(default_factory=dict)
    """What the dispatcher publishes about each spoke."""

    synced: dict[str, Json] = field(default_factory=dict)
    """Cluster to the last message in which its watcher said that it has listed everything."""

    def apply(self, seen: Seen) -> None:
        """Apply one message of any view."""
        what = message_sort(seen.subject)
        body = seen.body
        if not body:
            return
        match what:
            case "observed":
                self._apply_observed(seen)
            case "workload":
                _put(self.workloads, _id(body), body, gone=body.get("phase") == _GONE)
            case "admission":
                self.admissions[_id(body)] = body
            case "queue":
                self.queues[_id(body)] = body
            case "host":
                _put(self.hosts, _id(body), body, gone=body.get("state") == "released")
            case "platform":
                self.platforms[ObjectKey(body["cluster"], "", body["platform"])] = body
            case "spoke":
                self.spokes[ObjectKey(body["cluster"], "", body["spoke"])] = body
            case _:
                pass  # A term, or a message of a later version.

    def _apply_observed(self, seen: Seen) -> None:
        body = seen.body
        if is_synced(seen.subject):
            self.synced[str(body["cluster"])] = body
            return
        detail = seen.subject.rpartition(".")[2]
        ident, obj = _id(body), body.get("object")
        known = self.objects.setdefault(detail, {})
        large = self.too_large.setdefault(detail, {})
        known.pop(ident, None)
        large.pop(ident, None)
        if body.get("deleted"):
            return
        if isinstance(obj, dict):
            api_version = f"{body['group']}/{body['version']}".lstrip("/")
            known[ident] = {"apiVersion": api_version, "kind": body["kind"], **obj}
        else:
            large[ident] = str(body.get("object_ref", ""))

    def of(self, kind: Kind) -> dict[ObjectKey, Json]:
        """The observed objects of one kind."""
        return self.objects.get(kind.detail, {})

    def admission_of(self, ident: ObjectKey) -> Json:
        """The decision in force about a workload; empty if there is none for its uid."""
        state, admission = self.workloads.get(ident), self.admissions.get(ident)
        if state is None or admission is None or state.get("uid") != admission.get("uid"):
            return {}
        return admission

    def cluster_queue_of(self, ident: ObjectKey) -> str:
        """The ClusterQueue that gave the workload quota, else the one behind its LocalQueue."""
        if queue := self.admission_of(ident).get("cluster_queue"):
            return str(queue)
        state = self.workloads.get(ident, {})
        local = self.of(kinds.LOCAL_QUEUE).get(
            ObjectKey(ident.cluster, ident.namespace, str(state.get("queue")))
        )
        return str(spec_of(local).get("clusterQueue") or "")


def _id(body: Json) -> ObjectKey:
    return ObjectKey(str(body["cluster"]), str(body.get("namespace") or ""), str(body["name"]))


def _put(known: dict[Any, Json], ident: Any, body: Json, *, gone: bool) -> None:
    if gone:
        known.pop(ident, None)
    else:
        known[ident] = body


def metadata_of(obj: Json | None) -> Json:
    """`metadata` of an object, empty where there is none."""
    return (obj or {}).get("metadata") or {}
