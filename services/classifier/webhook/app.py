"""The webhook as an ASGI app: mutation, validation and conversion, answered from memory.

Mutation needs a configuration. Until one is loaded it answers 503, so that with `failurePolicy: Fail` no
job is created unclassified. Validation and conversion need none.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.classifier.evaluation.pool import CONVERSION_SECONDS
from services.classifier.metrics import BYTES_IN_FLIGHT, REVIEW_SECONDS, REVIEWS, REVIEWS_REFUSED
from services.classifier.rules.holder import RulesHolder
from services.classifier.webhook.bodies import BodyBudget, UnreadableBodyError
from services.classifier.webhook.conversion_review import (
    CONVERSION_BYTES_MAX,
    unreadable_conversion,
)
from services.classifier.webhook.review import (
    REVIEW_BYTES_MAX,
    Outcome,
    Reply,
    unreadable_reply,
)
from services.classifier.webhook.reviewing.reviewer import Reviewer
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.webhook import (
    CONVERT_PATH,
    JOB_PATH,
    MUTATE_PATH,
    PIPELINE_RUN_PATH,
    VALIDATE_PATH,
)
from shared.telemetry.log_context import about
from shared.telemetry.once import Once

log = structlog.get_logger(__name__)

_KINDS: Final[dict[str, Kind | None]] = {
    MUTATE_PATH: None,
    PIPELINE_RUN_PATH: kinds.PIPELINE_RUN,
    JOB_PATH: kinds.JOB,
}
_UNAVAILABLE: Final = 503
BODY_SECONDS: Final = 10.0
"""An API server waits no longer for the whole review."""

BYTES_IN_FLIGHT_MAX: Final = 64 * 1024 * 1024
CONVERSION_BYTES_IN_FLIGHT_MAX: Final = 160 * 1024 * 1024
"""Of reviews, and of lists to convert, one of which may have 128 MiB: what waits must fit in memory."""

_PART_BYTES: Final = 256 * 1024

LOG_SECONDS: Final = 60.0
"""A namespace's refusals of one cause are logged once in this time, and counted always."""

LOGGED_MAX: Final = 1_000
"""Namespaces and causes whose last line in the log is remembered."""

FAILURES_MAX: Final = 100
"""Places in our code that failed on an object, whose traceback is in the log."""

OnMutation = Callable[[Reply, str, float], None]
"""Called for each answered mutation with reply, path, and seconds."""


def _ignore_mutation(_reply: Reply, _path: str, _seconds: float) -> None:
    pass


def webhook_app(
    rules: RulesHolder,
    *,
    reviewer: Reviewer | None = None,
    bytes_in_flight_max: int = BYTES_IN_FLIGHT_MAX,
    body_seconds: float = BODY_SECONDS,
    on_mutation: OnMutation = _ignore_mutation,
) -> Starlette:
    """Build the app. Each request uses the rules that are in force when it arrives.

    `reviewer` answers reviews; the default one has no child processes. `bytes_in_flight_max` limits the
    bodies of all reviews that are not answered, `body_seconds` the time in which a body must arrive.
    """
    bodies = BodyBudget(bytes_max=bytes_in_flight_max, seconds=body_seconds)
    webhook = _Webhook(rules, reviewer or Reviewer(), bodies, on_mutation)
    BYTES_IN_FLIGHT.set_function(webhook.bytes_in_flight)
    return Starlette(
        routes=[
            *(Route(path, webhook.mutate, methods=["POST"]) for path in _KINDS),
            Route(VALIDATE_PATH, webhook.validate, methods=["POST"]),
            Route(CONVERT_PATH, webhook.convert, methods=["POST"]),
            Route("/healthz", _live),
            Route("/readyz", webhook.ready),
        ]
    )


