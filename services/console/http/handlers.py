"""The console over HTTP: Kueue's visibility API, our own API, events and the page."""

import hmac
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing
from functools import partial
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

from services.console.access.reviews import User
from services.console.access.shares import FairSlots, ShareLimits
from services.console.documents import SimulateRequest
from services.console.http.event_stream import events
from services.console.http.openapi import openapi_text
from services.console.http.parameters import cluster_of, number, token_of
from services.console.http.sign_in import CALLBACK, SignIn
from services.console.http.visibility import VisibilityApi
from services.console.metrics import REQUESTS, STREAMS
from services.console.pages.service import PageService
from services.console.query_service import QueryService
from services.console.status_error import ConsoleRule, StatusError, bad_request
from shared.contracts.refs import WorkloadRef

log = structlog.get_logger(__name__)

STATIC: Final = Path(__file__).parent / "static"
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
"""The limit of the Kubernetes API server."""

ROWS_DEFAULT: Final = 2000
ROWS_MAX: Final = 20_000
"""Rows that a page gets if it names no limit, and that it gets at most: each is encoded for it alone."""

MEDIA_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES: Final = (
    "/",
    CALLBACK,
    "/workloads",
    "/workloads/{rest:path}",
    "/clusterqueues/{rest:path}",
    "/localqueues/{rest:path}",
    "/cohorts/{rest:path}",
    "/flavors/{rest:path}",
    "/spokes",
    "/spokes/{rest:path}",
    "/history",
    "/machines",
    "/machines/{rest:path}",
    "/namespaces",
    "/namespaces/{rest:path}",
    "/what-if",
)
"""Addresses of the page: `app.js` draws what each of them names."""

SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")

Handler = Callable[[Request], Awaitable[Response]]


def console_app(
    queries: QueryService,
    pages: PageService,
    *,
    streams_max: int,
    streams_per_user: int | None = None,
    local_only: bool,
    sign_in: SignIn | None = None,
) -> Starlette:
    """The ASGI application. `local_only`: only requests for a local host name are answered.

    `streams_per_user`: how many live streams one user may have; None: all.

    Without tokens, a foreign web page could otherwise read the API through a DNS name for this address
    (DNS rebinding).
    """
    streams = ShareLimits(
        most=streams_max,
        of_user=streams_per_user or streams_max,
        full=ConsoleRule.STREAMS,
        user_full=ConsoleRule.STREAMS_USER,
        retry_after_seconds=30,
    )
    handlers = _Handlers(queries, pages, streams=FairSlots(streams))
    api = "/api/v1"
    of_kueue = VisibilityApi(
        queries, identify=lambda request: queries.authenticate(token_of(request))
    )
    answers: dict[str, tuple[str, Handler]] = {
        **{path: ("GET", answer) for path, answer in of_kueue.answers().items()},
        f"{api}/queues": ("GET", handlers.queues),
        f"{api}/workloads": ("GET", handlers.workloads),
        f"{api}/namespaces/{{namespace}}/workloads/{{name}}/explain": ("GET", handlers.explain),
        f"{api}/namespaces/{{namespace}}/workloads/{{name}}/timeline": ("GET", handlers.timeline),
        f"{api}/namespaces/{{namespace}}/workloads/{{name}}/given": ("GET", handlers.given),
        f"{api}/alerts": ("GET", handlers.alerts),
        f"{api}/quota": ("GET", handlers.quota),
        f"{api}/trends": ("GET", handlers.trends),
        f"{api}/clusterqueues/{{name}}/use": ("GET", handlers.use),
        f"{api}/clusterqueues/{{name}}/starts": ("GET", handlers.starts),
        f"{api}/flavors": ("GET", handlers.flavors),
        f"{api}/spokes": ("GET", handlers.spokes),
        f"{api}/machines": ("GET", handlers.machines),
        f"{api}/simulate": ("POST", handlers.simulate),
        f"{api}/events": ("GET", handlers.events),
        "/openapi.json": ("GET", handlers.openapi),
    }
    offered = sign_in or SignIn()
    headers = offered.headers(SECURITY_HEADERS)
    guard = partial(_with_errors_handled, local_only=local_only, headers=headers)
    routes = [
        Route(path, guard(path, answer), methods=[method])
        for path, (method, answer) in answers.items()
    ]
    routes += [Route(path, guard(path, _file(file))) for path, file in _static_files()]
    routes.append(Route("/sign-in.json", guard("/sign-in.json", _told(offered.options()))))
    lost = partial(_no_such_route, page=_file(STATIC / "index.html"), headers=headers)
    return Starlette(routes=routes, exception_handlers={HTTPException: lost})


