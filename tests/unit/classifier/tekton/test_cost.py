"""The cost of checking grows with the size of a run, not with its square: counted in executed lines."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from services.classifier.tekton.defaulting import decode
from services.classifier.tekton.durations import parse_duration
from services.classifier.tekton.reading import InvalidPipelineRunError
from services.classifier.tekton.validation import PROBLEM_CHARS_MAX, PROBLEMS_MAX, validate
from services.classifier.validation.flavors import multikueue_config
from services.classifier.validation.table import PROBLEMS_MAX as STATUS_PROBLEMS_MAX
from services.classifier.validation.table import validate as validate_kind
from tests.unit.classifier.tekton.runs import inline, run, task


def lines_of(action: Callable[[], object]) -> int:
    """Return how many lines of Python the action executes; loops count once for each turn."""
    count = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def chain(length: int) -> dict[str, Any]:
    tasks = [
        task(f"t{n}", runAfter=[f"t{k}" for k in range(max(0, n - 30), n)]) for n in range(length)
    ]
    made: dict[str, Any] = decode(inline(*tasks))
    return made


def clusters(number: int) -> dict[str, Any]:
    return {"spec": {"clusters": [f"c{n}" for n in range(number)]}}


def check_chain(length: int) -> Callable[[], object]:
    made = chain(length)
    return lambda: validate(made)


def check_clusters(number: int) -> Callable[[], object]:
    made = clusters(number)
    return lambda: list(multikueue_config(made))


GROWING: dict[str, Callable[[int], Callable[[], object]]] = {
    "a chain of tasks, each after thirty": check_chain,
    "clusters": check_clusters,
}


@pytest.mark.parametrize("made", GROWING.values(), ids=GROWING)
def test_twice_the_size_costs_twice_the_lines(made: Callable[[int], Callable[[], object]]) -> None:
    small, large = lines_of(made(200)), lines_of(made(800))
    assert large < 5 * small


def test_message_about_a_huge_cycle_is_short() -> None:
    tasks = [task(f"t{n}", runAfter=[f"t{(n + 1) % 4_000}"]) for n in range(4_000)]
    with pytest.raises(InvalidPipelineRunError, match="and 3980 more") as error:
        validate(decode(inline(*tasks)))
    assert len(str(error.value)) < 1_000


def test_messages_that_quote_long_values_are_cut() -> None:
    tasks = [task("x" * 100_000) for _ in range(30)]
    with pytest.raises(InvalidPipelineRunError) as error:
        validate(decode(inline(*tasks)))
    assert len(str(error.value)) < (PROBLEMS_MAX + 1) * (PROBLEM_CHARS_MAX + 100)


@pytest.mark.parametrize("text", ["1" * 5_000 + "h", "1" * 200_000, "1h" * 100_000, "1.1.1" * 50])
def test_long_duration_is_refused_before_it_is_matched(text: str) -> None:
    with pytest.raises(InvalidPipelineRunError, match="at most 100 are allowed") as error:
        parse_duration(text, "timeouts.pipeline")
    assert len(str(error.value)) < 500


def test_long_name_without_resolver_is_refused() -> None:
    with pytest.raises(InvalidPipelineRunError):
        validate(decode(run(pipelineRef={"name": "a" * 100_000})))


def test_status_names_a_limited_number_of_problems() -> None:
    tolerations = [{"operator": "Wrong", "key": f"k {n}"} for n in range(2_000)]
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": {"nodeLabels": {f"k {n}": "v" for n in range(2_000)}, "tolerations": tolerations},
    }
    assert 0 < len(validate_kind(flavor, None)) <= STATUS_PROBLEMS_MAX
