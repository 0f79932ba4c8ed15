"""The pod of a TaskRun: its affinity and its volumes."""

from typing import Any

from services.simulator.behaviour.simulated_behaviour import annotations, simulation_annotations
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.coscheduling import AFFINITY_ANNOTATION, COMPONENT_LABEL, INSTANCE_LABEL
from shared.contracts.kube.names import HOSTNAME
from shared.contracts.simulation import RUN_IN_PODS
from shared.contracts.tekton import TASK_RUN_LABEL


def pod_name(taskrun: str) -> str:
    """Return the name of a TaskRun's pod."""
    return f"{taskrun}-pod"


def claims(taskrun: Obj) -> list[str]:
    """Return the claims of its workspaces, each once."""
    bound = (w.get("persistentVolumeClaim") for w in taskrun["spec"].get("workspaces") or ())
    return list(dict.fromkeys(str(claim["claimName"]) for claim in bound if claim))


def wants_pod(taskrun: Obj) -> bool:
    """True if it matters on which node the TaskRun runs."""
    given = annotations(taskrun)
    return bool(
        given.get(AFFINITY_ANNOTATION) or claims(taskrun) or given.get(RUN_IN_PODS) == "true"
    )


def pod_of(taskrun: Stored, owner: Obj) -> Obj:
    """Return the pod to create."""
    obj = taskrun.obj
    template: dict[str, Any] = dict(obj["spec"].get("podTemplate") or {})
    template.pop("serviceAccountName", None)
    volumes = [
        {"name": f"ws-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims(obj))
    ]
    spec: dict[str, Any] = {
        **template,
        "restartPolicy": "Never",
        "containers": [{"name": "step-run", "image": "simulated"}],
        "volumes": [*(template.get("volumes") or ()), *volumes],
    }
    if assistant := annotations(obj).get(AFFINITY_ANNOTATION):
        spec["affinity"] = _following(template.get("affinity") or {}, assistant)
    return {
        "metadata": {
            "name": pod_name(taskrun.name),
            "namespace": taskrun.namespace,
            "labels": {**(obj["metadata"].get("labels") or {}), TASK_RUN_LABEL: taskrun.name},
            "annotations": simulation_annotations(obj),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _following(affinity: Obj, assistant: str) -> Obj:
    """Return the affinity to the assistant, in addition to that of the pod template."""
    rule = "requiredDuringSchedulingIgnoredDuringExecution"
    pods = affinity.get("podAffinity") or {}
    term = {
        "labelSelector": {
            "matchLabels": {INSTANCE_LABEL: assistant, COMPONENT_LABEL: "affinity-assistant"}
        },
        "topologyKey": HOSTNAME,
    }
    return {**affinity, "podAffinity": {**pods, rule: [*(pods.get(rule) or ()), term]}}