def visibility_app(
    queries: QueryService, *, identify: Callable[[Request], Awaitable[User]]
) -> Starlette:
    """Kueue's visibility API and nothing else, for users whom `identify` knows."""
    guard = partial(_with_errors_handled, local_only=False, headers=SECURITY_HEADERS)
    answers = VisibilityApi(queries, identify=identify).answers()
    routes = [Route(path, guard(path, answer), methods=["GET"]) for path, answer in answers.items()]
    return Starlette(routes=routes, exception_handlers={HTTPException: _no_such_route})


def _with_errors_handled(
    path: str, answer: Handler, *, local_only: bool, headers: dict[str, str]
) -> Handler:
    """Turn errors into responses, count every response, and add security headers."""

    async def guarded(request: Request) -> Response:
        try:
            if local_only and not _is_local(request.headers.get("host", "")):
                raise StatusError(ConsoleRule.LOCAL_ONLY)
            response = await answer(request)
        except StatusError as refusal:
            response = _refused(refusal)
        except ClientDisconnect:
            response = _refused(bad_request("body", "it did not come to its end"))
        except Exception:
            log.exception("a request to the console failed", path=path)
            response = _refused(StatusError(ConsoleRule.FAILED))
        REQUESTS.labels(route=path, code=str(response.status_code)).inc()
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        return response

    return guarded


def _is_local(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return any(hmac.compare_digest(name.encode(), known.encode()) for known in LOCAL_NAMES)


def _refused(refusal: StatusError) -> Response:
    headers = {}
    if refusal.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.retry_after_seconds is not None:
        headers["Retry-After"] = str(refusal.retry_after_seconds)
    return JSONResponse(refusal.status(), status_code=refusal.code, headers=headers)


async def _no_such_route(
    request: Request,
    error: Exception,
    *,
    page: Handler | None = None,
    headers: dict[str, str] = SECURITY_HEADERS,
) -> Response:
    """A path or a method that does not exist. A browser gets the `page`, which says so in words."""
    found = isinstance(error, HTTPException) and error.status_code == ConsoleRule.NO_METHOD.code
    response = _refused(StatusError(ConsoleRule.NO_METHOD if found else ConsoleRule.NO_PATH))
    if page is not None and not found and "text/html" in request.headers.get("accept", ""):
        response = await page(request)
        response.status_code = ConsoleRule.NO_PATH.code
    response.headers.update(headers)
    return response


def _static_files() -> Iterator[tuple[str, Path]]:
    """Paths, and the file that answers each."""
    yield from ((path, STATIC / "index.html") for path in PAGES)
    for file in sorted(STATIC.rglob("*")):
        if file.suffix in MEDIA_TYPES and file.suffix != ".html":
            yield f"/{file.relative_to(STATIC).as_posix()}", file


def _file(file: Path) -> Handler:
    content = file.read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=MEDIA_TYPES[file.suffix])

    return answer


def _told(options: dict[str, str]) -> Handler:
    async def answer(_request: Request) -> Response:
        return JSONResponse(options)

    return answer


