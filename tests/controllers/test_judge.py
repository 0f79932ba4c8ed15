"""The judge of `make test-controllers` finds what is wrong in a history, and the table of rows is whole."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.controllers import programs
from tests.controllers.__main__ import main
from tests.controllers.judge import ledger
from tests.controllers.judge.history import History
from tests.controllers.run import ALL, chosen
from tests.controllers.servers.node import orders

QUEUED = {"kueue.x-k8s.io/queue-name": "main"}


class Writer:
    """Writes what an API server would have said."""

    def __init__(self) -> None:
        self.history = History()
        self._revision = 0

    def _write(self, kind: str, name: str, *, gone: bool = False, **obj: Any) -> None:
        self._revision += 1
        metadata = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": str(self._revision),
            **obj.pop("metadata", {}),
        }
        self.history.enter(kind, {"metadata": metadata, **obj}, gone=gone)

    def job(self, name: str, *, suspend: bool, **metadata: Any) -> None:
        metadata = {"labels": QUEUED, **metadata}
        self._write("Job", name, metadata=metadata, spec={"suspend": suspend})

    def workload(self, job: str, *, admitted: bool) -> None:
        conditions = [{"type": "Admitted", "status": str(admitted)}]
        owners = [{"uid": f"uid-{job}", "name": job}]
        metadata = {"ownerReferences": owners}
        self._write("Workload", f"of-{job}", metadata=metadata, status={"conditions": conditions})

    def pod(self, job: str, phase: str, *, gone: bool = False) -> None:
        requests = {"requests": {"cpu": "1"}}
        self._write(
            "Pod", f"{job}-pod", gone=gone, metadata={"labels": {"job-name": job}},
            spec={"containers": [{"resources": requests}]}, status={"phase": phase},
        )  # fmt: skip

    def starts(self, job: str) -> None:
        """As it has to be."""
        self.job(job, suspend=True)
        self.workload(job, admitted=True)
        self.job(job, suspend=False)
        self.pod(job, "Running")


def lets_go(writer: Writer) -> Iterator[str]:
    return ledger.unadmitted_starts(writer.history, "ns", "Job")


def started_without_leave(writer: Writer) -> Iterator[str]:
    writer.job("a", suspend=True)
    writer.job("a", suspend=False)
    writer.workload("a", admitted=True)
    return lets_go(writer)


def created_running(writer: Writer) -> Iterator[str]:
    writer.job("a", suspend=False)
    return lets_go(writer)


def started_after_its_leave_was_taken_back(writer: Writer) -> Iterator[str]:
    writer.job("a", suspend=True)
    writer.workload("a", admitted=True)
    writer.workload("a", admitted=False)
    writer.job("a", suspend=False)
    return lets_go(writer)


def started_with_leave(writer: Writer) -> Iterator[str]:
    writer.starts("a")
    return lets_go(writer)


def next_started_while_pods_ran(writer: Writer) -> Iterator[str]:
    writer.starts("a")
    writer.starts("b")
    writer.pod("a", "Succeeded")
    return ledger.released_after(writer.history, "ns", "Job", "b", "a")


def next_started_when_pods_were_gone(writer: Writer) -> Iterator[str]:
    writer.starts("a")
    writer.pod("a", "Running", gone=True)
    writer.starts("b")
    return ledger.released_after(writer.history, "ns", "Job", "b", "a")


def next_never_started(writer: Writer) -> Iterator[str]:
    writer.starts("a")
    writer.pod("a", "Running", gone=True)
    return ledger.in_order(writer.history, "ns", "Job", ("a", "b"))


def started_in_another_order(writer: Writer) -> Iterator[str]:
    writer.starts("b")
    writer.starts("a")
    return ledger.in_order(writer.history, "ns", "Job", ("a", "b"))


WRONG: dict[str, tuple[Callable[[Writer], Iterator[str]], list[str]]] = {
    "started without leave": (
        started_without_leave, ["Job a was let go before its Workload was admitted"],
    ),
    "created running": (created_running, ["Job a was let go before its Workload was admitted"]),
    "leave was taken back": (
        started_after_its_leave_was_taken_back,
        ["Job a was let go before its Workload was admitted"],
    ),
    "started with leave": (started_with_leave, []),
    "too early": (next_started_while_pods_ran, ["b was let go while pods of a ran"]),
    "in time": (next_started_when_pods_were_gone, []),
    "never": (next_never_started, ["b was never let go"]),
    "another order": (started_in_another_order, ["b was let go before a"]),
}  # fmt: skip


@pytest.mark.parametrize(("tell", "problems"), WRONG.values(), ids=WRONG)
def test_history_says_what_is_wrong(
    tell: Callable[[Writer], Iterator[str]], problems: list[str]
) -> None:
    assert list(tell(Writer())) == problems


def test_peak_counts_what_runs_at_once_and_not_what_follows() -> None:
    writer = Writer()
    for name in "ab":
        writer.starts(name)
    writer.pod("a", "Failed")
    writer.starts("c")
    assert ledger.peak(ledger.lives(writer.history, "ns")) == 2
    assert ledger.peak(ledger.lives(writer.history, "ns", "a")) == 1


def test_releases_of_a_second_job_of_the_same_name_count_as_its_own() -> None:
    writer = Writer()
    writer.starts("a")
    writer.job("a", suspend=True, uid="another")
    writer.job("a", suspend=False, uid="another")
    assert len(ledger.releases(writer.history.of("Job", "ns", "a"))) == 2


def test_older_and_repeated_changes_are_not_entered() -> None:
    writer = Writer()
    writer.starts("a")
    count = len(writer.history.changes)
    for change in list(writer.history.changes):
        writer.history.enter(change.kind, change.obj)
    assert len(writer.history.changes) == count


def test_list_ends_what_it_lacks() -> None:
    writer = Writer()
    writer.starts("a")
    writer.history.relist("Job", [], "99")
    assert writer.history.now("Job", "ns", "a") is None
    assert writer.history.of("Job", "ns", "a")[-1].gone


@pytest.mark.parametrize(
    ("arguments", "retry", "fails", "seconds"),
    [
        (["sleep=3"], "", False, 3.0),
        (["-post_file", "/x", "--", "sleep=1", "fail"], "", True, 1.0),
        (["fail-first=2"], "-retry1", True, 0.0),
        (["fail-first=2"], "-retry2", False, 0.0),
        (["hold", "index-sleep=0:4"], "", False, 4.0),
    ],
)
def test_node_reads_what_a_container_does(
    arguments: list[str], retry: str, fails: bool, seconds: float
) -> None:
    annotations = {"batch.kubernetes.io/job-completion-index": "0"}
    pod = {
        "metadata": {"name": f"a-pod{retry}", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "args": arguments}]},
    }
    told = orders(pod)
    assert (told.fails, told.seconds, told.holds) == (fails, seconds, False)


def test_table_has_at_least_sixty_rows_each_with_a_sentence_of_its_own() -> None:
    rows = [(one.namespace(), sentence) for one in ALL for sentence in one.rows()]
    assert len(rows) == len(set(rows)) >= 60
    assert len({one.namespace() for one in ALL}) == len(ALL)
    assert all(one.rows() for one in ALL)
    assert chosen("") == list(ALL)


def test_without_the_programs_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("KUBEBUILDER_ASSETS", "CONTROLLERS", *programs.TREES):
        monkeypatch.delenv(variable, raising=False)
    assert main() == 0
    said = capsys.readouterr().out
    assert said.startswith("controllers: not run: KUBEBUILDER_ASSETS has to name a folder with")
    assert "TEKTON has to name a tree" in said
