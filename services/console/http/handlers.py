"""The console over HTTP: Kueue's visibility API, ours, the events, and the page."""

import hmac
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.console.documents import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    VISIBILITY,
    VISIBILITY_VERSIONS,
    SimulateRequest,
)
from services.console.http.event_stream import events
from services.console.http.openapi import openapi
from services.console.metrics import REQUESTS, STREAMS
from services.console.query_service import Desk
from services.console.refusals import Refusal, not_found, wrong

__all__ = ["console_app"]

log = structlog.get_logger(__name__)

STATIC: Final = Path(__file__).parent / "static"
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
"""As the API server has it."""

ROWS_DEFAULT: Final = 2000
ROWS_MAX: Final = 20_000
BEARER: Final = "bearer "

PAGES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
SAFE: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")

Answer = Callable[[Request], Awaitable[Response]]


def console_app(desk: Desk, *, streams_max: int, local_only: bool) -> Starlette:
    """The ASGI application. `local_only`: only names of this machine are answered.

    Without tokens anybody's web page could otherwise ask, by a name of its own for this address.
    """
    handlers = _Handlers(desk, streams_max=streams_max)
    api = "/api/v1"
    of_kueue = f"/apis/{VISIBILITY}/{{version}}"
    answers: dict[str, tuple[str, Answer]] = {
        of_kueue: ("GET", handlers.resources),
        f"{of_kueue}/clusterqueues/{{name}}/pendingworkloads": ("GET", handlers.cluster_queue),
        f"{of_kueue}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads": (
            "GET",
            handlers.local_queue,
        ),
        f"{api}/queues": ("GET", handlers.queues),
        f"{api}/workloads": ("GET", handlers.workloads),
        f"{api}/namespaces/{{namespace}}/workloads/{{name}}/explain": ("GET", handlers.explain),
        f"{api}/simulate": ("POST", handlers.simulate),
        f"{api}/events": ("GET", handlers.events),
        "/openapi.json": ("GET", handlers.openapi),
    }
    routes = [
        Route(path, _guarded(path, answer, local_only=local_only), methods=[method])
        for path, (method, answer) in answers.items()
    ]
    routes += [
        Route(path, _guarded(path, _page(*file), local_only=local_only))
        for path, file in PAGES.items()
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _nothing_there})


def _guarded(path: str, answer: Answer, *, local_only: bool) -> Answer:
    """Refusals become answers, and every answer is counted."""

    async def guarded(request: Request) -> Response:
        try:
            if local_only and not _is_local(request.headers.get("host", "")):
                raise Refusal(403, "without authorisation only localhost is answered")
            response = await answer(request)
        except Refusal as refusal:
            response = _refused(refusal)
        except ClientDisconnect:
            response = _refused(wrong("body", "it did not come to its end"))
        except Exception:
            log.exception("no answer", path=path)
            response = _refused(Refusal(500, "the console failed; its log says why"))
        REQUESTS.labels(route=path, code=str(response.status_code)).inc()
        for name, value in SAFE.items():
            response.headers.setdefault(name, value)
        return response

    return guarded


