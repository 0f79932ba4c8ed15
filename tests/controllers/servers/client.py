"""Requests to the API server, past our own client: the judge shares no code with the services."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import aiohttp

from shared.integrations import SHIPPED

Json = Any

MERGE: Final = "application/merge-patch+json"
OPERATIONS: Final = "application/json-patch+json"
LINE_BYTES_MAX: Final = 1 << 24
CALL_SECONDS: Final = 60.0

PATHS: Final = {
    "Namespace": ("api/v1", "namespaces"),
    "Pod": ("api/v1", "pods"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Node": ("api/v1", "nodes"),
    "Secret": ("api/v1", "secrets"),
    "Job": ("apis/batch/v1", "jobs"),
    "CronJob": ("apis/batch/v1", "cronjobs"),
    "PipelineRun": ("apis/tekton.dev/v1", "pipelineruns"),
    "TaskRun": ("apis/tekton.dev/v1", "taskruns"),
    "Pipeline": ("apis/tekton.dev/v1", "pipelines"),
    "Workload": ("apis/kueue.x-k8s.io/v1beta2", "workloads"),
    "ClusterQueue": ("apis/kueue.x-k8s.io/v1beta2", "clusterqueues"),
    "LocalQueue": ("apis/kueue.x-k8s.io/v1beta2", "localqueues"),
    "ResourceFlavor": ("apis/kueue.x-k8s.io/v1beta2", "resourceflavors"),
    "WorkloadPriorityClass": ("apis/kueue.x-k8s.io/v1beta2", "workloadpriorityclasses"),
    "CustomResourceDefinition": (
        "apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
    ),
}
"""Kind to the path of its version, and its resource."""

PATHS_OF_KINDS: Final = {
    one.kind.kind: (f"apis/{one.kind.api_version}", one.kind.plural) for one in SHIPPED
}


class RequestError(Exception):
    """The API server refused a request, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message[:400]}")
        self.status = status


def path_of(kind: str, namespace: str | None = None, name: str | None = None) -> str:
    """Where a kind, or an object of it, is."""
    version, resource = PATHS.get(kind) or PATHS_OF_KINDS[kind]
    parts = [version, *(["namespaces", namespace] if namespace else []), resource]
    return "/".join([*parts, *([name] if name else [])])


class Client:
    """One user of the API server. Close it."""

    def __init__(self, url: str, context: ssl.SSLContext, *, token: str | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            read_bufsize=LINE_BYTES_MAX,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Json = None, *, content: str = "application/json"
    ) -> Json:
        """Send a request; return what it answers. Raises `RequestError`."""
        headers = {**self._headers, "Content-Type": content}
        data = None if body is None else json.dumps(body)
        try:
            async with (
                asyncio.timeout(CALL_SECONDS),
                self._session.request(
                    method, f"{self._url}/{path}", data=data, headers=headers
                ) as answer,
            ):
                text = await answer.text()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise RequestError(0, repr(error)) from error
        if answer.status >= 300:
            with suppress(ValueError, AttributeError):
                text = str(json.loads(text).get("message"))
            raise RequestError(answer.status, text)
        return json.loads(text) if text else {}

    async def get(self, kind: str, namespace: str | None, name: str) -> Json:
        """The object. Raises `RequestError`."""
        return await self.call("GET", path_of(kind, namespace, name))

    async def create(self, kind: str, obj: Json) -> Json:
        """Create it in the namespace of its metadata. Raises `RequestError`."""
        version = (PATHS.get(kind) or PATHS_OF_KINDS[kind])[0].partition("/")[2]
        body = {"apiVersion": version, "kind": kind, **obj}
        return await self.call("POST", path_of(kind, obj["metadata"].get("namespace")), body)

    async def patch(
        self, kind: str, namespace: str | None, name: str, patch: Json, *, below: str = ""
    ) -> Json:
        """Apply a merge patch, or a JSON patch if it is a list; `below` names a subresource."""
        content = OPERATIONS if isinstance(patch, list) else MERGE
        path = path_of(kind, namespace, name) + below
        return await self.call("PATCH", path, patch, content=content)

    async def delete(
        self, kind: str, namespace: str | None, name: str, *, propagation: str = "Background"
    ) -> None:
        """Delete it; what it owns goes as `propagation` says."""
        await self.call(
            "DELETE", path_of(kind, namespace, name), {"propagationPolicy": propagation}
        )

    async def list(self, kind: str) -> Json:
        """All objects of a kind, in all namespaces."""
        return await self.call("GET", path_of(kind))

    async def watch(self, kind: str, version: str) -> AsyncIterator[tuple[str, Json]]:
        """Type and object of each event after a resource version. Raises `RequestError`."""
        query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
        try:
            async with self._session.get(
                f"{self._url}/{path_of(kind)}{query}", headers=self._headers
            ) as answer:
                if answer.status >= 300:
                    raise RequestError(answer.status, await answer.text())
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise RequestError(int(status.get("code", 500)), str(status))
                    yield event["type"], event["object"]
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise RequestError(0, repr(error)) from error
