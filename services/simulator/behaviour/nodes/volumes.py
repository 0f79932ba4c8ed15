"""Claims and their volumes: where they are bound, to which node they are attached, when they are deleted.

The storage class decides: `local` is on the node of its first pod, `local-immediate` on a random
node chosen at creation; every other volume can be attached to any node, if it is `ReadWriteOnce` to
one node at a time.
"""

from random import Random
from typing import Final

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.controller import Controller, Key
from services.simulator.behaviour.nodes.scheduling import claims_of
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import CLAIMS, NODES, PODS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Event, Stored
from shared.contracts.kube.names import PVC_PROTECTION

LOCAL: Final = "local"
LOCAL_IMMEDIATE: Final = "local-immediate"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
ONE_NODE_AT_A_TIME: Final = "ReadWriteOnce"


def _bound(claim: Obj, node: str) -> Obj:
    """Return the claim bound to a volume on `node`."""
    metadata = claim["metadata"]
    annotations = {**(metadata.get("annotations") or {}), SELECTED_NODE: node}
    spec = claim.get("spec") or {}
    return {
        **claim,
        "metadata": {**metadata, "annotations": annotations},
        "spec": {**spec, "volumeName": f"pvc-{metadata['uid']}"},
        "status": {
            "phase": "Bound",
            "accessModes": spec.get("accessModes") or [],
            "capacity": (spec.get("resources") or {}).get("requests") or {},
        },
    }


def _is_bound(claim: Obj) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


class Volumes:
    """Answers the scheduler's and the kubelets' questions about the claims of pods."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def unready_reason(self, pod: Stored) -> str | None:
        """Return why the pod has to wait for its claims; None if all of them exist."""
        for name in claims_of(pod.obj):
            claim = self._api.store.get(CLAIMS, pod.namespace, name)
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if "deletionTimestamp" in claim.obj["metadata"]:
                return f'persistentvolumeclaim "{name}" is being deleted'
        return None

    def node_of(self, namespace: str, name: str) -> str | None:
        """Return the only node with the claim's volume; None if it can be attached to any node."""
        claim = self._api.store.get(CLAIMS, namespace, name)
        if claim is None or not _is_bound(claim.obj):
            return None
        if claim.obj["spec"].get("storageClassName") not in {LOCAL, LOCAL_IMMEDIATE}:
            return None
        node: str = claim.obj["metadata"]["annotations"][SELECTED_NODE]
        return node

    def select_node(self, pod: Stored, node: str) -> None:
        """Bind the claims that wait for their first consumer."""
        for name in claims_of(pod.obj):
            claim = self._api.store.get(CLAIMS, pod.namespace, name)
            if claim is not None and not _is_bound(claim.obj):
                self._api.store.put(CLAIMS, _bound(claim.obj, node))

    def attached_to_other_node(self, pod: Stored) -> bool:
        """True if another node uses a volume of the pod that can be attached to one node only."""
        mine = {name for name in claims_of(pod.obj) if self._one_node(pod.namespace, name)}
        return bool(mine) and any(
            not mine.isdisjoint(claims_of(other.obj))
            for other in self._api.store.objects(PODS, pod.namespace)
            if (other.obj.get("status") or {}).get("phase") == "Running"
            and other.obj["spec"].get("nodeName") != pod.obj["spec"].get("nodeName")
        )

    def _one_node(self, namespace: str, name: str) -> bool:
        claim = self._api.store.get(CLAIMS, namespace, name)
        return claim is not None and ONE_NODE_AT_A_TIME in (
            claim.obj["spec"].get("accessModes") or ()
        )


class ClaimController(Controller):
    """Binds claims with immediate binding, and releases deleted claims that no pod uses any more."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, CLAIMS)
        self._terminating: dict[Key, None] = {}
        """Claims that are being deleted but still used."""

    @override
    def start(self) -> None:
        self.follow(PODS, self._pod_changed)
        super().start()

    def _pod_changed(self, event: Event) -> Key | None:
        if event.type == "DELETED":
            for key in self._terminating:
                self.enqueue(key)
        return None

    @override
    def forget(self, uid: str) -> None:
        del uid  # Remembered by name.

    @override
    async def reconcile(self, stored: Stored) -> None:
        metadata = stored.obj["metadata"]
        if "deletionTimestamp" in metadata:
            self._release(stored)
        elif PVC_PROTECTION not in (metadata.get("finalizers") or ()):
            held = {**metadata, "finalizers": [*(metadata.get("finalizers") or ()), PVC_PROTECTION]}
            self.api.store.put(CLAIMS, {**stored.obj, "metadata": held})
        elif not stored.obj.get("status"):
            self.api.store.put(CLAIMS, {**stored.obj, "status": {"phase": "Pending"}})
        elif not _is_bound(stored.obj) and (
            stored.obj["spec"].get("storageClassName") == LOCAL_IMMEDIATE
        ):
            node = self.random.choice([node.name for node in self.api.store.objects(NODES)])
            self.api.store.put(CLAIMS, _bound(stored.obj, node))

    def _release(self, stored: Stored) -> None:
        metadata = stored.obj["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        key = (stored.namespace, stored.name)
        if PVC_PROTECTION not in finalizers:
            self._terminating.pop(key, None)
            return
        used = any(
            stored.name in claims_of(pod.obj) and pod.obj["spec"].get("nodeName")
            for pod in self.api.store.objects(PODS, stored.namespace)
        )
        if used:
            self._terminating[key] = None
            return
        self._terminating.pop(key, None)
        finalizers.remove(PVC_PROTECTION)
        obj = {**stored.obj, "metadata": {**metadata, "finalizers": finalizers}}
        if finalizers:
            self.api.store.put(CLAIMS, obj)
        else:
            self.api.store.remove(stored, obj)
