"""Pods that wait at a gate, for the tests of them."""

from typing import Any, Final

from shared.contracts.kube.kinds import INTEGRATION, Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import DURATION
from tests.conformance.seeds.stage import Stage, pool

PODS: Final[dict[str, Any]] = {"integrations": {"frameworks": ["pod"]}}
DEPLOYMENTS: Final[dict[str, Any]] = {"integrations": {"frameworks": ["deployment", "statefulset"]}}
GATE: Final = "kueue.x-k8s.io/admission"
PREFIX: Final = "kueue.x-k8s.io/"
GROUP: Final = f"{PREFIX}pod-group-name"
MARKS: Final = ("pod_group_fast_admission", "pod_group_serving", "retriable_in_group", "role_hash")
FLAVOR: Final[Object] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "default-flavor"},
    "spec": {"nodeLabels": {"disk": "ssd"}, "tolerations": [{"key": "ssd", "operator": "Exists"}]},
}


def pod(name: str, queue: str | None = "q", *, seconds: float = 600, **metadata: Any) -> Object:
    labels = {**metadata.pop("labels", {}), **({QUEUE: queue} if queue else {})}
    annotations = {DURATION: f"{seconds:g}s", **metadata.pop("annotations", {})}
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    common = {"name": name, "namespace": "team-a", "labels": labels, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**common, **metadata},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }


def member(
    name: str, total: int, *, group: str = "g", cpu: str = "1", queue: str = "q", **more: Any
) -> Object:
    """A pod of a group. `more`: annotations by the last part of their name; `seconds`."""
    annotations = {f"{PREFIX}pod-group-total-count": str(total)}
    annotations |= {
        PREFIX + key.replace("_", "-"): more.pop(key) for key in list(more) if key in MARKS
    }
    annotations |= more.pop("annotations", {})
    labels = {GROUP: group, **more.pop("labels", {})}
    obj = pod(name, queue, labels=labels, annotations=annotations, **more)
    obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return obj


async def opened(stage: Stage, cpu: int = 1, **spec: Any) -> None:
    """Make a queue, and wait until pods are a kind that can wait."""
    await stage.create(FLAVOR, *pool("q", {"cpu": cpu}, **spec))

    async def in_force() -> bool:
        found = (await stage.kube.list(INTEGRATION)).items
        return any((one.get("status") or {}).get("accepted") for one in found)

    await stage.until(in_force)


def replicated(kind: str, labels: Object, name: str = "web") -> Object:
    """What makes pods of a template."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "labels": labels},
        "spec": {"replicas": 2, "template": template},
    }


def is_gated(obj: Object) -> bool:
    return any(gate["name"] == GATE for gate in obj["spec"].get("schedulingGates") or [])
