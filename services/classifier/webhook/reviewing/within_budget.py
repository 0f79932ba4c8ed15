"""Answers a review within a budget: measures first. Pure, except for the callables it is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.classifier.cel import Mutation
from services.classifier.evaluation.budget import Budget, Measure, measure
from services.classifier.evaluation.expressions import Evaluation
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

Evaluating = Callable[[Rules, Evaluation, Measure], list[Mutation]]
Judging = Callable[[Object, Object | None, Measure], Verdict]

_DEFAULT_BUDGET: Final = Budget()


def _evaluate(rules: Rules, evaluation: Evaluation, _found: Measure) -> list[Mutation]:
    return evaluate_here(rules, evaluation)


def _judge(obj: Object, old: Object | None, _found: Measure) -> Verdict:
    return judge(obj, old)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinBudget:
    """Answers reviews in this process, where nothing cuts them off."""

    budget: Budget = _DEFAULT_BUDGET
    new_traceparent: Callable[[], str | None] = no_traceparent
    context_of: Callable[[str], NamespaceContext] = default_context

    def read(self, body: bytes) -> Object | Reply:
        """Return the request; instead of it the reply to one that is malformed or too large."""
        if excess := self.budget.check_body(body):
            return too_large_reply(body, excess)
        try:
            request = parse_review(body)
        except ValueError as error:
            return malformed_reply(error)
        for part in ("object", "oldObject"):
            if excess := self.budget.check_object(measure(request.get(part))):
                if _is_being_deleted(request):  # Its finalizers must be removable.
                    return allowed_reply(request)
                return refused_reply(request, excess)
        return request

    def mutate(
        self,
        review: bytes | Object,
        rules: Rules,
        kind: Kind | None,
        evaluate: Evaluating = _evaluate,
    ) -> Reply:
        """Answer the review of a creation or change. `kind`: the only one expected, None for any.

        `evaluate` is told how large the object is.
        """
        request = self.read(review) if isinstance(review, bytes) else review
        if isinstance(request, Reply):
            return request

        def evaluation(rules: Rules, wanted: Evaluation) -> list[Mutation]:
            found = measure(wanted.object)
            if excess := self.budget.check_expressions(found):
                raise excess
            return evaluate(rules, wanted, found)

        return answer_mutation(
            request,
            rules,
            kind=kind,
            new_traceparent=self.new_traceparent,
            context_of=self.context_of,
            evaluation=evaluation,
        )

    def validate(self, body: bytes, judge: Judging = _judge) -> Reply:
        """Answer the review by the rules of the object's kind."""
        request = self.read(body)
        if isinstance(request, Reply):
            return request
        found = measure(request.get("object"))
        return answer_validation(request, lambda obj, old: judge(obj, old, found))


def _is_being_deleted(request: Object) -> bool:
    obj = request.get("object")
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    deleted = metadata.get("deletionTimestamp") if isinstance(metadata, dict) else None
    return request.get("operation") == "UPDATE" and bool(deleted)
