"""Watches over HTTP: one JSON line per event, bookmarks, and a timeout."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from services.simulator.cluster.api import Api
from services.simulator.cluster.errors import ApiError, bad_request
from services.simulator.cluster.kinds.registry import Kind
from services.simulator.cluster.kinds.tables import table
from services.simulator.cluster.selectors import Selector
from services.simulator.cluster.storage.stored import PARTIAL_HEAD, Event, EventType
from services.simulator.cluster.storage.watching import Watch
from services.simulator.http.requests import Shape

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BOOKMARK_SECONDS: Final = 15
"""Interval of bookmarks, which tell a client the version from which it may resume."""

COALESCE_SECONDS: Final = 0.002
"""Least time between two writes of a watch: under load, many events go in one write."""

TIMEOUT_SECONDS_DEFAULT: Final = 1800
"""The API server ends a watch after half an hour to an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The parameters of a watch request."""

    kind: Kind
    version: str
    namespace: str | None
    selector: Selector | None
    since: str
    """``""`` and ``"0"``: start with the existing objects."""

    bookmarks: bool
    initial_events: bool
    timeout_seconds: int | None
    shape: Shape
    include: str


class Watches:
    """All open watches of one server."""

    def __init__(
        self, api: Api, *, now: Callable[[], datetime], bookmark_seconds: float = BOOKMARK_SECONDS
    ) -> None:
        self._api = api
        self._now = now
        self._bookmark_seconds = bookmark_seconds
        self._open: dict[asyncio.Event, None] = {}
        self._closing = False

    def open(self) -> None:
        """Accept watches (again)."""
        self._closing = False

    def close(self) -> None:
        """End all watches; new ones end at once until `open` is called."""
        self._closing = True
        for wake in self._open:
            wake.set()

    def _start(self, asked: WatchRequest) -> Watch:
        store = self._api.store
        from_start = asked.since in {"", "0"}
        if not from_start and not (asked.since.isascii() and asked.since.isdigit()):
            raise bad_request(f'resourceVersion: Invalid value: "{asked.since}"')
        if not from_start and not asked.initial_events:
            return self._watch(asked, int(asked.since), initial=False)
        return self._watch(asked, store.version, initial=True)

    def _watch(self, asked: WatchRequest, since: int, *, initial: bool) -> Watch:
        store = self._api.store
        there = store.objects(asked.kind, asked.namespace) if initial else []
        if asked.selector is not None:
            there = [stored for stored in there if asked.selector(stored.obj)]
        return Watch(
            store,
            asked.kind,
            namespace=asked.namespace,
            selector=asked.selector,
            since=since,
            initial=there,
        )

    async def serve(self, asked: WatchRequest, receive: Receive, send: Send) -> None:
        """Stream events until the client disconnects, the watch times out, or the server stops."""
        try:
            watch = self._start(asked)
        except ApiError as error:
            if error.code != 410:
                raise
            # A watch that cannot start sends the error as an event, as the API server's cache does.
            await _open(send)
            line = orjson.dumps({"type": "ERROR", "object": error.status()}) + b"\n"
            await send({"type": "http.response.body", "body": line})
            return
        wake = asyncio.Event()
        watch.on_ready = wake.set
        self._open[wake] = None
        gone = asyncio.create_task(_until_gone(receive, wake))
        try:
            await _open(send)
            await self._stream(asked, watch, wake, gone, send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            watch.close()
            self._open.pop(wake, None)
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone

    async def _stream(
        self,
        asked: WatchRequest,
        watch: Watch,
        wake: asyncio.Event,
        gone: asyncio.Task[None],
        send: Send,
    ) -> None:
        loop = asyncio.get_running_loop()
        seconds = asked.timeout_seconds or TIMEOUT_SECONDS_DEFAULT
        end = loop.time() + seconds
        initial = asked.initial_events
        written = 0.0
        while True:
            if loop.time() - written < COALESCE_SECONDS:
                await asyncio.sleep(COALESCE_SECONDS)
            wake.clear()
            body = b"".join(self._line(asked, type_, event) for type_, event in watch.drain())
            if initial:
                initial = False
                body += self._bookmark(asked, watch.seen, {"k8s.io/initial-events-end": "true"})
            if body:
                await send({"type": "http.response.body", "body": body, "more_body": True})
                written = loop.time()
            left = end - loop.time()
            if gone.done() or watch.overflowed or self._closing or left <= 0:
                break
            try:
                async with asyncio.timeout(min(left, self._bookmark_seconds)):
                    await wake.wait()
            except TimeoutError:
                if asked.bookmarks:
                    line = self._bookmark(asked, watch.seen)
                    await send({"type": "http.response.body", "body": line, "more_body": True})

    def _line(self, asked: WatchRequest, type_: EventType, event: Event) -> bytes:
        if asked.shape == "partial":
            return event.partial_line(type_)
        if asked.shape == "whole":
            return event.line(type_, asked.version)
        metadata = {"resourceVersion": str(event.version)}
        made = table(
            asked.kind,
            [event.stored.obj],
            now=self._now(),
            metadata=metadata,
            include=asked.include,
        )
        return orjson.dumps({"type": type_, "object": made}) + b"\n"

    @staticmethod
    def _bookmark(
        asked: WatchRequest, version: int, annotations: dict[str, str] | None = None
    ) -> bytes:
        metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj: dict[str, Any] = {
            "kind": asked.kind.kind,
            "apiVersion": asked.kind.api_version(asked.version),
            "metadata": metadata,
        }
        if asked.shape == "partial":
            obj = {**PARTIAL_HEAD, "metadata": metadata}
        elif asked.shape == "table":
            obj = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            obj |= {"columnDefinitions": [], "rows": []}
        return orjson.dumps({"type": "BOOKMARK", "object": obj}) + b"\n"


async def _open(send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    # Headers are sent with the first part of the body; the client waits for them.
    await send({"type": "http.response.body", "body": b"", "more_body": True})


async def _until_gone(receive: Receive, wake: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    wake.set()
