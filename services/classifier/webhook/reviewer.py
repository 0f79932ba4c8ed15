"""Answers reviews within a budget: measures first, and lets child processes do what may be long.

Mutation asks for the results of expressions in the middle of its work. It is pure, so it runs twice: the
first time until it asks, the second time with the answer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from services.classifier.cel import Mutation
from services.classifier.evaluation.budget import Budget, Measure, measure
from services.classifier.evaluation.expressions import Evaluation
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.refusal import RefusedError
from services.classifier.rules import Rules
from services.classifier.validation import Problem, validate
from services.classifier.webhook.context import NamespaceContext, default_context
from services.classifier.webhook.mutation import evaluate_here, no_traceparent
from services.classifier.webhook.review import (
    Reply,
    allowed_reply,
    answer_mutation,
    answer_validation,
    malformed_reply,
    parse_review,
    refused_reply,
    too_large_reply,
)
from shared.contracts.kube.kinds import Kind, Object

LIGHT_BYTES_MAX: Final = 128 * 1024
LIGHT_VALUES_MAX: Final = 4_000
LIGHT_ITEMS_MAX: Final = 150
"""Limits of the light lane. A run with 50 embedded tasks is within them; expressions take 10 ms for it."""


_DEFAULT_BUDGET: Final = Budget()


class _PendingError(Exception):
    """The first pass of a review asks for what another process has to find out."""

    def __init__(self, ask: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self.ask = ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """Answers reviews. `pool`: None evaluates here, where nothing cuts it off."""

    budget: Budget = _DEFAULT_BUDGET
    pool: EvaluationPool | None = None
    new_traceparent: Callable[[], str | None] = no_traceparent
    context_of: Callable[[str], NamespaceContext] = default_context

    async def mutate(self, body: bytes, rules: Rules, kind: Kind | None) -> Reply:
        """Answer one review of a creation. `kind`: the only one expected, None for any."""
        request, size = self._read(body)
        if isinstance(request, Reply):
            return request

        def reply(evaluate: Callable[[Rules, Evaluation], list[Mutation]]) -> Reply:
            return answer_mutation(
                request,
                rules,
                kind=kind,
                new_traceparent=self.new_traceparent,
                context_of=self.context_of,
                evaluation=evaluate,
            )

        def first(rules: Rules, evaluation: Evaluation) -> list[Mutation]:
            found = measure(evaluation.object)
            if excess := self.budget.check_expressions(found):
                raise excess
            pool = self.pool
            if pool is None:
                return evaluate_here(rules, evaluation)
            raise _PendingError(
                lambda: pool.evaluate(
                    rules.programs, evaluation, size=size, heavy=_is_heavy(size, found)
                )
            )

        try:
            return reply(first)
        except _PendingError as pending:
            result = await _outcome(pending.ask)
        return reply(lambda _rules, _evaluation: result())

    async def validate(self, body: bytes) -> Reply:
        """Answer one review by the rules of the object's kind."""
        request, size = self._read(body)
        if isinstance(request, Reply):
            return request
        namespace = str(request.get("namespace") or "")
        found = measure(request.get("object"))

        def first(obj: Object, old: Object | None) -> list[Problem]:
            pool = self.pool
            if pool is None or not _is_heavy(size, found):
                return validate(obj, old)
            raise _PendingError(lambda: pool.validate(namespace, obj, old, size=size))

        try:
            return answer_validation(request, first)
        except _PendingError as pending:
            result = await _outcome(pending.ask)

        def second(_obj: Object, _old: Object | None) -> list[Problem]:
            problems: list[Problem] = result()
            return problems

        return answer_validation(request, second)

    def _read(self, body: bytes) -> tuple[Object | Reply, int]:
        """Return the request and its size; instead of a request the reply to one that is too large."""
        size = len(body)
        if excess := self.budget.check_body(body):
            return too_large_reply(body, excess), size
        try:
            request = parse_review(body)
        except ValueError as error:
            return malformed_reply(error), size
        for field in ("object", "oldObject"):
            if excess := self.budget.check_object(measure(request.get(field))):
                if _is_being_deleted(request):  # Its finalizers must be removable.
                    return allowed_reply(request), size
                return refused_reply(request, excess), size
        return request, size


def _is_heavy(size: int, found: Measure) -> bool:
    return (
        size > LIGHT_BYTES_MAX or found.values > LIGHT_VALUES_MAX or found.longest > LIGHT_ITEMS_MAX
    )


def _is_being_deleted(request: Object) -> bool:
    obj = request.get("object")
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    deleted = metadata.get("deletionTimestamp") if isinstance(metadata, dict) else None
    return request.get("operation") == "UPDATE" and bool(deleted)


async def _outcome(ask: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    """Return a function that returns the answer, or raises its refusal, when the second pass asks."""
    try:
        answer = await ask()
    except RefusedError as error:
        refusal = error

        def refuse() -> Any:
            raise refusal

        return refuse
    return lambda: answer
