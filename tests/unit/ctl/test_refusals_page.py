"""Every refusal of the code is in docs/reference/refusals.md, in the words that it is given in."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from string import Formatter
from typing import Final

import pytest

from services.reference.refusals import PLACES, refusals_page
from services.reference.write import GENERATED, REFERENCE
from shared.contracts.reasons import RefusalRule
from shared.telemetry.refusals import MessageRule

ROOT: Final = Path(__file__).parents[3]
RULES: Final = {rules.__name__: rules for rules in chain.from_iterable(PLACES.values())}

COUNTERS: Final = {
    "REFUSED": {"shared/telemetry/refusals.py"},
    "REVIEWS_REFUSED": {"services/classifier/webhook/app.py", "services/classifier/app.py"},
}
"""Counters of refusals to the modules that count in them, by the label of a rule."""

REFUSALS: Final = {
    "services/classifier": {"RefusedError", "UnreadableBodyError"},
    "services/patcher": {"_RefusedError", "refused", "_refused"},
    "services/console": {"StatusError"},
    "services/quota": {"refuse"},
}
"""By service: what is called to refuse something."""

SAYS: Final[dict[str, set[str]]] = {
    "says": set(), "_refused": {"of"}, "_refuse": {"log"}, "_log_refusal": set(), "_refuse_change": set(),
}  # fmt: skip
"""What else is called with a rule and its values, to the values that it adds itself."""


@cache
def code() -> dict[str, ast.Module]:
    """Each module of ours by its path. Whoever only collects tests does not pay for that."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for top in ("services", "shared")
        for path in sorted((ROOT / top).rglob("*.py"))
    }


def families(rules: type[RefusalRule]) -> Iterator[type[RefusalRule]]:
    for each in rules.__subclasses__():
        yield each
        yield from families(each)


def members() -> Iterator[tuple[str, ast.Call | None]]:
    """Each mention of a rule, `Class.NAME`, with the call whose first argument or function it is."""
    for tree in code().values():
        callers: dict[ast.AST, ast.Call] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr == "says":
                    callers[node.func.value] = node
                callers.update((argument, node) for argument in node.args)
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=member) if name in RULES:
                    yield f"{name}.{member}", callers.get(node)
                case _:
                    pass


def test_every_family_of_rules_is_on_the_page() -> None:
    written = [
        node.name
        for tree in code().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and {ast.unparse(base) for base in node.bases} & {"RefusalRule", "MessageRule"}
        and node.name != MessageRule.__name__
    ]
    assert sorted(written) == sorted(RULES)
    assert {*families(RefusalRule)} == {*RULES.values(), MessageRule}


def test_every_rule_refuses_something() -> None:
    mentioned = {name for name, _ in members()}
    known = {f"{name}.{rule.name}" for name, rules in RULES.items() for rule in rules}
    assert known - mentioned == set(), "delete the rule, or use it"


def test_every_refusal_has_the_values_that_its_text_names() -> None:
    wrong = []
    for name, call in members():
        called = "" if call is None else ast.unparse(call.func).rpartition(".")[2]
        if call is None or called not in {*SAYS, *chain.from_iterable(REFUSALS.values())}:
            continue  # Handed on: whoever says it has the values.
        owner, _, member = name.partition(".")
        named = {field for _, field, _, _ in Formatter().parse(RULES[owner][member].text) if field}
        given = {each.arg for each in call.keywords} | SAYS.get(called, set())
        if None not in given and not named <= given:
            wrong.append(f"{name}: {sorted(named - given)}")
    assert wrong == []


@pytest.mark.parametrize("counter", COUNTERS)
def test_nothing_is_counted_as_refused_but_by_a_rule(counter: str) -> None:
    found = set()
    for path, tree in code().items():
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr="labels") if name == counter:
                    found.add(path)
                case _:
                    pass
    assert found == COUNTERS[counter]


@pytest.mark.parametrize("service", REFUSALS)
def test_nothing_is_refused_in_words_of_its_own(service: str) -> None:
    """What is called to refuse gets no text, but a rule."""
    texts = []
    for path, tree in code().items():
        if not path.startswith(service):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in REFUSALS[service] and any(
                isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", None), str)
                for each in node.args
            ):
                texts.append(f"{path}:{node.lineno}")
    assert texts == []


def test_page_is_what_the_code_says() -> None:
    assert (REFERENCE / "refusals.md").read_text() == refusals_page(GENERATED)


def test_every_row_says_what_to_do_and_where_it_is_counted() -> None:
    rows = [line for line in refusals_page(GENERATED).splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [
        row for row in rows if not re.search(r"\| [^|]{5,} \| `sluicegate_\w+\{.+\}` \|$", row)
    ] == []