class _Webhook:
    """Answers requests within a budget of bytes."""

    def __init__(
        self,
        rules: RulesHolder,
        reviewer: Reviewer,
        bodies: BodyBudget,
        on_mutation: OnMutation,
    ) -> None:
        self._rules = rules
        self._reviewer = reviewer
        self._bodies = bodies
        self._on_mutation = on_mutation
        self._lists = BodyBudget(
            bytes_max=CONVERSION_BYTES_IN_FLIGHT_MAX, seconds=CONVERSION_SECONDS
        )
        self._refusals = _RefusalLog()
        self._failures = Once(FAILURES_MAX)

    def bytes_in_flight(self) -> int:
        """Bytes of all bodies that are not answered."""
        return self._bodies.size + self._lists.size

    async def mutate(self, request: Request) -> Response:
        """Classify a job, by the rules that are in force when its review arrives."""
        current = self._rules.current
        if current is None:
            return self._not_loaded()
        loop, path = asyncio.get_running_loop(), request.url.path
        try:
            async with self._bodies.read(request, REVIEW_BYTES_MAX) as body:
                started = loop.time()
                answer = self._reviewer.mutate(body, current, _KINDS[path], _address(request))
                reply = await self._answered(answer, unreadable_reply, body)
        except UnreadableBodyError as error:
            return _unread(error)
        seconds = loop.time() - started
        REVIEW_SECONDS.observe(seconds)
        self._on_mutation(reply, path, seconds)
        return self._response(reply)

    async def validate(self, request: Request) -> Response:
        """Validate an object of one of our kinds."""
        loop = asyncio.get_running_loop()
        try:
            async with self._bodies.read(request, REVIEW_BYTES_MAX) as body:
                started = loop.time()
                answer = self._reviewer.validate(body, _address(request))
                reply = await self._answered(answer, unreadable_reply, body)
        except UnreadableBodyError as error:
            return _unread(error)
        REVIEW_SECONDS.observe(loop.time() - started)
        return self._response(reply)

    async def convert(self, request: Request) -> Response:
        """Convert objects between two versions of their kind."""
        try:
            async with AsyncExitStack() as stack:
                reading = self._lists.read(request, CONVERSION_BYTES_MAX)
                body = await stack.enter_async_context(reading)
                answer = self._reviewer.convert(body, _address(request))
                reply = await self._answered(answer, unreadable_conversion, body)
                return _HeldResponse(self._response(reply), stack.pop_all())
        except UnreadableBodyError as error:
            return _unread(error)

    async def _answered(
        self, answer: Awaitable[Reply], refusal: Callable[[bytes, Exception], Reply], body: bytes
    ) -> Reply:
        """Return the answer; if our own code fails on the object, its refusal."""
        try:
            return await answer
        except Exception as error:  # noqa: BLE001 - `_response` logs it.
            return refusal(body, error)

    async def ready(self, _request: Request) -> Response:
        """200 once a configuration is loaded."""
        if self._rules.current is None:
            return self._not_loaded()
        return PlainTextResponse("ok\n")

    def _response(self, reply: Reply) -> Response:
        """Log a failure once for each place where it comes from, and count it always."""
        if reply.failure is not None and self._failures.is_new(reply.failure.place):
            log.error("an object cannot be reviewed", exception=reply.failure.trace)
        REVIEWS.labels(outcome=reply.outcome).inc()
        if reply.cause:
            REVIEWS_REFUSED.labels(cause=reply.cause).inc()
        if reply.outcome not in {Outcome.MUTATED, Outcome.UNCHANGED}:
            self._refusals.observe(reply)
        media = "text/plain" if reply.outcome is Outcome.MALFORMED else "application/json"
        return Response(reply.body, status_code=reply.status, media_type=media)

    def _not_loaded(self) -> Response:
        error = self._rules.error or "none was given yet"
        return PlainTextResponse(f"no configuration is loaded: {error}\n", status_code=_UNAVAILABLE)


class _HeldResponse(Response):
    """An answer that is as large as its question: that counts until the answer is sent.

    It is sent in parts, so that no buffer has all of it.
    """

    def __init__(self, response: Response, held: AsyncExitStack) -> None:
        self._response = response
        self._held = held

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        # Where another body needs its bytes, it stays unfinished: the connection is closed.
        with suppress(UnreadableBodyError):
            async with self._held:
                await self._send(send)

    async def _send(self, send: Send) -> None:
        body, of = self._response.body, self._response
        start = {"type": "http.response.start", "status": of.status_code, "headers": of.raw_headers}
        await send(start)
        for begin in range(0, len(body), _PART_BYTES):
            part = bytes(body[begin : begin + _PART_BYTES])
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _live(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _unread(error: UnreadableBodyError) -> Response:
    if error.cause:
        REVIEWS.labels(outcome=Outcome.MALFORMED).inc()
        REVIEWS_REFUSED.labels(cause=error.cause).inc()
    # The rest of the body is not read, so no other request can follow on this connection.
    return PlainTextResponse(
        f"{error}\n", status_code=error.status, headers={"connection": "close"}
    )


class _RefusalLog:
    """Logs refusals. What costs too much may come a hundred times a second."""

    def __init__(self) -> None:
        self._logged: dict[tuple[str, str], float] = {}
        """Namespace and cause to when they were logged."""

    def observe(self, reply: Reply) -> None:
        """Log a refusal, unless one of its namespace and cause was logged a moment ago."""
        if self._is_news(reply):
            _log_refusal(reply)

    def _is_news(self, reply: Reply) -> bool:
        if not reply.cause:
            return True
        key = (str((reply.request or {}).get("namespace")), reply.cause)
        now = time.monotonic()
        if self._logged.get(key, -LOG_SECONDS) + LOG_SECONDS > now:
            return False
        if len(self._logged) >= LOGGED_MAX:
            self._logged.clear()
        self._logged[key] = now
        return True


def _log_refusal(reply: Reply) -> None:
    request = reply.request or {}
    obj = request.get("object")
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    user = request.get("userInfo")
    with about(*reply.about):
        log.warning(
            "an object was refused at admission",
            outcome=str(reply.outcome),
            reason=reply.message,
            namespace=request.get("namespace"),
            name=request.get("name") or None,
            generate_name=metadata.get("generateName") if isinstance(metadata, dict) else None,
            user=user.get("username") if isinstance(user, dict) else None,
            request_uid=request.get("uid"),
        )