class _EventStream(StreamingResponse):
    """Server-sent events. Its slot is freed however the stream ends."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[str], slot: ExitStack) -> None:
        super().__init__(content, headers={"X-Accel-Buffering": "no"})
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


async def _prepended(first: list[str], rest: AsyncGenerator[str]) -> AsyncGenerator[str]:
    """`first` is emptied: its long text need not stay as long as the stream."""
    async with aclosing(rest):
        while first:
            yield first.pop()
        async for event in rest:
            yield event


class _Handlers:
    """One method for each path."""

    def __init__(self, queries: QueryService, pages: PageService, *, streams: FairSlots) -> None:
        self._queries = queries
        self._pages = pages
        self._streams = streams

    def _workload(self, request: Request) -> WorkloadRef:
        names = request.path_params
        return WorkloadRef(
            cluster_of(request, self._queries.cluster), names["namespace"], names["name"]
        )

    async def queues(self, request: Request) -> Response:
        """The queues with their counts."""
        user = await self._queries.authenticate(token_of(request))
        namespace = request.query_params.get("namespace") or None
        return JSONResponse((await self._queries.queues(user, namespace)).wire())

    async def workloads(self, request: Request) -> Response:
        """The workloads."""
        user = await self._queries.authenticate(token_of(request))
        namespace = request.query_params.get("namespace") or None
        limit = number(request, "limit", ROWS_DEFAULT, most=ROWS_MAX)
        return JSONResponse((await self._queries.workloads(user, namespace, limit=limit)).wire())

    async def explain(self, request: Request) -> Response:
        """Why a workload waits."""
        user = await self._queries.authenticate(token_of(request))
        found = await self._queries.explain(
            user,
            request.path_params["namespace"],
            request.path_params["name"],
            cluster=request.query_params.get("cluster") or None,
            forecast=request.query_params.get("forecast") in {"1", "true"},
        )
        return JSONResponse(found.wire())

    async def timeline(self, request: Request) -> Response:
        """What happened to a workload."""
        user = await self._queries.authenticate(token_of(request))
        return JSONResponse((await self._pages.timeline(user, self._workload(request))).wire())

    async def given(self, request: Request) -> Response:
        """What a workload asks, and what it was given."""
        user = await self._queries.authenticate(token_of(request))
        return JSONResponse((await self._pages.given(user, self._workload(request))).wire())

    async def quota(self, request: Request) -> Response:
        """Where the quota of ClusterQueues and cohorts is."""
        user = await self._queries.authenticate(token_of(request))
        return Response(await self._pages.quota(user), media_type="application/json")

    async def alerts(self, request: Request) -> Response:
        """The alerts that ring."""
        user = await self._queries.authenticate(token_of(request))
        return JSONResponse((await self._pages.alerts(user)).wire())

    async def trends(self, request: Request) -> Response:
        """The recent past in figures."""
        user = await self._queries.authenticate(token_of(request))
        namespace = request.query_params.get("namespace") or None
        span = request.query_params.get("span") or "24h"
        return JSONResponse((await self._pages.trend(user, span, namespace)).wire())

    async def use(self, request: Request) -> Response:
        """Quota in use over time."""
        user = await self._queries.authenticate(token_of(request))
        span, name = request.query_params.get("span") or "24h", request.path_params["name"]
        found = await self._pages.use(user, cluster_of(request, self._queries.cluster), name, span)
        return JSONResponse(found.wire())

    async def starts(self, request: Request) -> Response:
        """When the workloads of a ClusterQueue probably start."""
        user = await self._queries.authenticate(token_of(request))
        found = await self._pages.starts(
            user,
            cluster_of(request, self._queries.cluster),
            request.path_params["name"],
            namespace=request.query_params.get("namespace") or None,
        )
        return JSONResponse(found.wire())

    async def flavors(self, request: Request) -> Response:
        """The ResourceFlavors."""
        user = await self._queries.authenticate(token_of(request))
        return JSONResponse((await self._pages.flavors(user)).wire())

    async def spokes(self, request: Request) -> Response:
        """The spokes."""
        user = await self._queries.authenticate(token_of(request))
        return JSONResponse((await self._pages.spokes(user)).wire())

    async def machines(self, request: Request) -> Response:
        """The build machines."""
        user = await self._queries.authenticate(token_of(request))
        return JSONResponse((await self._pages.machines(user)).wire())

    async def simulate(self, request: Request) -> Response:
        """What a change would do."""
        user = await self._queries.authenticate(token_of(request))
        question = _question(await _body(request))
        return JSONResponse((await self._queries.simulate(user, question)).wire())

    async def events(self, request: Request) -> Response:
        """Changes as they happen."""
        namespace = request.query_params.get("namespace") or None
        user = await self._queries.authenticate(token_of(request))
        with ExitStack() as slot:
            slot.enter_context(self._streams.place(user.name))
            slot.enter_context(STREAMS.track_inprogress())
            happening = events(self._queries, token_of(request), namespace)
            # A `StatusError` before the first event becomes a response, not a broken stream.
            first = [await anext(happening)]
            return _EventStream(_prepended(first, happening), slot.pop_all())

    async def openapi(self, _request: Request) -> Response:
        """The OpenAPI document."""
        return Response(openapi_text(), media_type="application/json")


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise StatusError(ConsoleRule.LONG_QUESTION, most=BODY_BYTES_MAX)
        parts.append(part)
    return b"".join(parts)


def _question(body: bytes) -> SimulateRequest:
    try:
        document: Any = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise bad_request("body", f"is no JSON: {error}") from error
    try:
        return SimulateRequest.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise bad_request(where, str(first["msg"])) from error
