"""Counting the specs of Kueue's suites, and the page about them."""

import re
from typing import Any

import pytest

from tests.kueue.record import PAGE, page, recorded
from tests.kueue.report import (
    Exclusion,
    Spec,
    differences,
    exclusions,
    explains,
    merged,
    results,
    skip_pattern,
    specs,
    summary,
)


def spec(text: str, state: str, *containers: str, message: str = "") -> dict[str, Any]:
    failure = {"Failure": {"Message": message}} if message else {}
    return {
        "LeafNodeType": "It", "LeafNodeText": text, "State": state,
        "ContainerHierarchyTexts": list(containers), **failure,
    }  # fmt: skip


REPORT: list[dict[str, Any]] = [
    {
        "SpecReports": [
            spec("admits", "passed", "Scheduler"),
            spec("admits", "passed", "Scheduler"),
            spec("evicts", "failed", "Scheduler", message="after 10.02s at 0xc0ff\nand so on"),
            spec("crashes", "panicked", "Scheduler"),
            spec("grows", "failed", "with ElasticJobsViaWorkloadSlices", message="no"),
            spec("another", "skipped", "Scheduler"),
            {"LeafNodeType": "BeforeSuite", "State": "passed"},
        ]
    },
    {"SpecReports": None},
]
REFUSED = Exclusion(heading="refused", reason="It is refused.", specs=("ElasticJobs",))


def test_each_spec_is_counted_once() -> None:
    found = specs(results(REPORT), [REFUSED])
    assert found == [
        Spec(name="Scheduler / admits", verdict="passed"),
        Spec(name="Scheduler / admits #2", verdict="passed"),
        Spec(name="Scheduler / evicts", verdict="failed", why="failed: after  at "),
        Spec(name="Scheduler / crashes", verdict="failed", why="panicked"),
        Spec(
            name="with ElasticJobsViaWorkloadSlices / grows",
            verdict="not applicable",
            why="refused",
        ),
        Spec(name="Scheduler / another", verdict="not run"),
    ]
    assert summary(found) == "kueue suites: 2 of 5 specs pass, 1 not applicable"


def test_later_run_of_some_specs_leaves_the_results_of_the_others() -> None:
    before = {"a": "passed", "b": "failed: x", "gone": "passed"}
    after = {"a": "not run", "b": "passed", "new": "not run"}
    assert merged(before, after) == {"a": "passed", "b": "passed", "new": "not run"}


def test_specs_that_do_not_count_are_not_run() -> None:
    pattern = skip_pattern([Exclusion(heading="h", reason="r", specs=("A / b (c)", "d"))])
    assert re.search(pattern, "x A b (c) y")
    assert not re.search(pattern, "A b c")


@pytest.mark.parametrize("found", [exclusions(), differences()], ids=["excluded", "explained"])
def test_lists_of_specs_have_reasons_and_names(found: tuple[Exclusion, ...]) -> None:
    assert len({one.heading for one in found}) == len(found)
    for one in found:
        assert one.reason.endswith(".")
        assert one.specs
        assert len(set(one.specs)) == len(one.specs)


def test_each_exclusion_is_of_a_recorded_spec() -> None:
    names = [name for found in recorded().values() for name in found]
    unknown = [
        part for one in exclusions() for part in one.specs if not any(part in n for n in names)
    ]
    assert unknown == []


def test_each_recorded_failure_is_explained_once() -> None:
    failed = [
        spec.name
        for found in recorded().values()
        for spec in specs(found, exclusions())
        if spec.verdict == "failed"
    ]
    by = {name: sum(explains(one, name) for one in differences()) for name in failed}
    assert {name: number for name, number in by.items() if number != 1} == {}
    outdated = [
        part for one in differences() for part in one.specs if not any(part in n for n in failed)
    ]
    assert outdated == []


def test_failure_is_shown_under_its_reason() -> None:
    record = {"s": {"a / b": "failed: x", "c": "failed: y"}}
    shown = page(record, (), (Exclusion(heading="why", reason="Because.", specs=("a / b",)),))
    explained, _, rest = shown.partition("### not explained yet")
    assert "### why\n\nBecause.\n\n- `s`: a / b: failed: x" in explained
    assert "- `s`: c: failed: y" in rest
    assert "a / b" not in rest


def test_page_tells_what_is_recorded() -> None:
    written = page(recorded(), exclusions(), differences())
    assert PAGE.read_text() == written, "make contracts writes it anew"


@pytest.mark.parametrize("part", ["`", "|", "<b>", "[a](b)"])
def test_names_of_specs_are_shown_as_they_are(part: str) -> None:
    shown = page({"s": {f"a {part}": "failed: x"}}, ())
    assert f"a {part}" not in shown
