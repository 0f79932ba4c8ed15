"""The StatefulSet controller: one pod with a fixed name and its own claims for each replica."""

from random import Random
from typing import Any

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.controller import Controller, owner_key
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import CLAIMS, PODS, STATEFUL_SETS
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored


def _is_ready(pod: Stored, owner: Stored) -> bool:
    """True if the pod belongs to this set (not to an earlier one of the same name) and runs."""
    metadata = pod.obj["metadata"]
    ours = any(one["uid"] == owner.uid for one in metadata.get("ownerReferences") or ())
    running = (pod.obj.get("status") or {}).get("phase") == "Running"
    return ours and running and "deletionTimestamp" not in metadata


def _number(pod: Stored) -> int:
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


class StatefulSetController(Controller):
    """Keeps all replicas running: a deleted pod is created again under its name."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, STATEFUL_SETS)

    @override
    def start(self) -> None:
        self.follow(PODS, lambda event: owner_key(event.stored, "StatefulSet"))
        super().start()

    @override
    def forget(self, uid: str) -> None:
        del uid  # The controller keeps no state.

    @override
    async def reconcile(self, stored: Stored) -> None:
        if "deletionTimestamp" in stored.obj["metadata"]:
            return
        spec = stored.obj["spec"]
        wanted = int(spec.get("replicas", 1))
        for one in self._pods(stored):
            if _number(one) >= wanted and "deletionTimestamp" not in one.obj["metadata"]:
                self.api.delete_now(one)
        ready = 0
        for number in range(wanted):
            pod = self.api.store.get(PODS, stored.namespace, f"{stored.name}-{number}")
            if pod is None:
                await self._create(stored, number)
                break  # Replicas start one after another.
            if not _is_ready(pod, stored):
                break
            ready += 1
        status: dict[str, Any] = {"replicas": len(self._pods(stored)), "readyReplicas": ready}
        if (stored.obj.get("status") or {}) != status:
            await self.write_status(stored, status)

    def _pods(self, stored: Stored) -> list[Stored]:
        return self.controlled(stored, PODS)

    async def _create(self, stored: Stored, number: int) -> None:
        spec = stored.obj["spec"]
        name = f"{stored.name}-{number}"
        template = spec.get("template") or {}
        metadata = template.get("metadata") or {}
        volumes = list((template.get("spec") or {}).get("volumes") or ())
        for claim in spec.get("volumeClaimTemplates") or ():
            claim_name = f"{claim['metadata']['name']}-{name}"
            await self._create_claim(stored, claim, claim_name)
            volumes.append(
                {
                    "name": claim["metadata"]["name"],
                    "persistentVolumeClaim": {"claimName": claim_name},
                }
            )
        pod_name = {
            "apps.kubernetes.io/pod-index": str(number),
            "statefulset.kubernetes.io/pod-name": name,
        }
        body: Obj = {
            "metadata": {
                "name": name,
                "namespace": stored.namespace,
                "labels": {**(metadata.get("labels") or {}), **pod_name},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [self.owner_reference(stored)],
            },
            "spec": {**(template.get("spec") or {}), "volumes": volumes},
        }
        await self.api.create(PODS, "v1", stored.namespace, body)

    async def _create_claim(self, stored: Stored, template: Obj, name: str) -> None:
        """Create a claim; it outlives the set."""
        if self.api.store.get(CLAIMS, stored.namespace, name) is not None:
            return
        metadata = {k: v for k, v in template["metadata"].items() if k != "name"}
        labels = {
            **(metadata.get("labels") or {}),
            **((stored.obj["spec"].get("selector") or {}).get("matchLabels") or {}),
        }
        body = {
            "metadata": {**metadata, "name": name, "namespace": stored.namespace, "labels": labels},
            "spec": template.get("spec") or {},
        }
        await self.api.create(CLAIMS, "v1", stored.namespace, body)