def _is_local(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return any(hmac.compare_digest(name.encode(), known.encode()) for known in LOCAL_NAMES)


def _refused(refusal: Refusal) -> Response:
    headers = {}
    if refusal.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.retry_after_seconds is not None:
        headers["Retry-After"] = str(refusal.retry_after_seconds)
    return JSONResponse(refusal.status(), status_code=refusal.code, headers=headers)


async def _nothing_there(_request: Request, error: Exception) -> Response:
    """A path or a method that there is not."""
    code = error.status_code if isinstance(error, HTTPException) else 500
    text = "there is no such path" if code == 404 else "the path does not take this method"
    response = _refused(Refusal(code, text))
    response.headers.update(SAFE)
    return response


def _page(name: str, kind: str) -> Answer:
    content = (STATIC / name).read_bytes()

    async def page(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return page


class _Stream(StreamingResponse):
    """Server-sent events; its seat is free again however it ends."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[str], seat: ExitStack) -> None:
        super().__init__(content, headers={"X-Accel-Buffering": "no"})
        self._seat = seat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._seat:
            await super().__call__(scope, receive, send)


async def _from(first: str, rest: AsyncGenerator[str]) -> AsyncGenerator[str]:
    async with aclosing(rest):
        yield first
        async for event in rest:
            yield event


class _Handlers:
    """One method for each path."""

    def __init__(self, desk: Desk, *, streams_max: int) -> None:
        self._desk = desk
        self._streams_max = streams_max
        self._streams = 0

    async def resources(self, request: Request) -> Response:
        """What Kueue's visibility API consists of, for clients that discover."""
        version = _version(request)
        found = [
            {
                "name": f"{plural}/pendingworkloads",
                "singularName": "",
                "namespaced": namespaced,
                "kind": "PendingWorkloadsSummary",
                "verbs": ["get"],
            }
            for plural, namespaced in (("clusterqueues", False), ("localqueues", True))
        ]
        listed = {"kind": "APIResourceList", "apiVersion": "v1", "resources": found}
        return JSONResponse({**listed, "groupVersion": f"{VISIBILITY}/{version}"})

    async def cluster_queue(self, request: Request) -> Response:
        """Who waits in a ClusterQueue."""
        version, user = _version(request), await self._desk.user(_token(request))
        summary = await self._desk.pending_in_cluster_queue(
            user,
            self._cluster(request),
            request.path_params["name"],
            limit=_limit(request),
            offset=_number(request, "offset", 0),
        )
        return JSONResponse({**summary.wire(), "apiVersion": f"{VISIBILITY}/{version}"})

    async def local_queue(self, request: Request) -> Response:
        """Who waits in a LocalQueue."""
        version, user = _version(request), await self._desk.user(_token(request))
        summary = await self._desk.pending_in_local_queue(
            user,
            self._cluster(request),
            request.path_params["namespace"],
            request.path_params["name"],
            limit=_limit(request),
            offset=_number(request, "offset", 0),
        )
        return JSONResponse({**summary.wire(), "apiVersion": f"{VISIBILITY}/{version}"})

    def _cluster(self, request: Request) -> str:
        return request.query_params.get("cluster") or self._desk.cluster

    async def queues(self, request: Request) -> Response:
        """How the queues stand."""
        user = await self._desk.user(_token(request))
        namespace = request.query_params.get("namespace") or None
        return JSONResponse((await self._desk.queues(user, namespace)).wire())

    async def workloads(self, request: Request) -> Response:
        """What there is of workloads."""
        user = await self._desk.user(_token(request))
        namespace = request.query_params.get("namespace") or None
        limit = _number(request, "limit", ROWS_DEFAULT, most=ROWS_MAX)
        return JSONResponse((await self._desk.workloads(user, namespace, limit=limit)).wire())

    async def explain(self, request: Request) -> Response:
        """Why a workload waits."""
        user = await self._desk.user(_token(request))
        found = await self._desk.explain(
            user,
            request.path_params["namespace"],
            request.path_params["name"],
            cluster=request.query_params.get("cluster") or None,
            forecast=request.query_params.get("forecast") in {"1", "true"},
        )
        return JSONResponse(found.wire())

    async def simulate(self, request: Request) -> Response:
        """What if."""
        user = await self._desk.user(_token(request))
        question = _question(await _body(request))
        return JSONResponse((await self._desk.simulate(user, question)).wire())

    async def events(self, request: Request) -> Response:
        """What happens, while it does."""
        namespace = request.query_params.get("namespace") or None
        with ExitStack() as seat:
            seat.enter_context(self._seat())
            happening = events(self._desk, _token(request), namespace)
            # A refusal is an answer of its own, not the end of a stream.
            first = await anext(happening)
            return _Stream(_from(first, happening), seat.pop_all())

    @contextmanager
    def _seat(self) -> Iterator[None]:
        if self._streams >= self._streams_max:
            raise Refusal(503, "too many pages follow what happens", retry_after_seconds=30)
        self._streams += 1
        STREAMS.inc()
        try:
            yield
        finally:
            self._streams -= 1
            STREAMS.dec()

    async def openapi(self, _request: Request) -> Response:
        """What all of this is."""
        return JSONResponse(openapi())


def _version(request: Request) -> str:
    version = str(request.path_params["version"])
    if version not in VISIBILITY_VERSIONS:
        raise not_found(f"{VISIBILITY}/{version}")
    return version


def _token(request: Request) -> str | None:
    """Of the header `Authorization`; nothing else is read, so that no link can carry one."""
    header = request.headers.get("authorization", "")
    return header[len(BEARER) :].strip() if header.lower().startswith(BEARER) else None


def _limit(request: Request) -> int:
    """0 is as none said, as Kueue has it."""
    return _number(request, "limit", 0, most=LIMIT_MAX) or LIMIT_DEFAULT


def _number(request: Request, name: str, default: int, *, most: int | None = None) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise wrong(name, f"{text[:20]!r} is no number from 0 on")
    value = int(text)
    if most is not None and value > most:
        raise wrong(name, f"{value} is more than {most}")
    return value


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise Refusal(413, f"a question has at most {BODY_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _question(body: bytes) -> SimulateRequest:
    try:
        document: Any = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise wrong("body", f"is no JSON: {error}") from error
    try:
        return SimulateRequest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise wrong(where, str(first["msg"])) from error
