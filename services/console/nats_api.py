"""The API over NATS, as a service that `nats micro ls`, `info` and `stats` show.

A request is a JSON object. Its field `token` holds what HTTP sends in `Authorization`: NATS knows which
program asks, but not for which user.
"""

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.console.documents import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    Document,
    PendingWorkloadsSummary,
    SimulateRequest,
)
from services.console.query_service import QueryService
from services.console.status_error import ConsoleRule, StatusError
from shared.bus.nats.answering.nats_service import Endpoint, NatsService
from shared.bus.port import AnswerError
from shared.contracts.subjects import rpc_subject

SERVICE: Final = "sluice-console"

ANSWER_BYTES_MAX: Final = 3 * 1024 * 1024
"""Below `max_payload` of our servers. Answers over HTTP have no such limit."""


class _Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    token: str | None = None


class _Pending(_Question):
    cluster: str | None = None
    cluster_queue: str | None = None
    namespace: str | None = None
    local_queue: str | None = None
    limit: Annotated[int, Field(ge=0, le=LIMIT_MAX)] = 0
    offset: Annotated[int, Field(ge=0)] = 0


class _Explain(_Question):
    cluster: str | None = None
    namespace: str
    name: str
    forecast: bool = False


class _Queues(_Question):
    namespace: str | None = None


class _Simulate(_Question):
    change: SimulateRequest = SimulateRequest()


Q = TypeVar("Q", bound=_Question)


def console_service(queries: QueryService, *, version: str, started: datetime) -> NatsService:
    """The service with its four endpoints. It answers once it is served."""

    async def pending(question: _Pending) -> Document:
        return await _pending(queries, question)

    async def explain(question: _Explain) -> Document:
        user = await queries.authenticate(question.token)
        return await queries.explain(
            user,
            question.namespace,
            question.name,
            cluster=question.cluster,
            forecast=question.forecast,
        )

    async def queues(question: _Queues) -> Document:
        return await queries.queues(await queries.authenticate(question.token), question.namespace)

    async def simulate(question: _Simulate) -> Document:
        return await queries.simulate(await queries.authenticate(question.token), question.change)

    return NatsService(
        name=SERVICE,
        version=version,
        description="Tells who waits in Sluicegate's queues, why, and what would be if.",
        started=started,
        endpoints=(
            _endpoint("pending", _Pending, pending, "Who waits in a queue, in order."),
            _endpoint("explain", _Explain, explain, "Why a workload waits."),
            _endpoint("queues", _Queues, queues, "How the queues stand."),
            _endpoint("simulate", _Simulate, simulate, "What would be if something changed."),
        ),
    )


def _endpoint(
    name: str, of: type[Q], answer: Callable[[Q], Awaitable[Document]], about: str
) -> Endpoint:
    async def answered(data: bytes) -> bytes:
        try:
            question = of.model_validate_json(data or b"{}")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "question"
            raise AnswerError(f"{where}: {first['msg']}") from error
        try:
            document = await answer(question)
        except StatusError as refusal:
            raise AnswerError(str(refusal), code=refusal.code) from refusal
        body = json.dumps(document.wire()).encode()
        if len(body) > ANSWER_BYTES_MAX:
            rule = ConsoleRule.LONG_ANSWER
            raise AnswerError(rule.says(size=len(body)), code=rule.code)
        return body

    return Endpoint(name=name, subject=rpc_subject("console", name), answer=answered, about=about)


async def _pending(queries: QueryService, question: _Pending) -> PendingWorkloadsSummary:
    user = await queries.authenticate(question.token)
    cluster = question.cluster or queries.cluster
    page = {"limit": question.limit or LIMIT_DEFAULT, "offset": question.offset}
    match question:
        case _Pending(cluster_queue=str(name), namespace=None, local_queue=None):
            return await queries.pending_in_cluster_queue(user, cluster, name, **page)
        case _Pending(cluster_queue=None, namespace=str(namespace), local_queue=str(name)):
            return await queries.pending_in_local_queue(user, cluster, namespace, name, **page)
        case _:
            raise StatusError(ConsoleRule.NO_QUEUE)
