"""Every reason that quota may give is in the reference, and no other."""

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from services.quota.engine.scheduling import messages
from services.quota.lifecycle.timers import _CAUSES
from services.reference.reasons import REASONS
from shared.contracts import reasons
from shared.contracts.reasons import DEACTIVATED_DUE_TO

QUOTA = Path(__file__).parents[3] / "services" / "quota"
CARRIERS = {"WaitReason", "_WaitingState", "evict", "_evict", "_stop_holders"}
"""What is called with a reason among its arguments."""

GIVERS = {"no_fit_reason", "_token"}
"""Functions that return a reason."""

CAPITALS = re.compile(r"[A-Z][A-Za-z]+")
ENDS_BY_ITSELF = {
    "PendingEvaluation",
    "WaitingForQuota",
    "WaitingForPreemptedWorkloads",
    "WaitingForPodsReady",
}
ENDED_BY_WHOEVER_HOLDS_IT = {"OnHold", "AdmissionGated"}

SHARED = {
    name: value
    for name, value in vars(reasons).items()
    if isinstance(value, str) and name.isupper()
}
"""Reasons that several services know, by the name of their constant."""

FIELDS = {"reason", "evict_reason"}
"""What a reason is assigned to."""


def tokens() -> Iterator[str]:
    """Reasons as they stand in the source."""
    for path in QUOTA.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                    if name in CARRIERS:
                        yield from strings(arguments)
                    elif name == "append" and isinstance(arguments[0], ast.Tuple):
                        yield from strings(arguments[0].elts[:1])
                    elif name == "Explanation":
                        yield from strings([k.value for k in node.keywords if k.arg == "reason"])
                case ast.Assign(targets=[target], value=value) if field_of(target) in FIELDS:
                    yield from strings([value])
                case ast.Assign(
                    targets=[ast.Tuple(elts=[first, *_])], value=ast.Tuple(elts=values)
                ):
                    if field_of(first) in FIELDS:
                        yield from strings(values[:1])
                case ast.Assign(targets=[ast.Name(id="inactive")], value=ast.Tuple(elts=values)):
                    yield from strings(values[:1])
                case ast.keyword(arg="inactive", value=ast.IfExp(body=ast.Tuple(elts=values))):
                    yield from strings(values[:1])
                case ast.FunctionDef(name=name) if name in GIVERS:
                    returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
                    yield from strings([value for value in returned if value is not None])
                case _:
                    pass


def field_of(target: ast.expr) -> str:
    match target:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def strings(nodes: list[ast.expr]) -> Iterator[str]:
    """Words in capitals, without blanks: the others are messages, or parts of a word."""
    for node in nodes:
        parts = {v for f in ast.walk(node) if isinstance(f, ast.JoinedStr) for v in f.values}
        for one in ast.walk(node):
            match one:
                case ast.Constant(value=str(text)) if one not in parts and CAPITALS.fullmatch(text):
                    yield text
                case ast.Name(id=name) | ast.Attribute(attr=name) if name in SHARED:
                    yield SHARED[name]
                case _:
                    pass


def test_functions_and_classes_that_carry_reasons_exist_in_quota() -> None:
    """A carrier that was renamed would carry reasons unseen."""
    defined = (ast.FunctionDef, ast.ClassDef)
    names = {
        node.name
        for path in QUOTA.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, defined)
    }
    assert {*CARRIERS, *GIVERS} - names == set()


def test_every_reason_of_quota_is_explained() -> None:
    given = {
        *tokens(),
        *messages.HUMAN,
        *(f"DeactivatedDueTo{cause}" for cause, _ in _CAUSES.values()),
    }
    explained = set(chain.from_iterable(REASONS.values()))
    assert len(given) > 25
    assert given - explained == {DEACTIVATED_DUE_TO}, "a prefix alone is no reason"


def test_no_explained_reason_is_unknown_to_quota() -> None:
    source = "\n".join([*SHARED.values(), *(path.read_text() for path in QUOTA.rglob("*.py"))])
    named = chain.from_iterable(REASONS.values())
    assert [name for name in named if name.removeprefix("DeactivatedDueTo") not in source] == []


def test_each_waiting_reason_is_known_to_end_by_itself_or_not() -> None:
    """Forecasts, the console's overview and its alerts go by these sets."""
    waiting = set(REASONS["Why a workload waits"])
    assert waiting == {*ENDS_BY_ITSELF, *ENDED_BY_WHOEVER_HOLDS_IT, *reasons.STUCK}
    assert waiting >= reasons.NOT_FOR_QUOTA
