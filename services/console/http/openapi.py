"""The HTTP API as an OpenAPI 3.1 document, made from the models in `documents`."""

import json
from functools import cache
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from services.console.documents import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    VISIBILITY_VERSIONS,
    Explained,
    PendingWorkloadsSummary,
    QueueList,
    SimulateAnswer,
    SimulateRequest,
    Snapshot,
    WorkloadList,
)
from services.console.pages.documents import (
    AlertList,
    FlavorList,
    GivenList,
    PlatformList,
    QuotaTree,
    SpokeList,
    StartList,
    Timeline,
    Trend,
    Use,
)
from services.console.pages.trends import SPANS
from shared.contracts.kube.kinds import VISIBILITY_GROUP

Json = dict[str, Any]

ANSWERS: Final = (
    PendingWorkloadsSummary,
    QueueList,
    WorkloadList,
    Explained,
    Timeline,
    GivenList,
    AlertList,
    QuotaTree,
    Trend,
    FlavorList,
    SpokeList,
    StartList,
    Use,
    PlatformList,
    SimulateAnswer,
    Snapshot,
)
_REF: Final = "#/components/schemas/{model}"
_STATUS: Final[Json] = {
    "title": "Status",
    "type": "object",
    "description": "An error, as `metav1.Status`.",
    "required": ["kind", "apiVersion", "status", "message", "reason", "code"],
    "properties": {
        "kind": {"const": "Status"},
        "apiVersion": {"const": "v1"},
        "metadata": {"type": "object"},
        "status": {"const": "Failure"},
        "message": {"type": "string"},
        "reason": {"type": "string"},
        "code": {"type": "integer"},
    },
}


@cache
def openapi_text() -> bytes:
    """The document as it is answered.

    It is made once: that takes a third of a second, and whoever reaches the port may ask for it.
    """
    return json.dumps(openapi(), ensure_ascii=False, separators=(",", ":")).encode()


