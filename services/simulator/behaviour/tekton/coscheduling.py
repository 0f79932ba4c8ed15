"""Tekton's own coscheduling: affinity assistants, and the claims of runs.

Names, labels and rules are those of tektoncd/pipeline v1.11,
`pkg/reconciler/pipelinerun/affinity_assistant.go`.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import (
    CLAIMS,
    CONFIG_MAPS,
    NODES,
    PODS,
    STATEFUL_SETS,
)
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.coscheduling import (
    ASSISTANT_COMPONENT,
    COMPONENT_LABEL,
    FEATURE_FLAGS,
    INSTANCE_LABEL,
    PER_RUN,
    RUN_LABEL,
    TEKTON_DEFAULT,
)
from shared.contracts.kube.names import HOSTNAME

NAMESPACE: Final = "tekton-pipelines"


def flag(api: Api) -> str:
    """Return Tekton's coscheduling mode, from its ConfigMap as it is now."""
    found = api.store.get(CONFIG_MAPS, NAMESPACE, FEATURE_FLAGS)
    data = {} if found is None else found.obj.get("data") or {}
    return str(data.get("coschedule", TEKTON_DEFAULT))


def _digest(*parts: str) -> str:
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:10]


def claim_name(binding: Obj, run_uid: str) -> str:
    """Name of the claim that Tekton makes from a workspace's template."""
    own = (binding["volumeClaimTemplate"].get("metadata") or {}).get("name") or "pvc"
    return f"{own}-{_digest(binding['name'], run_uid)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assistant:
    name: str
    claims: list[str]
    templates: list[Obj]


