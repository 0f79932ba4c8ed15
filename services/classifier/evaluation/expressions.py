"""The expressions of a configuration on one object: decode, check as Tekton does, evaluate. Pure."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from services.classifier.cel import (
    AddRequest,
    EvaluationError,
    Mutation,
    Programs,
    SetAnnotation,
    SetLabel,
    SetManager,
    Variables,
)
from services.classifier.refusal import RefusedError, WebhookRule
from services.classifier.tekton.defaulting import as_it_is, decode
from services.classifier.tekton.reading import InvalidPipelineRunError
from services.classifier.tekton.validation import validate
from shared.contracts.kube.kinds import Object

MUTATIONS_MAX: Final = 1_000
"""Limit for what all expressions return for one object. Each becomes a label or an annotation, and an
object may have 256 KiB of annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An object, and what expressions are told besides."""

    object: Object
    is_run: bool
    """A PipelineRun: expressions see it as Tekton defaults it, and any other kind as it is."""

    namespace: str
    pac_event_type: str
    pac_test_event_type: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields for a child process."""
        return {
            "object": self.object,
            "is_run": self.is_run,
            "namespace": self.namespace,
            "pac_event_type": self.pac_event_type,
            "pac_test_event_type": self.pac_test_event_type,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        return cls(**fields)


def evaluate(programs: Programs, evaluation: Evaluation) -> list[Mutation]:
    """Return the mutations of all expressions. Raises `RefusedError`."""
    try:
        if evaluation.is_run:
            visible = decode(evaluation.object)
            validate(visible)
        else:
            visible = as_it_is(evaluation.object)
        variables = Variables(
            pipeline_run=visible,
            namespace=evaluation.namespace,
            pac_event_type=evaluation.pac_event_type,
            pac_test_event_type=evaluation.pac_test_event_type,
        )
        mutations = programs.evaluate(variables)
    except InvalidPipelineRunError as error:
        raise RefusedError(WebhookRule.INVALID_RUN, problem=error) from error
    except EvaluationError as error:
        raise RefusedError(WebhookRule.EXPRESSION, problem=error) from error
    if len(mutations) > MUTATIONS_MAX:
        raise RefusedError(WebhookRule.MUTATIONS, count=len(mutations), most=MUTATIONS_MAX)
    return mutations


_MUTATIONS: Final = {
    each.__name__: each for each in (SetLabel, SetAnnotation, AddRequest, SetManager)
}


def mutations_to_json(mutations: list[Mutation]) -> list[Any]:
    """Return mutations as JSON, for the way out of a child process."""
    return [[type(each).__name__, asdict(each)] for each in mutations]


def mutations_from_json(written: list[Any]) -> list[Mutation]:
    """Return what `mutations_to_json` wrote."""
    return [_MUTATIONS[name](**fields) for name, fields in written]
