"""Kueue's visibility API: who waits in a ClusterQueue or LocalQueue, in the order of admission."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.console.access.reviews import User
from services.console.documents import VISIBILITY_VERSIONS
from services.console.http.parameters import cluster_of, limit_of, number
from services.console.query_service import QueryService
from services.console.status_error import not_found
from shared.contracts.kube.kinds import VISIBILITY_GROUP

ROOT: Final = f"/apis/{VISIBILITY_GROUP}/{{version}}"
RESOURCES: Final = (("clusterqueues", False), ("localqueues", True))
"""With pending workloads: plural, and whether it is in a namespace."""


class VisibilityApi:
    """One method for each path. `identify` says who asks, or raises `StatusError`."""

    def __init__(
        self, queries: QueryService, *, identify: Callable[[Request], Awaitable[User]]
    ) -> None:
        self._queries = queries
        self._identify = identify

    def answers(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """By path."""
        return {
            ROOT: self.resources,
            f"{ROOT}/clusterqueues/{{name}}/pendingworkloads": self.cluster_queue,
            f"{ROOT}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads": self.local_queue,
        }

    async def resources(self, request: Request) -> Response:
        """The resource list of Kueue's visibility API, for discovery."""
        version = _version(request)
        found = [
            {
                "name": f"{plural}/pendingworkloads",
                "singularName": "",
                "namespaced": namespaced,
                "kind": "PendingWorkloadsSummary",
                "verbs": ["get"],
            }
            for plural, namespaced in RESOURCES
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "resources": found}
        return JSONResponse({**listed, "groupVersion": f"{VISIBILITY_GROUP}/{version}"})

    async def cluster_queue(self, request: Request) -> Response:
        """The workloads that wait in a ClusterQueue."""
        version, user = _version(request), await self._identify(request)
        summary = await self._queries.pending_in_cluster_queue(
            user,
            cluster_of(request, self._queries.cluster),
            request.path_params["name"],
            limit=limit_of(request),
            offset=number(request, "offset", 0),
        )
        return JSONResponse({**summary.wire(), "apiVersion": f"{VISIBILITY_GROUP}/{version}"})

    async def local_queue(self, request: Request) -> Response:
        """The workloads that wait in a LocalQueue."""
        version, user = _version(request), await self._identify(request)
        summary = await self._queries.pending_in_local_queue(
            user,
            cluster_of(request, self._queries.cluster),
            request.path_params["namespace"],
            request.path_params["name"],
            limit=limit_of(request),
            offset=number(request, "offset", 0),
        )
        return JSONResponse({**summary.wire(), "apiVersion": f"{VISIBILITY_GROUP}/{version}"})


def _version(request: Request) -> str:
    version = str(request.path_params["version"])
    if version not in VISIBILITY_VERSIONS:
        raise not_found(f"{VISIBILITY_GROUP}/{version}")
    return version
