"""An API server of one kind that misbehaves on demand: sockets, statuses and bytes are real."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from shared.contracts.kube.kinds import Kind, Object

WIDGET = Kind(group="example.test", version="v1", plural="widgets", kind="Widget")

Fault = Callable[["FaultyServer", web.Request], Awaitable[web.StreamResponse]]
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


class FaultyServer:
    """A true history of objects; `faults` say how the next requests are answered instead."""

    def __init__(self) -> None:
        self.url = ""
        self.objects: dict[str, Object] = {}
        self.watch_faults: deque[Fault] = deque()
        self.list_faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.lists = 0
        self.watches = 0
        self.served = True
        self._version = 100
        self._uids = 0
        self._oldest = 0
        self._history: list[tuple[int, str, Object]] = []
        self._news = asyncio.Condition()

    async def put(self, name: str) -> None:
        before = self.objects.get(name)
        self._uids += before is None
        uid = f"uid-{self._uids}" if before is None else before["metadata"]["uid"]
        await self._record("ADDED" if before is None else "MODIFIED", name, uid)

    async def delete(self, name: str) -> None:
        await self._record("DELETED", name, self.objects[name]["metadata"]["uid"])

    def forget(self) -> None:
        """Every version so far is too old."""
        self._oldest = self._version
        self._history.clear()

    async def _record(self, type_: str, name: str, uid: str) -> None:
        self._version += 1
        metadata = {
            "namespace": "n",
            "name": name,
            "uid": uid,
            "resourceVersion": str(self._version),
        }
        if type_ == "DELETED":
            del self.objects[name]
        else:
            self.objects[name] = {"metadata": metadata}
        self._history.append((self._version, type_, {"metadata": metadata}))
        async with self._news:
            self._news.notify_all()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if request.path == "/apis":
            served = [{"version": "v1", "resources": [{"resource": "widgets"}]}]
            item = {"metadata": {"name": "example.test"}, "versions": served if self.served else []}
            return web.json_response({"kind": "APIGroupDiscoveryList", "items": [item]})
        if not self.served:
            return web.Response(status=404, text="404 page not found")
        if "watch" in request.query:
            self.watches += 1
            faults, usual = self.watch_faults, self.watch
        else:
            self.lists += 1
            faults, usual = self.list_faults, self.list
        if self.always is not None:
            return await self.always(self, request)
        if faults:
            return await faults.popleft()(self, request)
        return await usual(request)

    async def list(self, request: web.Request) -> web.StreamResponse:
        items = list(self.objects.values())
        first, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 1000))
        metadata: Object = {"resourceVersion": str(self._version)}
        if first + limit < len(items):
            metadata["continue"] = str(first + limit)
        return web.json_response({"metadata": metadata, "items": items[first : first + limit]})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        seen = int(request.query["resourceVersion"])
        if seen < self._oldest:
            return web.json_response(EXPIRED, status=410)
        stream = await begun(request)
        while True:
            for version, type_, obj in [event for event in self._history if event[0] > seen]:
                seen = version
                await say(stream, type_, obj)
            async with self._news:
                if self._version == seen:
                    await self._news.wait()

    async def next_event(self, request: web.Request) -> tuple[str, Object]:
        """The first event after the version that the request names, once there is one."""
        seen = int(request.query["resourceVersion"])
        async with self._news:
            await self._news.wait_for(lambda: self._version > seen)
        return next((type_, obj) for version, type_, obj in self._history if version > seen)


async def begun(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse()
    stream.content_type = "application/json"
    await stream.prepare(request)
    return stream


async def say(stream: web.StreamResponse, type_: str, obj: Any) -> None:
    await stream.write(json.dumps({"type": type_, "object": obj}).encode() + b"\n")


@asynccontextmanager
async def faulty_server() -> AsyncIterator[FaultyServer]:
    server = FaultyServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    yield server
    await runner.cleanup()


async def closes_at_once(_: FaultyServer, request: web.Request) -> web.StreamResponse:
    return await begun(request)


async def closes_after_an_event(server: FaultyServer, request: web.Request) -> web.StreamResponse:
    stream = await begun(request)
    await say(stream, *await server.next_event(request))
    return stream


async def resets_after_an_event(server: FaultyServer, request: web.Request) -> web.StreamResponse:
    stream = await closes_after_an_event(server, request)
    assert request.transport is not None
    request.transport.abort()
    return stream


async def breaks_off_inside_a_line(
    server: FaultyServer, request: web.Request
) -> web.StreamResponse:
    stream = await begun(request)
    type_, obj = await server.next_event(request)
    await stream.write(json.dumps({"type": type_, "object": obj}).encode()[:-9])
    return stream


async def falls_silent(server: FaultyServer, request: web.Request) -> web.StreamResponse:
    """As if the cable were cut: no event and no end of the connection comes through."""
    stream = await begun(request)
    await say(stream, *await server.next_event(request))
    await asyncio.Event().wait()
    return stream


async def says_503_in_html(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="<html>upstream</html>\n", content_type="text/html")


async def says_200_in_html(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.Response(text="<html>log in</html>\n", content_type="text/html")


async def redirects(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})


async def says_429(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.Response(status=429, headers={"Retry-After": "0.05"}, text="slow down")


async def says_410(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.json_response(EXPIRED, status=410)


async def says_410_in_an_event(_: FaultyServer, request: web.Request) -> web.StreamResponse:
    stream = await begun(request)
    await say(stream, "ERROR", EXPIRED)
    return stream


async def says_500_in_an_event(_: FaultyServer, request: web.Request) -> web.StreamResponse:
    stream = await begun(request)
    await say(stream, "ERROR", {"kind": "Status", "code": 500, "reason": "InternalError"})
    return stream


async def says_401(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)


async def says_403(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden"}, status=403)


async def says_404(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    """Discovery still knows the kind: a server that starts, or one behind a bad route."""
    return web.Response(status=404, text="404 page not found")


async def says_an_event_without_a_version(
    _: FaultyServer, request: web.Request
) -> web.StreamResponse:
    stream = await begun(request)
    await say(stream, "ADDED", {"metadata": {"name": "x"}})
    return stream


async def says_an_event_of_an_unknown_type(
    _: FaultyServer, request: web.Request
) -> web.StreamResponse:
    stream = await begun(request)
    await say(stream, "SURPRISE", {"metadata": {"name": "x", "resourceVersion": "1"}})
    return stream


async def says_something_else(_: FaultyServer, request: web.Request) -> web.StreamResponse:
    stream = await begun(request)
    await stream.write(b"[1, 2]\n")
    return stream


async def resets(_: FaultyServer, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def says_a_list_without_a_version(_: FaultyServer, __: web.Request) -> web.StreamResponse:
    return web.json_response({"metadata": {}, "items": None})


WATCH_FAULTS: dict[str, Fault] = {
    "closes at once": closes_at_once,
    "closes after each event": closes_after_an_event,
    "resets the connection after an event": resets_after_an_event,
    "resets the connection at once": resets,
    "breaks off inside a line": breaks_off_inside_a_line,
    "falls silent after an event, connection open": falls_silent,
    "answers 503 with HTML": says_503_in_html,
    "answers 200 with HTML": says_200_in_html,
    "redirects to a login page": redirects,
    "answers 429": says_429,
    "answers 410": says_410,
    "says 410 in an event": says_410_in_an_event,
    "says 500 in an event": says_500_in_an_event,
    "answers 401": says_401,
    "answers 403": says_403,
    "answers 404 for a kind that it serves": says_404,
    "says an event without a version": says_an_event_without_a_version,
    "says an event of an unknown type": says_an_event_of_an_unknown_type,
    "says JSON that is no event": says_something_else,
}

LIST_FAULTS: dict[str, Fault] = {
    "resets the connection": resets,
    "answers 503 with HTML": says_503_in_html,
    "answers 200 with HTML": says_200_in_html,
    "redirects to a login page": redirects,
    "answers 429": says_429,
    "answers 410": says_410,
    "answers 401": says_401,
    "answers 403": says_403,
    "answers 404 for a kind that it serves": says_404,
    "lists without a version": says_a_list_without_a_version,
}