class Coscheduling:
    """Tekton's affinity assistants in one cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def prepare(self, run: Stored, owner: Obj) -> None:
        """Create claims and assistants; delete the pod of an assistant on a cordoned node."""
        mode, bindings = flag(self._api), _with_claims(run)
        if not bindings and mode not in PER_RUN:
            return
        if mode not in PER_RUN:
            for binding in bindings:
                await self._create_claim(run, binding, owner)
        for assistant in self._assistants(run, mode):
            if self._api.store.get(STATEFUL_SETS, run.namespace, assistant.name) is None:
                body = _stateful_set(run, assistant, owner, alone=mode == "isolate-pipelinerun")
                await self._api.create(STATEFUL_SETS, "v1", run.namespace, body)
            else:
                self._off_cordoned(run.namespace, assistant.name)

    def bind(self, run: Stored, uses: Iterable[Obj]) -> tuple[list[Obj], str]:
        """Return the workspaces of a TaskRun and the name of its assistant; empty if it has none."""
        mode = flag(self._api)
        by_name = {binding["name"]: binding for binding in run.obj["spec"].get("workspaces") or ()}
        bound: list[Obj] = []
        last = ""
        for use in uses:
            binding = by_name.get(use.get("workspace") or use["name"])
            if binding is None:
                continue
            made = {key: value for key, value in binding.items() if key != "volumeClaimTemplate"}
            if binding.get("volumeClaimTemplate"):
                made["persistentVolumeClaim"] = {"claimName": self._claim(run, binding, mode)}
            if made.get("persistentVolumeClaim"):
                last = binding["name"]
            bound.append({**made, "name": use["name"]})
        if mode in PER_RUN:
            return bound, _name("", run)
        return bound, _name(last, run) if mode == "workspaces" and last else ""

    def clean(self, run: Stored) -> None:
        """Delete the assistants; in the modes that isolate or group whole runs also their claims."""
        mode = flag(self._api)
        for assistant in self._assistants(run, mode):
            found = self._api.store.get(STATEFUL_SETS, run.namespace, assistant.name)
            if found is not None:
                self._api.delete_now(found)
        if mode in PER_RUN:
            for binding in _with_claims(run):
                if binding.get("volumeClaimTemplate"):
                    name = self._claim(run, binding, mode)
                    claim = self._api.store.get(CLAIMS, run.namespace, name)
                    if claim is not None:
                        self._api.store.remove(claim)

    def _assistants(self, run: Stored, mode: str) -> list[_Assistant]:
        bindings = _with_claims(run)
        if mode in PER_RUN:
            templates = [
                {
                    **b["volumeClaimTemplate"],
                    "metadata": {
                        **(b["volumeClaimTemplate"].get("metadata") or {}),
                        "name": claim_name(b, run.uid),
                    },
                }
                for b in bindings
                if b.get("volumeClaimTemplate")
            ]
            given = [
                b["persistentVolumeClaim"]["claimName"]
                for b in bindings
                if not b.get("volumeClaimTemplate")
            ]
            return [_Assistant(name=_name("", run), claims=given, templates=templates)]
        if mode != "workspaces":
            return []
        return [
            _Assistant(name=_name(b["name"], run), claims=[self._claim(run, b, mode)], templates=[])
            for b in bindings
        ]

    @staticmethod
    def _claim(run: Stored, binding: Obj, mode: str) -> str:
        if not binding.get("volumeClaimTemplate"):
            return str(binding["persistentVolumeClaim"]["claimName"])
        name = claim_name(binding, run.uid)
        return f"{name}-{_name('', run)}-0" if mode in PER_RUN else name

    async def _create_claim(self, run: Stored, binding: Obj, owner: Obj) -> None:
        """Create the claim unless it exists: an existing claim is used as it is."""
        template = binding.get("volumeClaimTemplate")
        if not template:
            return
        name = claim_name(binding, run.uid)
        if self._api.store.get(CLAIMS, run.namespace, name) is not None:
            return
        metadata = {
            **(template.get("metadata") or {}),
            "name": name,
            "namespace": run.namespace,
            "ownerReferences": [owner],
        }
        body = {"metadata": metadata, "spec": template.get("spec") or {}}
        await self._api.create(CLAIMS, "v1", run.namespace, body)

    def _off_cordoned(self, namespace: str, name: str) -> None:
        pod = self._api.store.get(PODS, namespace, f"{name}-0")
        if pod is None or "deletionTimestamp" in pod.obj["metadata"]:
            return
        node = self._api.store.get(NODES, "", pod.obj["spec"].get("nodeName") or "")
        if node is not None and (node.obj.get("spec") or {}).get("unschedulable"):
            self._api.delete_now(pod)


def _with_claims(run: Stored) -> list[Obj]:
    bindings: list[Obj] = run.obj["spec"].get("workspaces") or []
    return [b for b in bindings if b.get("persistentVolumeClaim") or b.get("volumeClaimTemplate")]


def _name(workspace: str, run: Stored) -> str:
    return f"{ASSISTANT_COMPONENT}-{_digest(workspace, run.name)}"


def _stateful_set(run: Stored, assistant: _Assistant, owner: Obj, *, alone: bool) -> Obj:
    labels = {
        **(run.obj["metadata"].get("labels") or {}),
        RUN_LABEL: run.name,
        INSTANCE_LABEL: assistant.name,
        COMPONENT_LABEL: ASSISTANT_COMPONENT,
    }
    term = {
        "labelSelector": {"matchLabels": {COMPONENT_LABEL: ASSISTANT_COMPONENT}},
        "topologyKey": HOSTNAME,
    }
    preference: dict[str, Any] = (
        {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        if alone
        else {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": term}
            ]
        }
    )
    volumes = [
        {"name": f"workspace-{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(assistant.claims)
    ]
    pod = {
        "containers": [
            {"name": ASSISTANT_COMPONENT, "image": "nop", "args": ["tekton_run_indefinitely"]}
        ],
        "affinity": {"podAntiAffinity": preference},
        "volumes": volumes,
    }
    return {
        "metadata": {
            "name": assistant.name,
            "namespace": run.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
            "volumeClaimTemplates": assistant.templates,
        },
    }
