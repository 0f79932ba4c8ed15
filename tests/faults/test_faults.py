"""The judge of `make faults` finds what is wrong, and the catalogue of faults names tests that exist."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.reference.faults import CATALOGUE, FAULTS_PAGE, faults_page
from tests.faults.books import BILLION, Books
from tests.faults.table import faults
from tests.faults.tally import MADE_MIN, Tally

ROOT = Path(__file__).parents[2]


class History:
    """Writes what an API server would have written."""

    def __init__(self) -> None:
        self.books = Books({"q": 2 * BILLION})
        self._version = 0

    def job(self, name: str, *, suspend: bool = True, ended: bool = False) -> None:
        containers = [{"resources": {"requests": {"cpu": "1"}}}]
        self._write(
            "Job",
            {
                "metadata": {
                    "name": name, "uid": name, "labels": {"kueue.x-k8s.io/queue-name": "q"},
                },
                "spec": {"suspend": suspend, "template": {"spec": {"containers": containers}}},
                "status": {"conditions": [{"type": "Complete", "status": str(ended)}]},
            },
        )  # fmt: skip

    def run(self, name: str, *, pending: bool = False, succeeded: str = "Unknown") -> None:
        self._write(
            "PipelineRun",
            {
                "metadata": {
                    "name": name, "uid": name, "labels": {"kueue.x-k8s.io/queue-name": "q"},
                },
                "spec": {"status": "PipelineRunPending"} if pending else {},
                "status": {"conditions": [{"type": "Succeeded", "status": succeeded}]},
            },
        )  # fmt: skip

    def workload(self, name: str, *conditions: str) -> None:
        metadata = {"name": f"job-{name}", "ownerReferences": [{"uid": name}]}
        found = [{"type": one, "status": "True"} for one in conditions]
        self._write("Workload", {"metadata": metadata, "status": {"conditions": found}})

    def queue(self, reserved: str) -> None:
        resources = [{"name": "cpu", "total": reserved}]
        status = {"flavorsReservation": [{"name": "default", "resources": resources}]}
        self._write("ClusterQueue", {"metadata": {"name": "q"}, "status": status})

    def _write(self, kind: str, obj: dict[str, Any]) -> None:
        self._version += 1
        self.books.enter(
            [{"version": self._version, "resource": kind, "object": {"kind": kind, **obj}}]
        )

    def runs(self, name: str) -> None:
        self.job(name)
        self.workload(name, "Admitted")
        self.job(name, suspend=False)

    def ends(self, name: str) -> None:
        self.job(name, suspend=False, ended=True)
        self.workload(name, "Finished")


def started_twice(history: History) -> None:
    history.runs("a")
    history.runs("a")


def started_before_its_workload_says_so(history: History) -> None:
    history.job("a")
    history.job("a", suspend=False)


def more_than_the_quota(history: History) -> None:
    for name in "abc":
        history.runs(name)


def more_runs_than_the_quota(history: History) -> None:
    for name in "abc":
        history.run(name, pending=True)
        history.workload(name, "Admitted")
        history.run(name)


def run_that_fails(history: History) -> None:
    history.workload("a", "Admitted")
    history.run("a")
    history.run("a", succeeded="False")


def runs_one_after_another(history: History) -> None:
    for name in "abc":
        history.workload(name, "Admitted")
        history.run(name)
        history.run(name, succeeded="True")


def within_the_quota(history: History) -> None:
    for name in "ab":
        history.runs(name)
    history.ends("a")
    history.runs("c")


WRONG: dict[str, tuple[Callable[[History], None], list[str]]] = {
    "started twice": (started_twice, ["a is started 2 times"]),
    "started without leave": (
        started_before_its_workload_says_so,
        ["a is started before its Workload says that it may run"],
    ),
    "more than the quota": (
        more_than_the_quota, ["c starts while 3 of q run, which has 2"],
    ),
    "more PipelineRuns than the quota": (
        more_runs_than_the_quota, ["c starts while 3 of q run, which has 2"],
    ),
    "a PipelineRun fails": (run_that_fails, ["a failed"]),
    "PipelineRuns one after another": (runs_one_after_another, []),
    "all is well": (within_the_quota, []),
}  # fmt: skip


@pytest.mark.parametrize(("tell", "problems"), WRONG.values(), ids=WRONG)
def test_books_of_the_api_server_say_what_is_wrong(
    tell: Callable[[History], None], problems: list[str]
) -> None:
    history = History()
    tell(history)
    assert history.books.problems == problems


def test_job_is_open_until_it_ended_and_gave_its_quota_back() -> None:
    history = History()
    history.runs("a")
    assert history.books.open_jobs() == ["a has not finished"]
    history.job("a", suspend=False, ended=True)
    assert history.books.open_jobs() == ["a holds quota"]
    history.ends("a")
    assert history.books.open_jobs() == []


def test_whole_run_has_a_hundred_faults() -> None:
    assert sum(row.times for row in faults()) >= MADE_MIN


def test_fault_that_cannot_be_made_is_told_with_its_reason_and_not_counted_as_survived() -> None:
    tally = Tally(demanded=2, survived=2, recoveries=[1.0, 3.0])
    tally.left_out += [("a", "no mount"), ("b", "no library"), ("c", "no mount"), ("a", "no mount")]
    *_, left_out, last = tally.lines()
    assert left_out == "not possible here: 4 (no mount: a, c; no library: b)"
    assert last == "faults: 2 of 2 survived"
    assert tally.ok


RUNS: dict[str, tuple[Tally, bool, list[str]]] = {
    "fewer were made than demanded": (
        Tally(demanded=3, survived=2, recoveries=[1.0, 1.0]),
        False,
        ["too few: 2 made, 3 demanded", "faults: 2 of 2 survived"],
    ),
    "none was made": (
        Tally(demanded=1), False, ["too few: 0 made, 1 demanded", "faults: 0 of 0 survived"]
    ),
    "one of those that were made is not survived": (
        Tally(demanded=2, survived=1, recoveries=[1.0, 1.0]), False, ["faults: 1 of 2 survived"]
    ),
    "recovery takes too long": (
        Tally(demanded=1, survived=1, recoveries=[21.0]),
        False,
        ["recovery takes too long", "faults: 1 of 1 survived"],
    ),
    "as many as demanded are survived": (
        Tally(demanded=1, survived=1, recoveries=[1.0]), True, ["faults: 1 of 1 survived"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tally", "ok", "lines"), RUNS.values(), ids=RUNS)
def test_run_says_what_it_lacks(tally: Tally, ok: bool, lines: list[str]) -> None:
    assert tally.ok is ok
    assert [one for one in tally.lines() if not one.startswith("recovery: ")] == lines


def test_catalogue_names_every_number_with_rows_and_tests_that_exist() -> None:
    rows = {row.name for row in faults()}
    assert [one.number for one in CATALOGUE] == [f"F{number:02}" for number in range(1, 35)]
    for one in CATALOGUE:
        assert one.rows or one.real or one.simulated, one.number
        assert set(one.rows) <= rows, one.number
        for test in (*one.real, *one.simulated):
            path, _, name = test.partition("::")
            tree = ast.parse((ROOT / path).read_text())
            assert any(getattr(node, "name", "") == name for node in ast.walk(tree)), test


def test_page_of_faults_is_generated() -> None:
    assert (ROOT / "docs" / FAULTS_PAGE).read_text() == faults_page()


def test_quota_that_stays_reserved_behind_the_last_job_is_found() -> None:
    history = History()
    history.queue("1500m")
    [found] = history.books.still_reserved()
    assert found == "ClusterQueue q has 1.5 cpu reserved, and no job is left"
    history.queue("0")
    assert history.books.still_reserved() == []
