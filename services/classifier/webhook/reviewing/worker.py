"""The child process that answers large reviews: `python -m services.classifier.webhook.reviewing.worker …`.

It takes the arguments of `services.classifier.evaluation.worker`, and is cut off as that is.
"""

import sys
from collections import Counter
from functools import partial

from prometheus_client import REGISTRY

from services.classifier.cel import CelEngine
from services.classifier.evaluation.frames import Frame
from services.classifier.evaluation.worker import Pipe, serve
from services.classifier.metrics import FAILURE, SUCCESS
from services.classifier.rules import Rules
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.conversion_review import convert_parts, unreadable_conversion
from services.classifier.webhook.review import Reply, unreadable_reply
from services.classifier.webhook.reviewing.large import (
    budget_of,
    context_from,
    integrations_of,
    kind_of,
    reply_frame,
    rules_of,
)
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from shared.integrations import SHIPPED, Integrations


class _LargeReviews:
    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._engine = CelEngine()
        self._rules: Rules | None = None
        self._integrations: Integrations = SHIPPED
        self._here = WithinBudget()
        self._counted = _counts()

    def answer(self, job: Frame) -> Frame:
        match job.head["do"]:
            case "rules":
                self._rules = rules_of(job, self._engine)
            case "integrations":
                self._integrations = integrations_of(job)
            case "budget":
                self._here = WithinBudget(
                    budget=budget_of(job),
                    new_traceparent=partial(self._pipe.ask, "traceparent"),
                    context_of=self._context,
                )
            case "convert":
                return reply_frame(*_converted(job.whole()))
            case _:
                return reply_frame(self._reply(job), self._newly_counted())
        return Frame({})

    def _context(self, namespace: str) -> NamespaceContext:
        return context_from(self._pipe, self._integrations, namespace)

    def _reply(self, job: Frame) -> Reply:
        try:
            if job.head["do"] == "validate":
                return self._here.validate(job.whole())
            assert self._rules is not None, "rules are sent first"
            return self._here.mutate(job.whole(), self._rules, kind_of(job))
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001 - the webhook logs it.
            return unreadable_reply(job.whole(), error)

    def _newly_counted(self) -> dict[str, dict[str, float]]:
        """Return what was counted since the last reply: the webhook's metrics are another process's."""
        before, self._counted = self._counted, _counts()
        return {
            name: {result: number for result, number in (now - before[name]).items() if number}
            for name, now in self._counted.items()
        }


def _converted(body: bytes) -> tuple[Reply, dict[str, dict[str, float]], list[bytes]]:
    """Return the reply to a conversion, of which nothing is counted, and its body."""
    try:
        reply, parts = convert_parts(body)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the webhook logs it.
        reply = unreadable_conversion(body, error)
        parts = [reply.body]
    return reply, {}, parts


def _counts() -> dict[str, Counter[str]]:
    series = {
        "evaluations": "tekton_kueue_cel_evaluations_total",
        "mutations": "tekton_kueue_cel_mutations_total",
    }
    return {
        name: Counter(
            {
                result: int(REGISTRY.get_sample_value(one, {"result": result}) or 0)
                for result in (SUCCESS, FAILURE)
            }
        )
        for name, one in series.items()
    }


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], _LargeReviews))
