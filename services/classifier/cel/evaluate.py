"""Evaluates compiled expressions on an object, and reads their results as mutations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cel_expr_python import cel

from services.classifier.cel.errors import EvaluationError
from services.classifier.cel.functions import (
    ELSEWHERE,
    MANAGED_BY,
    MARK,
    SIGNATURES,
    inline_functions,
)
from services.classifier.cel.mutations import (
    AddRequest,
    Mutation,
    SetAnnotation,
    SetLabel,
    SetManager,
    explain_annotation_value,
    explain_label_value,
    explain_qualified_name,
)
from shared.cel.explain import explain, explain_budget
from shared.cel.values import plain
from shared.contracts.kube.names import REQUESTS_PREFIX

_ERROR: Final = cel.Type.ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The variables of an expression."""

    pipeline_run: Mapping[str, Any]
    """The defaulted object as JSON, every number a double."""

    namespace: str
    pac_event_type: str
    pac_test_event_type: str

    def to_cel(self) -> dict[str, Any]:
        """Return the variables by their names in expressions."""
        return {
            "pipelineRun": self.pipeline_run,
            "plrNamespace": self.namespace,
            "pacEventType": self.pac_event_type,
            "pacTestEventType": self.pac_test_event_type,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled expression."""

    index: int
    """Its index in `cel.expressions`, from 0."""

    expression: str
    checked: Any
    """The syntax tree before functions are inlined; it explains failures."""

    runnable: Any

    def error(self, problem: str) -> EvaluationError:
        """Return the error for this expression."""
        return EvaluationError(index=self.index, expression=self.expression, problem=problem)


class Programs:
    """All compiled expressions of one configuration."""

    def __init__(self, *, environment: Any, programs: tuple[Program, ...]) -> None:
        self._environment = environment
        self._programs = programs

    def __len__(self) -> int:
        return len(self._programs)

    @property
    def texts(self) -> list[str]:
        """The expressions as they were configured: another process compiles them again."""
        return [program.expression for program in self._programs]

    def evaluate(self, variables: Variables) -> list[Mutation]:
        """Evaluate all expressions on the same object; none sees the mutations of another.

        Raises `EvaluationError` for the first that fails.
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
        except RuntimeError as error:  # the library raises for its iteration budget only
            raise program.error(explain_budget(str(error))) from error
        if failed is not None:
            raise program.error(
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
                _mutation(item, program.error, f"list item {index}: ")
                for index, item in enumerate(returned)
            ]
        return [_mutation(returned, program.error, "")]


def _mutation(returned: Any, error: Callable[[str], EvaluationError], where: str) -> Mutation:
    """Check one returned map, in the order of tekton-kueue's checks."""
    if not isinstance(returned, dict) or MARK not in returned:
        raise error(
            f"{where}expected what label(), annotation(), priority(), resource(), managedBy() or "
            f"multiKueue() returns, got {_described(returned)}"
        )
    kind, key, value = returned["type"], returned["key"], returned["value"]
    if kind in {MANAGED_BY, "multiKueue"}:
        return _manager(kind, value, error, where, elsewhere=returned[MARK] == ELSEWHERE)
    bare = key.removeprefix(REQUESTS_PREFIX) if kind == "resource" else key
    if not bare:
        raise error(f"{where}{kind} key cannot be empty")
    if kind == "resource" and int(value) < 0:
        raise error(f"{where}{kind} value must be positive (>= 0), got {value}")
    if problem := explain_qualified_name(bare):
        raise error(f"{where}{kind} key {bare!r} is invalid: {problem}")
    # The API server checks the argument of priority(), as with tekton-kueue.
    checked = explain_label_value if returned[MARK] == "label" else explain_annotation_value
    if problem := checked(value):
        raise error(f"{where}{kind} {key!r} value {value[:80]!r} is invalid: {problem}")
    if not value:
        raise error(f"{where}{kind} {key!r}: mutation value cannot be empty")
    match kind:
        case "label":
            return SetLabel(key=key, value=value)
        case "annotation":
            return SetAnnotation(key=key, value=value)
        case _:
            return AddRequest(key=key, amount=int(value))


def _manager(
    kind: str, value: str, error: Callable[[str], EvaluationError], where: str, *, elsewhere: bool
) -> Mutation:
    """Check what `managedBy` or `multiKueue` returned; `elsewhere`: no queue is given."""
    if elsewhere:
        return SetManager(manager=None)
    what = f"{kind} value" if kind == MANAGED_BY else f"{kind} queue name"
    if not value:
        raise error(f"{where}{what} cannot be empty")
    if kind == MANAGED_BY:
        return SetManager(manager=value)
    if problem := explain_label_value(value):
        raise error(f"{where}{what} {value[:80]!r} is invalid: {problem}")
    return SetManager(manager=None, queue=value)


def _described(returned: Any) -> str:
    if isinstance(returned, dict):
        keys = ", ".join(sorted(map(str, returned))[:5])
        return f"a map with keys {keys}: missing what makes it a mutation" if keys else "{}"
    return f"{type(returned).__name__} {str(returned)[:40]!r}"
