"""Borders of the kinds that can wait: rows for each Integration, so that a new kind gets its own."""

import asyncio
import copy
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st

from services.classifier.projection.projector import Projector
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.reviewing.reviewer import Reviewer
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from shared.bus.follow import dispatch
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.integrations import Integration, Integrations
from shared.integrations.pointers import written as put
from shared.integrations.registry import documents, opted, opted_documents
from shared.testing.builders import observed_object
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.messages import addressed
from tests.fuzz.objects import TEMPLATE, condition
from tests.fuzz.reviews import RULES, review
from tests.fuzz.values import broken, long, texts, written

Object = dict[str, Any]

_FRAMEWORKS: Final = (
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
_OPTED: Final = [
    {**one, "metadata": {**one["metadata"], "uid": "u", "resourceVersion": "1"}}
    for one in opted_documents(_FRAMEWORKS)
]


def _registry() -> Integrations:
    registry = Integrations()
    for one in _OPTED:
        registry.apply(one)
    return registry


_REGISTRY: Final = _registry()
_ROLE: Final = {"replicas": 2, "template": TEMPLATE}
_HEAD: Final = {"headGroupSpec": {"template": TEMPLATE}}
_RAY: Final = _HEAD | {
    "workerGroupSpecs": [
        {"groupName": "w", "replicas": 1, "minReplicas": 1, "numOfHosts": 2, "template": TEMPLATE}
    ]
}
_ACTIVE: Final = {
    "conditions": [condition("Running")],
    "replicaStatuses": {"Worker": {"active": 1}},
}
_SPARK: Final = {
    "cores": 1, "coreRequest": "1", "memory": "1g", "memoryLimit": "2g", "labels": {"a": "b"},
    "annotations": {"a": "b"}, "gpu": {"name": "g", "quantity": 1}, "sidecars": [{"name": "s"}],
    "initContainers": [{"name": "i"}], "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}],
}  # fmt: skip
_WRAPPED: Final = (
    objects.JOB, objects.JOBSET, {**objects.JOB, "apiVersion": "example.com/v1", "kind": "Other"},
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": objects.POD},
)  # fmt: skip
_SCALED: Final = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}

