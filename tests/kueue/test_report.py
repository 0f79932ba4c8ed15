"""Counting the specs of Kueue's suites."""

from typing import Any

from tests.kueue.report import Spec, exclusions, specs, summary


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
            spec("evicts", "failed", "Scheduler", message="Timed out\nafter 10 s"),
            spec("crashes", "panicked", "Scheduler"),
            spec("grows", "failed", "with ElasticJobsViaWorkloadSlices", message="no"),
            spec("another", "skipped", "Scheduler"),
            {"LeafNodeType": "BeforeSuite", "State": "passed"},
        ]
    },
    {"SpecReports": None},
]


def test_each_spec_that_ran_is_counted_once() -> None:
    found = specs(REPORT, {"refused": ["ElasticJobs"]})
    assert found == [
        Spec(name="Scheduler / admits", verdict="passed"),
        Spec(name="Scheduler / evicts", verdict="failed", why="Timed out"),
        Spec(name="Scheduler / crashes", verdict="failed", why="panicked"),
        Spec(
            name="with ElasticJobsViaWorkloadSlices / grows",
            verdict="not applicable",
            why="refused",
        ),
    ]
    assert summary(found) == "kueue suites: 1 of 3 specs pass, 1 not applicable"


def test_exclusions_have_headings_and_names() -> None:
    assert set(exclusions()) == {"process", "refused"}
    assert all(part for parts in exclusions().values() for part in parts)
