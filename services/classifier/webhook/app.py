"""The webhook as an ASGI app: mutation, validation and conversion, answered from memory.

Mutation needs a configuration. Until one is loaded it answers 503, so that with `failurePolicy: Fail` no
job is created unclassified. Validation and conversion need none.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from services.classifier.metrics import REVIEW_SECONDS, REVIEWS
from services.classifier.rules import RulesHolder
from services.classifier.webhook.context import NamespaceContext, default_context
from services.classifier.webhook.conversion_review import CONVERSION_BYTES_MAX, answer_conversion
from services.classifier.webhook.mutation import no_traceparent
from services.classifier.webhook.review import (
    REVIEW_BYTES_MAX,
    Outcome,
    Reply,
    answer_mutation,
    answer_validation,
)
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.webhook import (
    CONVERT_PATH,
    JOB_PATH,
    MUTATE_PATH,
    PIPELINE_RUN_PATH,
    VALIDATE_PATH,
)

__all__ = ["webhook_app"]

log = structlog.get_logger(__name__)

_KINDS: Final[dict[str, Kind | None]] = {
    MUTATE_PATH: None,
    PIPELINE_RUN_PATH: kinds.PIPELINE_RUN,
    JOB_PATH: kinds.JOB,
}
_TOO_LARGE: Final = 413
_UNAVAILABLE: Final = 503


class _UnreadableBodyError(Exception):
    """The body is too large, or the client disconnected."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


def _ignore_mutation(_reply: Reply, _path: str, _seconds: float) -> None:
    pass


def webhook_app(
    rules: RulesHolder,
    *,
    new_traceparent: Callable[[], str | None] = no_traceparent,
    context_of: Callable[[str], NamespaceContext] = default_context,
    on_mutation: Callable[[Reply, str, float], None] = _ignore_mutation,
) -> Starlette:
    """Build the app. Each request uses the rules that are in force when it arrives.

    `context_of` returns the policies and defaults of a namespace. `on_mutation` is called for each
    answered mutation with the reply, the path and the seconds that the answer took.
    """
    conversion_lock = asyncio.Lock()

    async def mutate(request: Request) -> Response:
        current = rules.current
        if current is None:
            return PlainTextResponse(_not_loaded(rules), status_code=_UNAVAILABLE)
        try:
            body = await _body(request, REVIEW_BYTES_MAX)
        except _UnreadableBodyError as error:
            return error.answer
        loop = asyncio.get_running_loop()
        started = loop.time()
        reply = answer_mutation(
            body,
            current,
            kind=_KINDS[request.url.path],
            new_traceparent=new_traceparent,
            context_of=context_of,
        )
        seconds = loop.time() - started
        REVIEW_SECONDS.observe(seconds)
        on_mutation(reply, request.url.path, seconds)
        return _response(reply)

    async def validate(request: Request) -> Response:
        try:
            body = await _body(request, REVIEW_BYTES_MAX)
        except _UnreadableBodyError as error:
            return error.answer
        loop = asyncio.get_running_loop()
        started = loop.time()
        reply = answer_validation(body)
        REVIEW_SECONDS.observe(loop.time() - started)
        return _response(reply)

    async def convert(request: Request) -> Response:
        try:
            body = await _body(request, CONVERSION_BYTES_MAX)
        except _UnreadableBodyError as error:
            return error.answer
        async with conversion_lock:  # A list may be large: two at a time would double the memory.
            reply = await answer_conversion(body)
        return _response(reply)

    async def ready(_request: Request) -> Response:
        if rules.current is None:
            return PlainTextResponse(_not_loaded(rules), status_code=_UNAVAILABLE)
        return PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            *(Route(path, mutate, methods=["POST"]) for path in _KINDS),
            Route(VALIDATE_PATH, validate, methods=["POST"]),
            Route(CONVERT_PATH, convert, methods=["POST"]),
            Route("/healthz", _live),
            Route("/readyz", ready),
        ]
    )


async def _live(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _response(reply: Reply) -> Response:
    REVIEWS.labels(outcome=reply.outcome).inc()
    if reply.outcome not in {Outcome.MUTATED, Outcome.UNCHANGED}:
        _log_refusal(reply)
    media = "text/plain" if reply.outcome is Outcome.MALFORMED else "application/json"
    return Response(reply.body, status_code=reply.status, media_type=media)


async def _body(request: Request, bytes_max: int) -> bytes:
    """Read the body up to the limit, whatever its length header says."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > bytes_max:
                REVIEWS.labels(outcome=Outcome.MALFORMED).inc()
                raise _UnreadableBodyError(
                    PlainTextResponse(
                        f"body: larger than {bytes_max} bytes", status_code=_TOO_LARGE
                    )
                )
            parts.append(part)
    except ClientDisconnect:
        # The client does not read this answer.
        raise _UnreadableBodyError(Response(status_code=_UNAVAILABLE)) from None
    return b"".join(parts)


def _not_loaded(rules: RulesHolder) -> str:
    return f"no configuration is loaded: {rules.error or 'none was given yet'}\n"


def _log_refusal(reply: Reply) -> None:
    request = reply.request or {}
    obj = request.get("object")
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    user = request.get("userInfo")
    log.warning(
        "refused at admission",
        outcome=str(reply.outcome),
        reason=reply.message,
        namespace=request.get("namespace"),
        name=request.get("name") or None,
        generate_name=metadata.get("generateName") if isinstance(metadata, dict) else None,
        user=user.get("username") if isinstance(user, dict) else None,
        request_uid=request.get("uid"),
    )
