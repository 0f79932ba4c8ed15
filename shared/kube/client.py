"""One API server over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.kinds import SECRET, Kind
from shared.contracts.webhook import FIELD_MANAGER
from shared.kube.answers import decoded, encoded, error_from, error_from_status
from shared.kube.config import OpenAccess, from_settings, plain
from shared.kube.connections import READ_BYTES, Answered, Connections
from shared.kube.lines import lines
from shared.kube.port import (
    ExpiredError,
    KubeError,
    Listing,
    NotFoundError,
    Patch,
    RefusedError,
    UnavailableError,
    WatchEvent,
)

Json = dict[str, Any]

PAGE_ITEMS: Final = 500
"""Objects a page of a list: what client-go asks for."""

CALL_SECONDS: Final = 60.0
"""For one request with its whole answer; not for a watch. The API server itself stops after 60 s."""

CONNECT_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 290
"""How long one watch lasts: the server ends it before `SILENCE_SECONDS` is over."""

SILENCE_SECONDS: Final = 300.0
"""A watch without any data for this long has lost its peer."""

CONNECTIONS_MAX: Final = 16
"""For calls; each watch has its own connection in addition."""

REOPEN_SECONDS: Final = 30.0
"""Shortest interval at which refused credentials are read again."""

_WATCH_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})

_JSON: Final = "application/json"
_DISCOVERY: Final = f"{_JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{_JSON}"


class HttpKube:
    """Implements the `Kube` protocol over HTTP. Connects at the first call.

    Objects are JSON, decoded once. It does not retry: that is the caller's decision. Items of a list
    lack `apiVersion` and `kind` in the API server's answer; here they have both.
    """

    def __init__(
        self,
        access: OpenAccess,
        *,
        connections: int = CONNECTIONS_MAX,
        page_items: int = PAGE_ITEMS,
        call_seconds: float = CALL_SECONDS,
        watch_seconds: int = WATCH_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        on_answer: Answered | None = None,
    ) -> None:
        self._open_access = access
        self._on_answer = on_answer
        self._connections_max = connections
        self._page_items = page_items
        self._watch_seconds = watch_seconds
        self._call_timeout = aiohttp.ClientTimeout(total=call_seconds, sock_connect=CONNECT_SECONDS)
        self._watch_timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds
        )
        self._connected: Connections | None = None
        self._opening = asyncio.Lock()
        self._retired: list[Connections] = []

    @classmethod
    def at(cls, server: str) -> Self:
        """A server without authentication."""
        return cls(plain(server))

    @classmethod
    def from_kubeconfig(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """The cluster of a kubeconfig file; without one, the cluster of this pod."""
        return cls(from_settings(kubeconfig, context))

    @classmethod
    def for_service(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """As `from_kubeconfig`, for a process with metrics: they count the answers."""
        from shared.telemetry.metrics import count_kube_answer  # noqa: PLC0415

        return cls(from_settings(kubeconfig, context), on_answer=count_kube_answer)

    async def served(self) -> frozenset[tuple[str, str, str]]:
        """Return (group, version, plural) of every resource that the server serves."""
        found: set[tuple[str, str, str]] = set()
        for path in ("/api", "/apis"):
            document = await self._call("GET", path, accept=_DISCOVERY)
            if document.get("kind") == "APIGroupDiscoveryList":
                found |= _aggregated(document)
            else:
                for version in _group_versions(document):
                    found |= await self._resources(path, version)
        return frozenset(found)

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        """Return all objects of `kind`, page by page but from one resource version.

        If that version expires between two pages, the whole list is requested again, as one page.
        """
        try:
            return await self._listed(kind, namespace, labels, self._page_items)
        except ExpiredError:
            return await self._listed(kind, namespace, labels, None)

    async def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Yield events after `resource_version`, bookmarks included."""
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._watch_seconds),
        }
        if labels:
            query["labelSelector"] = labels
        path = _path(kind, namespace)
        what = f"watch {path}"
        async with aclosing(
            self._lines(path, query, _accept(kind, "PartialObjectMetadata"))
        ) as got:
            async for line in got:
                event = decoded(line, what)
                yield _watch_event(event, kind, what)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        """Return the object."""
        return as_body(await self._call("GET", _path(kind, namespace, name)))

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Body:
        """Create `obj` in the namespace that its metadata names; return it as stored."""
        namespace = obj.get("metadata", {}).get("namespace")
        if kind.namespaced and not namespace:
            raise RefusedError(f"create {kind.plural}: metadata.namespace is missing")
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        query = {"fieldManager": FIELD_MANAGER}
        stored = await self._call("POST", _path(kind, namespace), query=query, body=body)
        return as_body(stored)

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Body:
        """Apply `patch`; return the object as stored."""
        path = _path(kind, namespace, name, subresource)
        if isinstance(patch, list):
            content = "application/json-patch+json"
            tests = any(operation.get("op") == "test" for operation in patch)
        else:
            content, tests = "application/merge-patch+json", False
        query = {"fieldManager": FIELD_MANAGER}
        return as_body(
            await self._call("PATCH", path, query=query, body=patch, content=content, tests=tests)
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        dependants_first: bool = False,
    ) -> None:
        """Delete it, dependants in the background or first; with `uid` only if it has that uid."""
        options: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if dependants_first else "Background",
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        await self._call("DELETE", _path(kind, namespace, name), body=options)

    async def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        open_ = [*self._retired, *([self._connected] if self._connected else [])]
        self._retired, self._connected = [], None
        for connections in open_:
            await connections.close()

    async def _listed(
        self, kind: Kind, namespace: str | None, labels: str | None, page_items: int | None
    ) -> Listing:
        query = {"labelSelector": labels} if labels else {}
        if page_items is not None:
            query["limit"] = str(page_items)
        items: list[Body] = []
        while True:
            page = await self._call(
                "GET",
                _path(kind, namespace),
                query=query,
                accept=_accept(kind, "PartialObjectMetadataList"),
            )
            metadata = page.get("metadata") or {}
            version = metadata.get("resourceVersion")
            if not isinstance(version, str) or not version:
                raise UnavailableError(f"list {kind.plural}: an answer without resourceVersion")
            items += [_named(item, kind) for item in page.get("items") or []]
            if not metadata.get("continue"):
                return Listing(items=items, resource_version=version)
            query["continue"] = metadata["continue"]

    async def _resources(self, path: str, group_version: str) -> set[tuple[str, str, str]]:
        group, _, version = group_version.rpartition("/")
        try:
            document = await self._call("GET", f"{path}/{group_version}")
        except (NotFoundError, UnavailableError) as error:
            # An aggregated API whose server is down must not hide all the others.
            import structlog  # noqa: PLC0415 - takes a tenth of a second, and commands import this module.

            log = structlog.get_logger(__name__)
            log.warning(
                "cannot ask which kinds an API group serves",
                group_version=group_version,
                error=str(error),
            )
            return set()
        names = (str(resource.get("name")) for resource in document.get("resources") or [])
        return {(group, version, name) for name in names if "/" not in name}

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        accept: str = _JSON,
        tests: bool = False,
    ) -> Json:
        what = f"{method} {path}"
        data = None if body is None else encoded(body)
        headers = {"Accept": accept}
        if data is not None:
            headers["Content-Type"] = content
        for attempt in range(2):
            connected = await self._opened()
            status, answer, answer_headers = await connected.call(
                method, path, query, headers, data, self._call_timeout
            )
            if status == 401 and attempt == 0 and await self._reopened(connected):
                continue
            break
        if not 200 <= status < 300:
            raise error_from(status, answer, answer_headers, what=what, tests=tests)
        return decoded(answer, what)

    async def _lines(
        self, path: str, query: Mapping[str, str], accept: str
    ) -> AsyncGenerator[bytes]:
        what = f"watch {path}"
        connected = await self._opened()
        try:
            async with connected.watch(
                path, query, accept, await connected.headers(), self._watch_timeout
            ) as got:
                if got.status != 200:
                    if got.status == 401:
                        await self._reopened(connected)
                    body = await got.content.read(READ_BYTES)
                    raise error_from(got.status, body, got.headers, what=what)
                async with aclosing(lines(got.content.iter_any(), what=what)) as each:
                    async for one in each:
                        yield one
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise UnavailableError(f"{what}: {type(error).__name__}: {error}") from error

    async def _opened(self) -> Connections:
        if self._connected is not None:
            return self._connected
        async with self._opening:
            if self._connected is None:
                self._connected = await self._connect()
            return self._connected

    async def _connect(self) -> Connections:
        return Connections(
            await self._open_access(),
            connections=self._connections_max,
            on_answer=self._on_answer,
        )

    async def _reopened(self, refused: Connections) -> bool:
        """Read the credentials again; False if they were read a moment ago."""
        async with self._opening:
            if self._connected is not refused:
                return True
            if asyncio.get_running_loop().time() - refused.since < REOPEN_SECONDS:
                return False
            self._connected = await self._connect()
            # Watches and calls on the old connections may finish. Those before them were replaced
            # at least thirty seconds earlier and are closed now.
            for connections in self._retired:
                await connections.close()
            self._retired = [refused]
            return True