_FIELDS: Final[dict[str, tuple[Object, Object]]] = {
    "MPIJob": ({"runPolicy": {"suspend": True}, "slotsPerWorker": 1, "runLauncherAsWorker": True,
                "mpiReplicaSpecs": {"Launcher": _ROLE, "Worker": _ROLE}}, _ACTIVE),
    "PyTorchJob": ({"runPolicy": {"suspend": True, "schedulingPolicy": {"minAvailable": 1}},
                    "pytorchReplicaSpecs": {"Master": _ROLE, "Worker": _ROLE}}, _ACTIVE),
    "TrainJob": ({"suspend": True, "runtimeRef": {"name": "r"}, "trainer": {"numNodes": 2}},
                 {"jobsStatus": [{"name": "node", "active": 1}], "conditions": [condition("Complete")]}),
    "RayJob": ({"suspend": True, "rayClusterSpec": _RAY, "submissionMode": "K8sJobMode",
                "submitterPodTemplate": TEMPLATE, "shutdownAfterJobFinishes": True},
               {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}),
    "RayCluster": ({"suspend": True, "enableInTreeAutoscaling": False, **_RAY},
                   {"state": "ready", "conditions": [condition("HeadPodReady")]}),
    "RayService": ({"rayClusterConfig": {"suspend": True, **_RAY}},
                   {"activeServiceStatus": {"rayClusterStatus": {"state": "ready"}}}),
    "AppWrapper": ({"suspend": True, "components": [
        {"podSets": [{"replicas": 2, "path": "template.spec.template"}],
         "podSetInfos": [{"annotations": {}}], "template": one} for one in _WRAPPED]},
        {"phase": "Running", "conditions": [condition("QuotaReserved")]}),
    "SparkApplication": ({"suspend": True, "mode": "cluster", "driver": _SPARK,
                          "executor": {**_SPARK, "instances": 2},
                          "sparkConf": {"spark.executor.instances": "2"},
                          "dynamicAllocation": {"enabled": False}},
                         {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING"}}),
    "Workflow": ({"suspend": True, "shutdown": "Stop"}, {"phase": "Running", "nodes": {"a": {}}}),
    "Pod": (objects.POD, {"phase": "Pending", "conditions": [condition("Ready")]}),
    "Deployment": (_SCALED, {"replicas": 1, "readyReplicas": 1}),
    "StatefulSet": ({**_SCALED, "serviceName": "x", "ordinals": {"start": 1}}, {"replicas": 1}),
    "LeaderWorkerSet": ({"replicas": 2, "startupPolicy": "LeaderCreated",
                         "leaderWorkerTemplate": {"size": 3, "leaderTemplate": TEMPLATE,
                                                  "workerTemplate": TEMPLATE}}, {"replicas": 1}),
}  # fmt: skip
"""Spec and status of a kind of which the document does not say enough."""

_GROUPED: Final = {
    "kueue.x-k8s.io/pod-group-name": "g",
    "kueue.x-k8s.io/managed": "true",
}
_IN_GROUP: Final = {
    "kueue.x-k8s.io/pod-group-total-count": "2",
    "kueue.x-k8s.io/role-hash": "abc",
    "kueue.x-k8s.io/retriable-in-group": "false",
    "kueue.x-k8s.io/pod-group-fast-admission": "true",
}
_FIELD: Final = re.compile(r"\b(?:spec|status)(?:\.\??[A-Za-z]\w*)+(?!\w*\()")
"""A field in an expression: `spec.?template.parallelism`."""


def sample(integration: Integration) -> Object:
    """An object of the kind: each field that its document reads, and a template where pods are."""
    kind = integration.kind
    grouped = integration.group is not None
    found = objects.obj(
        kind, "x", labels=objects.QUEUED | (_GROUPED if grouped else {}),
        annotations=objects.ASKS | (_IN_GROUP if grouped else {}),
        metadata={} if grouped else {"ownerReferences": [objects.OWNER]}, spec={}, status={},
    )  # fmt: skip
    if kind.kind in _FIELDS:
        found["spec"], found["status"] = copy.deepcopy(_FIELDS[kind.kind])
        return found
    return _from_document(found, integration)


def _from_document(obj: Object, integration: Integration) -> Object:
    text = integration.document.model_dump_json()
    for path in sorted({path.replace("?", "") for path in _FIELD.findall(text)}):
        obj = _with(obj, tuple(path.split(".")), 1)
    for plan in integration.compile().pod_sets:
        template = plan.template or ()
        if plan.each is None or not plan.in_item:
            obj = _with(obj, template, TEMPLATE)
            continue
        item = _with({"name": "a", "replicas": 2}, template, TEMPLATE)
        keyed = dict.fromkeys(plan.order, item)
        obj = _with(obj, plan.each, keyed or [item])
    return obj


def _with(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    return put(obj, path, copy.deepcopy(value)) if path else obj


_CONTEXTS: Final = (
    NamespaceContext(integrations=_REGISTRY),
    NamespaceContext(
        patchers=frozenset({"patcher"}), knows_decisions=True, integrations=_REGISTRY,
        default_queue="main", uses_multikueue=lambda queue: queue == "main",
    ),
    NamespaceContext(
        patchers=frozenset({"jane"}), manage_without_queue=True, integrations=_REGISTRY,
        is_admitted=lambda _uid: True, is_admitted_as=lambda _uid, _kind: True,
    ),
)  # fmt: skip


def _review(example: tuple[bytes, NamespaceContext]) -> object:
    data, context = example
    reviewer = Reviewer(here=WithinBudget(context_of=lambda _namespace: context))
    return asyncio.run(_both(reviewer, data))


async def _both(reviewer: Reviewer, data: bytes) -> object:
    return await reviewer.mutate(data, RULES, None), await reviewer.validate(data)


def _observe(message: Any) -> object:
    projector = Projector("hub")
    for one in (*(samples[0] for samples in objects.ALL.values()), *_OPTED):
        kind = _BY_KIND.get(one["kind"])
        if kind is not None:
            projector.observe(observed_object(kind, one))
    list(projector.changes())
    entry = addressed(Observed, written(message))
    dispatch(entry, {Observed: lambda one, _: projector.observe(one)})
    projector.on_synced()
    return [state.encode() for state, _ in projector.changes()]


_BY_KIND: Final = {kind.kind: kind for kind in (*objects.ALL, kinds.INTEGRATION)}


def _long(integration: Integration, example: tuple[str, Object]) -> object:
    """Read an object that is new, that is changed, or that is watched."""
    way, obj = example
    if way == "watched":
        message = observed_object(integration.kind, sample(integration)).model_dump(mode="json")
        return _observe({**message, "object": obj})
    old = {"CREATE": None, "UPDATE": sample(integration)}[way]
    return _review((written(review(obj, old, way)), _CONTEXTS[1]))


def integrations() -> list[Integration]:
    """All that ship, those for which a cluster has to opt included."""
    found = [i for name in _registry_kinds() if (i := _REGISTRY.find(**name)) is not None]
    assert len(found) == len([*documents(), *opted()]), "a document without a row"
    return found


def _registry_kinds() -> Iterator[dict[str, str]]:
    shipped = Integrations()
    for kind in shipped.kinds():
        yield {"group": kind.group, "kind": kind.kind}
    for one in _OPTED:
        of = one["spec"]["kind"]
        yield {"group": of["group"], "kind": of["kind"]}


def borders() -> Iterator[Border]:
    """Each kind in the webhook and in the projection, nearly right; then with long lists."""
    for integration in integrations():
        kind, obj = integration.kind.kind, sample(integration)
        reviews = texts(review(obj), review(obj, obj, "UPDATE"))
        message = observed_object(integration.kind, obj).model_dump(mode="json")
        yield Border(
            name=f"webhook: {kind}", weight=1.0, call=_review,
            strategy=st.tuples(reviews, st.sampled_from(_CONTEXTS)),
        )  # fmt: skip
        yield Border(
            name=f"projection: {kind}", weight=0.3, call=_observe, strategy=broken(message)
        )
        yield Border(
            name=f"long lists: {kind}", weight=0.05, tested=4,
            strategy=st.tuples(st.sampled_from(["CREATE", "UPDATE", "watched"]), long(obj)),
            call=partial(_long, integration),
        )  # fmt: skip
