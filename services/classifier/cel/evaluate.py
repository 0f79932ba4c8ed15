"""Running compiled expressions on an object, and turning what they return into mutations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel

from services.classifier.cel.errors import EvaluationError
from services.classifier.cel.functions import MARK, SIGNATURES, inline_functions
from services.classifier.cel.mutations import (
    AddRequest,
    Mutation,
    SetAnnotation,
    SetLabel,
    explain_annotation_value,
    explain_label_value,
    explain_qualified_name,
)
from shared.cel.explain import explain, explain_budget
from shared.cel.values import plain
from shared.contracts.kube.names import REQUESTS_PREFIX

__all__ = ["Program", "Programs", "Variables"]

_ERROR: Final = cel.Type.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """What an expression sees."""

    pipeline_run: Mapping[str, Any]
    """The defaulted object as JSON, every number a double."""

    namespace: str
    pac_event_type: str
    pac_test_event_type: str

    def to_cel(self) -> dict[str, Any]:
        """By the names that the configuration uses."""
        return {
            "pipelineRun": self.pipeline_run,
            "plrNamespace": self.namespace,
            "pacEventType": self.pac_event_type,
            "pacTestEventType": self.pac_test_event_type,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One expression, ready to run."""

    index: int
    """Its place in `cel.expressions`, from 0."""

    expression: str
    checked: Any
    """The syntax tree before functions were inlined, to explain failures with."""

    runnable: Any

    def refuse(self, problem: str) -> EvaluationError:
        """The error that names this expression."""
        return EvaluationError(index=self.index, expression=self.expression, problem=problem)


class Programs:
    """All expressions of one configuration."""

    def __init__(self, *, environment: Any, programs: tuple[Program, ...]) -> None:
        self._environment = environment
        self._programs = programs

    def __len__(self) -> int:
        return len(self._programs)

    def evaluate(self, variables: Variables) -> list[Mutation]:
        """Run every expression against the same object; none sees what another one wants.

        Raises `EvaluationError` for the first that fails. Nothing is applied here.
        """
        activation = self._environment.Activation(variables.to_cel())
        return [
            mutation
            for program in self._programs
            for mutation in self._evaluate(program, activation)
        ]

    def _evaluate(self, program: Program, activation: Any) -> list[Mutation]:
        try:
            result = program.runnable.eval(activation)
            failed = str(result.value()) if result.type() == _ERROR else None
        except RuntimeError as error:  # the iteration budget is raised, all else is returned
            raise program.refuse(explain_budget(str(error))) from error
        if failed is not None:
            raise program.refuse(
                explain(
                    failed,
                    program.checked,
                    self._environment,
                    activation,
                    functions=SIGNATURES,
                    rewrite=inline_functions,
                )
            )
        returned = plain(result)
        if isinstance(returned, list):
            return [
                _mutation(item, program.refuse, f"list item {place}: ")
                for place, item in enumerate(returned)
            ]
        return [_mutation(returned, program.refuse, "")]


def _mutation(returned: Any, refuse: Callable[[str], EvaluationError], where: str) -> Mutation:
    """Check one returned map, in the order in which the reference complains."""
    if not isinstance(returned, dict) or MARK not in returned:
        raise refuse(
            f"{where}expected what label(), annotation(), priority() or resource() returns, "
            f"got {_described(returned)}"
        )
    kind, key, value = returned["type"], returned["key"], returned["value"]
    bare = key.removeprefix(REQUESTS_PREFIX) if kind == "resource" else key
    if not bare:
        raise refuse(f"{where}{kind} key cannot be empty")
    if kind == "resource" and int(value) < 0:
        raise refuse(f"{where}{kind} value must be positive (>= 0), got {value}")
    if problem := explain_qualified_name(bare):
        raise refuse(f"{where}{kind} key {bare!r} is invalid: {problem}")
    # What priority() was given is left to the API server, as the reference leaves it.
    checked = explain_label_value if returned[MARK] == "label" else explain_annotation_value
    if problem := checked(value):
        raise refuse(f"{where}{kind} {key!r} value {value[:80]!r} is invalid: {problem}")
    if not value:
        raise refuse(f"{where}{kind} {key!r}: mutation value cannot be empty")
    match kind:
        case "label":
            return SetLabel(key=key, value=value)
        case "annotation":
            return SetAnnotation(key=key, value=value)
        case _:
            return AddRequest(key=key, amount=int(value))


def _described(returned: Any) -> str:
    if isinstance(returned, dict):
        keys = ", ".join(sorted(map(str, returned))[:5])
        return f"a map with keys {keys}: missing what makes it a mutation" if keys else "{}"
    return f"{type(returned).__name__} {str(returned)[:40]!r}"
