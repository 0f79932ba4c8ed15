"""Evaluates the match conditions of a webhook as an API server does.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from shared.cel.values import plain

_VARIABLES: Final = ("object", "oldObject", "request")


class ConditionError(ValueError):
    """A condition cannot be evaluated: `failurePolicy` says what becomes of the request."""


def match(conditions: Sequence[Mapping[str, str]], request: Mapping[str, Any]) -> bool:
    """Return whether all conditions hold for the request of an AdmissionReview.

    One that is false decides, whatever fails beside it. Raises `ConditionError`.
    """
    variables = {
        "object": request.get("object"),
        "oldObject": request.get("oldObject"),
        "request": request,
    }
    failed = ""
    for condition in conditions:
        result = _program(condition["expression"]).eval(data=variables)
        if result.type() == cel.Type.ERROR:
            failed = failed or f"matchConditions {condition['name']}: {result.value()}"
        elif plain(result) is not True:
            return False
    if failed:
        raise ConditionError(failed)
    return True


@lru_cache(maxsize=64)
def _program(expression: str) -> Any:
    environment = cel.NewEnv(
        variables=dict.fromkeys(_VARIABLES, cel.Type.DYN), extensions=[ext_strings.ExtStrings()]
    )
    try:
        return environment.compile(expression)
    except RuntimeError as error:
        raise ConditionError(f"matchConditions: {error}") from error