def openapi() -> Json:
    """The document. Equal for equal code."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate console",
            "version": "v1",
            "description": "Who waits, why, and what a change would do. Everything is read only. Bearer "
            "tokens are checked by the cluster (TokenReview); a user sees a namespace if they may list its "
            "Workloads there (SubjectAccessReview).",
        },
        "security": [{"bearer": []}],
        "paths": {**_visibility(), **_ours()},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {**_schemas(), "Status": _STATUS},
        },
    }


def _schemas() -> Json:
    _, answers = models_json_schema(
        [(model, "serialization") for model in ANSWERS], ref_template=_REF
    )
    _, asked = models_json_schema([(SimulateRequest, "validation")], ref_template=_REF)
    found: Json = {**asked["$defs"], **answers["$defs"]}
    return {name: found[name] for name in sorted(found)}


def _visibility() -> Json:
    version = {
        **_path("version", "Version of Kueue's API."),
        "schema": {"enum": list(VISIBILITY_VERSIONS)},
    }
    page = [
        _query(
            "limit", "Maximum number of items.", "integer", default=LIMIT_DEFAULT, maximum=LIMIT_MAX
        ),
        _query("offset", "Number of items to skip.", "integer", default=0),
        _query("cluster", "The cluster; default: the one that the console runs in."),
    ]
    base = f"/apis/{VISIBILITY_GROUP}/{{version}}"
    name, namespace = (
        _path("name", "Name of the queue."),
        _path("namespace", "Namespace of the queue."),
    )
    return {
        f"{base}/clusterqueues/{{name}}/pendingworkloads": _get(
            "pendingWorkloadsOfClusterQueue",
            "Workloads that wait in a ClusterQueue, in order. With `get` of `clusterqueues/pendingworkloads` "
            "all are listed, with `get` of the ClusterQueue those of namespaces that the user may see.",
            PendingWorkloadsSummary,
            version,
            name,
            *page,
        ),
        f"{base}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads": _get(
            "pendingWorkloadsOfLocalQueue",
            "Workloads that wait in a LocalQueue, in order.",
            PendingWorkloadsSummary,
            version,
            namespace,
            name,
            *page,
        ),
    }


def _ours() -> Json:
    only = _query("namespace", "Only this namespace; default: all that the user may see.")
    return {
        **_lists(only),
        **_of_a_workload(),
        **_alerts(),
        **_over_time(only),
        **_of_the_cluster(),
        "/api/v1/simulate": _simulate(),
        "/api/v1/events": _events(only),
    }


def _lists(only: Json) -> Json:
    """Queues and workloads."""
    return {
        "/api/v1/queues": _get("queues", "Queues with their counts and usage.", QueueList, only),
        "/api/v1/workloads": _get(
            "workloads",
            "Waiting, running and finished workloads; the youngest first.",
            WorkloadList,
            only,
            _query("limit", "Maximum number of items.", "integer", default=2000, maximum=20_000),
        ),
    }


def _of_a_workload() -> Json:
    """Why it waits, and what happened to it."""
    return {
        "/api/v1/namespaces/{namespace}/workloads/{name}/explain": _get(
            "explain",
            "Why a workload waits: what it lacks, who holds that, who is ahead, what would help.",
            Explained,
            _path("namespace", "Namespace of the workload."),
            _path("name", "Name of the workload or of its job."),
            _query("cluster", "Only this cluster."),
            _query("forecast", "Also predict when it starts; that takes a moment.", "boolean"),
        ),
        "/api/v1/namespaces/{namespace}/workloads/{name}/timeline": _get(
            "timeline",
            "What happened to a workload, from the logs; also to one that has ended.",
            Timeline,
            _path("namespace", "Namespace of the workload."),
            _path("name", "Name of the workload."),
            _query("cluster", "Its cluster; default: the one that the console runs in."),
        ),
        "/api/v1/namespaces/{namespace}/workloads/{name}/given": _get(
            "given",
            "What a workload asks and what it was given: for each pod set its pods, resources and flavors. "
            "Node labels of flavors are for who may list the ResourceFlavors.",
            GivenList,
            _path("namespace", "Namespace of the workload."),
            _path("name", "Name of the workload."),
            _query("cluster", "Its cluster; default: the one that the console runs in."),
        ),
    }


def _alerts() -> Json:
    """What somebody should look at."""
    return {
        "/api/v1/alerts": _get(
            "alerts",
            "The alerts that ring: of Prometheus where the console is told of one, else those that the "
            "streams tell of. For who may list the ClusterQueues.",
            AlertList,
        ),
    }


def _over_time(only: Json) -> Json:
    """The past and the future of queues."""
    return {
        "/api/v1/trends": _get(
            "trends",
            "Admissions, preemptions and waits by priority of the last hour, day or week, from the logs.",
            Trend,
            {**_query("span", "How far back; default: 24h."), "schema": {"enum": list(SPANS)}},
            only,
        ),
        "/api/v1/clusterqueues/{name}/use": _get(
            "use",
            "Quota that a ClusterQueue had reserved in the last hour, day or week, from the log of statuses.",
            Use,
            {**_query("span", "How far back; default: 24h."), "schema": {"enum": list(SPANS)}},
            _path("name", "Name of the ClusterQueue."),
            _query("cluster", "Its cluster; default: the one that the console runs in."),
        ),
        "/api/v1/clusterqueues/{name}/starts": _get(
            "starts",
            "When the first workloads that wait in a ClusterQueue probably start, at most half a minute old.",
            StartList,
            _path("name", "Name of the ClusterQueue."),
            _query("cluster", "Its cluster; default: the one that the console runs in."),
            only,
        ),
    }


def _of_the_cluster() -> Json:
    """Where work runs, and whose quota it holds."""
    return {
        "/api/v1/quota": _get(
            "quota",
            "ClusterQueues and cohorts, parents first: for each resource of each flavor what is nominal, "
            "reserved, used, borrowed and lent. For who may list the ClusterQueues.",
            QuotaTree,
        ),
        "/api/v1/flavors": _get(
            "flavors", "ResourceFlavors: the nodes that they mean.", FlavorList
        ),
        "/api/v1/spokes": _get("spokes", "Spokes: state, orders and free quota.", SpokeList),
        "/api/v1/machines": _get(
            "machines",
            "Slots and machines of each platform; names of TaskRuns in namespaces that the user may see.",
            PlatformList,
        ),
    }


def _simulate() -> Json:
    operation = _operation(
        "simulate", "What a change would do. Nothing is written.", SimulateAnswer
    )
    operation["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": _ref(SimulateRequest)}},
    }
    return {"post": operation}


def _events(only: Json) -> Json:
    operation = _operation(
        "events",
        "Server-sent events: `snapshot` with all queues and the first workloads, `rows` with further "
        "workloads, then at most once a second `change` with rows that changed (`queues`, `workloads`) "
        "and the names of objects that are `gone`; `end` when the user may see nothing any more. The "
        "schema is that of a snapshot's data.",
        Snapshot,
    )
    ok = operation["responses"]["200"]
    ok["content"] = {"text/event-stream": {"schema": _ref(Snapshot)}}
    return {"get": {**operation, "parameters": [only]}}


def _get(identity: str, about: str, answer: type[BaseModel], *parameters: Json) -> Json:
    return {"get": {**_operation(identity, about, answer), "parameters": list(parameters)}}


def _operation(identity: str, about: str, answer: type[BaseModel]) -> Json:
    return {
        "operationId": identity,
        "description": about,
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": _ref(answer)}},
            },
            "default": {
                "description": "An error.",
                "content": {"application/json": {"schema": {"$ref": _REF.format(model="Status")}}},
            },
        },
    }


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": _REF.format(model=model.__name__)}


def _path(name: str, about: str) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": about,
        "schema": {"type": "string"},
    }


def _query(name: str, about: str, type_: str = "string", **more: Any) -> Json:
    return {
        "name": name,
        "in": "query",
        "description": about,
        "schema": {"type": type_, **({"minimum": 0} if type_ == "integer" else {}), **more},
    }
