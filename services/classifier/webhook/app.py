"""The webhook as an ASGI app: mutation, validation, conversion. It answers from memory.

Until a configuration is loaded it answers 503, so that with `failurePolicy: Fail` nothing slips past.
Validation and conversion need none.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import Counter, Histogram
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from services.classifier.rules.rules import RulesHolder
from services.classifier.webhook.mutation import Place, anywhere, no_trace
from services.classifier.webhook.review import (
    CONVERSION_BYTES_MAX,
    REVIEW_BYTES_MAX,
    Outcome,
    Reply,
    answer_conversion,
    answer_review,
    answer_validation,
)
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind

__all__ = [
    "CONVERT_PATH",
    "JOB_PATH",
    "MUTATE_PATH",
    "PIPELINE_RUN_PATH",
    "VALIDATE_PATH",
    "webhook_app",
]

log = structlog.get_logger(__name__)

MUTATE_PATH: Final = "/mutate"
PIPELINE_RUN_PATH: Final = "/mutate-tekton-dev-v1-pipelinerun"
"""The path of tekton-kueue's webhook configuration."""

JOB_PATH: Final = "/mutate-batch-v1-job"

VALIDATE_PATH: Final = "/validate"
CONVERT_PATH: Final = "/convert"

_KINDS: Final[dict[str, Kind | None]] = {
    MUTATE_PATH: None,
    PIPELINE_RUN_PATH: kinds.PIPELINE_RUN,
    JOB_PATH: kinds.JOB,
}
_TOO_LARGE: Final = 413
_UNAVAILABLE: Final = 503

_REVIEWS: Final = Counter("sluicegate_webhook_reviews", "Admission reviews answered.", ["outcome"])
_SECONDS: Final = Histogram(
    "sluicegate_webhook_seconds",
    "Time to answer an admission review, from the body's last byte.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 10),
)


class _RefusedBodyError(Exception):
    """The body is too large, or whoever sent it has gone."""

    def __init__(self, answer: Response) -> None:
        super().__init__()
        self.answer = answer


def _untraced(_reply: Reply, _path: str, _seconds: float) -> None:
    """Tell nobody."""


def webhook_app(
    rules: RulesHolder,
    *,
    new_traceparent: Callable[[], str | None] = no_trace,
    place_of: Callable[[str], Place] = anywhere,
    traced: Callable[[Reply, str, float], None] = _untraced,
) -> Starlette:
    """Build the app. `rules` may change under it; each request works with what is in force then.

    `place_of` says what holds for objects that are created in a namespace. `traced` hears of each
    mutation: what was answered, at which path, after how many seconds.
    """
    one_at_a_time = asyncio.Lock()

    async def mutate(request: Request) -> Response:
        current = rules.current
        if current is None:
            return PlainTextResponse(_not_loaded(rules), status_code=_UNAVAILABLE)
        try:
            body = await _body(request, REVIEW_BYTES_MAX)
        except _RefusedBodyError as error:
            return error.answer
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = answer_review(
            body,
            current,
            kind=_KINDS[request.url.path],
            new_traceparent=new_traceparent,
            place_of=place_of,
        )
        seconds = loop.time() - began
        _SECONDS.observe(seconds)
        traced(reply, request.url.path, seconds)
        return _answer(reply)

    async def validate(request: Request) -> Response:
        try:
            body = await _body(request, REVIEW_BYTES_MAX)
        except _RefusedBodyError as error:
            return error.answer
        loop = asyncio.get_running_loop()
        began = loop.time()
        reply = answer_validation(body)
        _SECONDS.observe(loop.time() - began)
        return _answer(reply)

    async def convert(request: Request) -> Response:
        try:
            body = await _body(request, CONVERSION_BYTES_MAX)
        except _RefusedBodyError as error:
            return error.answer
        async with one_at_a_time:  # A list may be large; two would need the memory of both.
            reply = await answer_conversion(body)
        return _answer(reply)

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


def _answer(reply: Reply) -> Response:
    _REVIEWS.labels(outcome=reply.outcome).inc()
    _log(reply)
    media = "text/plain" if reply.outcome is Outcome.MALFORMED else "application/json"
    return Response(reply.body, status_code=reply.status, media_type=media)


async def _body(request: Request, bytes_max: int) -> bytes:
    """Read the body as far as the limit, whatever its length header says."""
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > bytes_max:
                _REVIEWS.labels(outcome=Outcome.MALFORMED).inc()
                raise _RefusedBodyError(
                    PlainTextResponse(
                        f"body: larger than {bytes_max} bytes", status_code=_TOO_LARGE
                    )
                )
            parts.append(part)
    except ClientDisconnect:
        # Nobody is there to read it.
        raise _RefusedBodyError(Response(status_code=_UNAVAILABLE)) from None
    return b"".join(parts)


def _not_loaded(rules: RulesHolder) -> str:
    return f"no configuration is loaded: {rules.error or 'none was given yet'}\n"


def _log(reply: Reply) -> None:
    if reply.outcome in {Outcome.MUTATED, Outcome.UNCHANGED}:
        return
    request = reply.request or {}
    given = request.get("object")
    metadata = given.get("metadata") if isinstance(given, dict) else None
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
