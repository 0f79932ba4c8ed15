"""Evaluates the match conditions of a webhook as an API server does.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from shared.cel.values import plain

_VARIABLES: Final = frozenset({"object", "oldObject", "request"})
_WORD: Final = re.compile(r"\w+")


class ConditionError(ValueError):
    """A condition cannot be evaluated: `failurePolicy` says what becomes of the request."""


def match(conditions: Sequence[Mapping[str, str]], request: Mapping[str, Any]) -> bool:
    """Return whether all conditions hold for the request of an AdmissionReview.

    One that is false decides, whatever fails beside it. Raises `ConditionError`.
    """
    values = {
        "object": request.get("object"),
        "oldObject": request.get("oldObject"),
        "request": request,
    }
    failed = ""
    for condition in conditions:
        program, named = _program(condition["expression"])
        result = program.eval(data={name: values[name] for name in named})
        if result.type() == cel.Type.ERROR:
            failed = failed or f"matchConditions {condition['name']}: {result.value()}"
        elif plain(result) is not True:
            return False
    if failed:
        raise ConditionError(failed)
    return True


@lru_cache(maxsize=64)
def _program(expression: str) -> tuple[Any, frozenset[str]]:
    """The expression, compiled, and the variables that it may read: each costs as much as it is large."""
    environment = cel.NewEnv(
        variables=dict.fromkeys(_VARIABLES, cel.Type.DYN), extensions=[ext_strings.ExtStrings()]
    )
    try:
        named = _VARIABLES.intersection(_WORD.findall(expression))
        return environment.compile(expression), named
    except RuntimeError as error:
        raise ConditionError(f"matchConditions: {error}") from error