def _path(
    kind: Kind, namespace: str | None, name: str | None = None, subresource: str | None = None
) -> str:
    parts = ["/apis", kind.group, kind.version] if kind.group else ["/api", kind.version]
    if kind.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    if name is not None:
        parts.append(quote(name, safe=""))
    if subresource is not None:
        parts.append(subresource)
    return "/".join(parts)


def _accept(kind: Kind, as_: str) -> str:
    """Return the Accept header. Lists and watches of Secrets ask for metadata only."""
    return f"{_JSON};as={as_};g=meta.k8s.io;v=v1,{_JSON}" if kind == SECRET else _JSON


def _named(item: Json, kind: Kind) -> Body:
    item["apiVersion"], item["kind"] = kind.api_version, kind.kind
    return as_body(item)


def _watch_event(event: Json, kind: Kind, what: str) -> WatchEvent:
    type_, obj = event.get("type"), event.get("object")
    if not isinstance(obj, dict):
        raise UnavailableError(f"{what}: an event without an object")
    if type_ == "ERROR":
        raise _error_event(obj, what)
    version = (obj.get("metadata") or {}).get("resourceVersion")
    if type_ not in _WATCH_TYPES or not isinstance(version, str) or not version:
        raise UnavailableError(f"{what}: an event of type {str(type_)[:40]!r}, version {version!r}")
    return WatchEvent(type=type_, object=_named(obj, kind))


def _error_event(status: Json, what: str) -> KubeError:
    error = error_from_status(status, what=what)
    # The server has accepted the watch, so a later refusal is temporary.
    return UnavailableError(str(error)) if isinstance(error, RefusedError) else error


def _aggregated(document: Json) -> set[tuple[str, str, str]]:
    found = set()
    for item in document.get("items") or []:
        group = str((item.get("metadata") or {}).get("name") or "")
        for version in item.get("versions") or []:
            for resource in version.get("resources") or []:
                found.add((group, str(version.get("version")), str(resource.get("resource"))))
    return found


def _group_versions(document: Json) -> list[str]:
    core = [str(version) for version in document.get("versions") or []]
    return core + [
        str(version.get("groupVersion"))
        for group in document.get("groups") or []
        for version in group.get("versions") or []
    ]
