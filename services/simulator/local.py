"""`LocalKube`: the services' Kubernetes port, directly on a store in the same process."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
from typing_extensions import override

from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.errors import ApiError, not_found
from services.simulator.cluster.kinds.registry import Kind as ServedKind
from services.simulator.cluster.selectors import select
from services.simulator.cluster.storage.watching import Watch
from services.simulator.http.reviews import ADMINISTRATOR, requester
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.kinds import Kind
from shared.kube.answers import error_from_status
from shared.kube.port import (
    Kube,
    Listing,
    NotFoundError,
    Patch,
    RefusedError,
    WatchEvent,
)


class LocalKube(Kube):
    """One client of a simulated cluster. Deterministic: only a watch waits."""

    def __init__(self, api: Api, *, user: str = ADMINISTRATOR) -> None:
        """`user`: the name by which webhooks know who writes."""
        self._api = api
        self._user = user
        self._watches: dict[_Stream, None] = {}

    def _served(self, kind: Kind) -> ServedKind:
        served = self._api.kinds.find(kind.group, kind.version, kind.plural)
        if served is None:
            message = "the server could not find the requested resource"
            raise NotFoundError(message, status=404, reason="NotFound")
        return served

    @contextmanager
    def _as_user(self) -> Iterator[None]:
        token = requester.set(self._user)
        try:
            yield
        finally:
            requester.reset(token)

    @override
    async def served(self) -> frozenset[tuple[str, str, str]]:
        return frozenset(
            (kind.group, version, kind.plural)
            for kind in self._api.kinds
            for version in kind.versions
        )

    @override
    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        served, store = self._served(kind), self._api.store
        found = store.objects(served, namespace)
        with _translated():
            selector = select(served, labels or "")
        if selector is not None:
            found = [stored for stored in found if selector(stored.obj)]
        items = [as_body(stored.copy(kind.version)) for stored in found]
        return Listing(items=items, resource_version=str(store.version))

    @override
    def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        return self._watch(kind, resource_version, namespace, labels or "")

    async def _watch(
        self, kind: Kind, resource_version: str, namespace: str | None, labels: str
    ) -> AsyncIterator[WatchEvent]:
        served = self._served(kind)
        with _translated():
            watch = Watch(
                self._api.store,
                served,
                namespace=namespace,
                selector=select(served, labels),
                since=int(resource_version),
            )
        stream = _Stream(watch)
        self._watches[stream] = None
        try:
            while not stream.ended:
                for type_, event in watch.drain():
                    yield WatchEvent(type=type_, object=as_body(event.stored.copy(kind.version)))
                await stream.more()
        finally:
            watch.close()
            self._watches.pop(stream, None)

    def break_watches(self) -> None:
        """End all open watches of this client, as a restart of the server does."""
        for stream in self._watches:
            stream.end()

    @override
    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        with _translated():
            stored = self._api.get(self._served(kind), namespace or "", name)
        return as_body(stored.copy(kind.version))

    @override
    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Body:
        body = _own(obj)
        namespace = (body.get("metadata") or {}).get("namespace", "")
        with _translated(), self._as_user():
            stored = await self._api.create(self._served(kind), kind.version, namespace, body)
        return as_body(stored.copy(kind.version))

    @override
    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Body:
        served = self._served(kind)
        tests = isinstance(patch, list) and any(step.get("op") == "test" for step in patch)
        with _translated(tests=tests), self._as_user():
            if subresource == "status" and not served.has_status:
                raise not_found(served, name)
            stored = await self._api.patch(
                served,
                kind.version,
                namespace or "",
                name,
                _own(patch),
                "json" if isinstance(patch, list) else "merge",
                subresource=subresource or "",
            )
        return as_body(stored.copy(kind.version))

    @override
    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        dependants_first: bool = False,
    ) -> None:
        options = DeleteOptions(uid=uid)
        if dependants_first:
            options = DeleteOptions(uid=uid, propagation="Foreground")
        with _translated():
            await self._api.delete(self._served(kind), namespace or "", name, options)

    @override
    async def close(self) -> None:
        self.break_watches()


class _Stream:
    """One open watch."""

    def __init__(self, watch: Watch) -> None:
        self._wake = asyncio.Event()
        self._watch = watch
        self._broken = False
        watch.on_ready = self._wake.set

    @property
    def ended(self) -> bool:
        return self._broken or self._watch.overflowed

    def end(self) -> None:
        self._broken = True
        self._wake.set()

    async def more(self) -> None:
        if not self._watch.pending:
            self._wake.clear()
            await self._wake.wait()


def _own(value: Any) -> Any:
    """Copy an object that the caller may change later; fails if it is not JSON.

    Raises `RefusedError` for what an API server does not take: integers beyond 64 bits, half characters.
    """
    try:
        return orjson.loads(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        if not any(limit in str(error) for limit in ("64-bit", "surrogates")):
            raise
        raise RefusedError(f"json: cannot unmarshal: {error}", status=400) from error


@contextmanager
def _translated(*, tests: bool = False) -> Iterator[None]:
    """Translate API errors into the port's errors, as the HTTP client does."""
    try:
        yield
    except ApiError as error:
        raise error_from_status(error.status(), what="cluster", tests=tests) from error
