"""Answers reviews within a budget: measures first, and lets child processes do what may be long.

Mutation asks for the results of expressions in the middle of its work. It is pure, so it runs twice: the
first time until it asks, the second time with the answer.
"""

import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from services.classifier.cel import Mutation
from services.classifier.evaluation.budget import Budget, Measure, measure, tokens_of
from services.classifier.evaluation.expressions import Evaluation
from services.classifier.evaluation.pool import EvaluationPool
from services.classifier.evaluation.turns import Turns
from services.classifier.refusal import RefusedError
from services.classifier.rules import Rules
from services.classifier.validation import Verdict, judge
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

LIGHT_TOKENS_MAX: Final = 4 * LIGHT_VALUES_MAX
"""Commas and brackets of a review that is read at once: more make what is small in bytes slow to read."""

NAMESPACE_WITHIN_BYTES: Final = 4096
"""An API server writes the namespace before the object."""

_NAMESPACE: Final = re.compile(rb'"namespace":\s*"([-.0-9a-z]{1,253})"')

_Result = Callable[[], Any]
_Ask = Callable[[], Awaitable[Any]]
_Steps = Generator[_Ask, _Result | None, Reply]
"""What a review asks of others in between, what it is told then, and its reply."""

_DEFAULT_BUDGET: Final = Budget()


class _PendingError(Exception):
    """The first pass of a review asks for what another process has to find out."""

    def __init__(self, ask: _Ask) -> None:
        super().__init__()
        self.ask = ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """Answers reviews. `pool`: None evaluates here, where nothing cuts it off."""

    budget: Budget = _DEFAULT_BUDGET
    pool: EvaluationPool | None = None
    new_traceparent: Callable[[], str | None] = no_traceparent
    context_of: Callable[[str], NamespaceContext] = default_context
    turns: Turns = field(default_factory=Turns)

    async def mutate(self, body: bytes, rules: Rules, kind: Kind | None) -> Reply:
        """Answer one review of a creation. `kind`: the only one expected, None for any."""
        return await self._in_turn(body, self._mutation(body, rules, kind))

    async def validate(self, body: bytes) -> Reply:
        """Answer one review by the rules of the object's kind; a child process converts large objects."""
        return await self._in_turn(body, self._validation(body))

    async def _in_turn(self, body: bytes, steps: _Steps) -> Reply:
        """Do the steps of a review. Those of a large one wait for a turn of their namespace each."""
        result: _Result | None = None
        while True:
            try:
                async with self._turn(body):
                    try:
                        ask = steps.send(result)
                    except StopIteration as done:
                        reply: Reply = done.value
                        return reply
            except RefusedError as error:
                return too_large_reply(body, error)
            result = await _outcome(ask)

    def _turn(self, body: bytes) -> AbstractAsyncContextManager[None]:
        if len(body) <= LIGHT_BYTES_MAX and tokens_of(body) <= LIGHT_TOKENS_MAX:
            return nullcontext()
        found = _NAMESPACE.search(body, 0, NAMESPACE_WITHIN_BYTES)
        return self.turns.turn("" if found is None else found[1].decode())

    def _mutation(self, body: bytes, rules: Rules, kind: Kind | None) -> _Steps:
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
            ask = pending.ask
        result = yield ask
        assert result is not None
        return reply(lambda _rules, _evaluation: result())

    def _validation(self, body: bytes) -> _Steps:
        request, size = self._read(body)
        if isinstance(request, Reply):
            return request
        namespace = str(request.get("namespace") or "")
        found = measure(request.get("object"))

        def first(obj: Object, old: Object | None) -> Verdict:
            pool = self.pool
            if pool is None or not _is_heavy(size, found):
                return judge(obj, old)
            raise _PendingError(lambda: pool.validate(namespace, obj, old, size=size))

        try:
            return answer_validation(request, first)
        except _PendingError as pending:
            ask = pending.ask
        result = yield ask
        assert result is not None

        def second(_obj: Object, _old: Object | None) -> Verdict:
            verdict: Verdict = result()
            return verdict

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
        for part in ("object", "oldObject"):
            if excess := self.budget.check_object(measure(request.get(part))):
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


async def _outcome(ask: _Ask) -> _Result:
    """Return a function that returns the answer, or raises its refusal, when the second pass asks."""
    try:
        answer = await ask()
    except RefusedError as error:
        refusal = error

        def refuse() -> Any:
            raise refusal

        return refuse
    return lambda: answer
