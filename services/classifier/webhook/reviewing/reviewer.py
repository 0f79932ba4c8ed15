"""Answers reviews: small ones in the event loop, and large ones in a process of their own.

To process a large body would block the event loop for a while, and a client that sends many would block it
for all others. So a large body goes to the heavy lane as it came. Mutation of a small one asks
for the results of expressions in the middle of its work. It is pure, so it runs twice: the first time
until it asks, the second time with the answer.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Final

from services.classifier.cel import Mutation
from services.classifier.conversion.lists import first_namespace
from services.classifier.evaluation.budget import Measure, tokens_of
from services.classifier.evaluation.expressions import Evaluation
from services.classifier.evaluation.fair_queue import Source
from services.classifier.evaluation.frames import Frame, Job
from services.classifier.evaluation.pool import EvaluationPool, TooHeavyError
from services.classifier.refusal import RefusedError
from services.classifier.rules import Rules
from services.classifier.validation import Verdict, judge
from services.classifier.webhook.conversion_review import answer_conversion, refused_conversion
from services.classifier.webhook.review import Reply, namespace_in, too_large_reply
from services.classifier.webhook.reviewing.large import (
    answer_question,
    conversion_frame,
    reply_of,
    review_frame,
    setups_of,
)
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from shared.contracts.kube.kinds import Kind, Object

LIGHT_BYTES_MAX: Final = 128 * 1024
LIGHT_VALUES_MAX: Final = 4_000
LIGHT_ITEMS_MAX: Final = 150
"""Limits of the light lane. A run with 50 embedded tasks is within them; expressions take 10 ms for it."""

LIGHT_TOKENS_MAX: Final = 4 * LIGHT_VALUES_MAX
"""Commas and brackets of a review that is read at once: more make what is small in bytes slow to read."""


SMALL_CONVERSION_BYTES_MAX: Final = 32 * 1024
SMALL_CONVERSION_TOKENS_MAX: Final = 4_000
_EXPANDS: Final = (b"domainCount", b"\\u")
"""What may become many times as much in another version, and what may be written otherwise."""


class _PendingError(Exception):
    """The first pass of a review asks for what another process has to find out."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__()
        self.evaluation = evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """Answers reviews. `pool`: None answers all of them here, where nothing cuts them off.

    The `address` is that of the client.
    """

    here: WithinBudget = field(default_factory=WithinBudget)
    pool: EvaluationPool | None = None

    async def mutate(
        self, body: bytes, rules: Rules, kind: Kind | None, address: str = ""
    ) -> Reply:
        """Answer one review of a creation or change. `kind`: the only one expected, None for any."""
        pool = self.pool
        if pool is None:
            return self.here.mutate(body, rules, kind)
        if not _is_large(body):
            try:
                return await self._mutate_here(pool, body, rules, kind, address)
            except TooHeavyError:
                pass
        return await self._answer_apart(pool, review_frame(body, rules, kind), rules, address)

    async def validate(self, body: bytes, address: str = "") -> Reply:
        """Answer one review by the rules of the object's kind."""
        pool = self.pool
        if pool is None:
            return self.here.validate(body)
        if not _is_large(body):
            try:
                return self.here.validate(body, _judge_light)
            except TooHeavyError:
                pass
        return await self._answer_apart(pool, review_frame(body, None, None), None, address)

    async def convert(self, body: bytes, address: str = "") -> Reply:
        """Convert the objects of one review."""
        if self.pool is None or _is_converted_here(body):
            return answer_conversion(body)
        source = Source(address, first_namespace(body))
        job = Job(source=source, frame=conversion_frame(body), size=len(body), setups={})
        try:
            return reply_of(await self.pool.convert(job))
        except RefusedError as error:
            return refused_conversion(body, error)

    async def _mutate_here(
        self, pool: EvaluationPool, body: bytes, rules: Rules, kind: Kind | None, address: str
    ) -> Reply:
        request = self.here.read(body)
        if isinstance(request, Reply):
            return request
        try:
            return self.here.mutate(request, rules, kind, _ask)
        except _PendingError as pending:
            evaluation = pending.evaluation
        try:
            found = await pool.evaluate(rules.programs, evaluation, size=len(body), address=address)
        except RefusedError as error:
            return self.here.mutate(request, rules, kind, partial(_refuse, error))
        return self.here.mutate(request, rules, kind, lambda *_: found)

    async def _answer_apart(
        self, pool: EvaluationPool, frame: Frame, rules: Rules | None, address: str
    ) -> Reply:
        """Let the heavy lane answer. `rules`: None for a validation."""
        body = frame.whole()
        source = Source(address, namespace_in(body))
        job = Job(
            source=source,
            frame=frame,
            size=len(body),
            setups=setups_of(self.here, rules, source.namespace),
            answer=partial(answer_question, self.here),
        )
        try:
            return reply_of(await pool.answer(job))
        except RefusedError as error:
            return too_large_reply(body, error)


def _is_large(body: bytes) -> bool:
    return len(body) > LIGHT_BYTES_MAX or tokens_of(body) > LIGHT_TOKENS_MAX


def _is_converted_here(body: bytes) -> bool:
    return (
        len(body) <= SMALL_CONVERSION_BYTES_MAX
        and tokens_of(body) <= SMALL_CONVERSION_TOKENS_MAX
        and not any(part in body for part in _EXPANDS)
    )


def _is_heavy(found: Measure) -> bool:
    return found.values > LIGHT_VALUES_MAX or found.longest > LIGHT_ITEMS_MAX


def _ask(_rules: Rules, evaluation: Evaluation, found: Measure) -> list[Mutation]:
    raise TooHeavyError if _is_heavy(found) else _PendingError(evaluation)


def _refuse(error: RefusedError, *_: object) -> list[Mutation]:
    raise error


def _judge_light(obj: Object, old: Object | None, found: Measure) -> Verdict:
    if _is_heavy(found):
        raise TooHeavyError
    return judge(obj, old)
