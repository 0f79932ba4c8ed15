"""The API server's own history, and what it says about Jobs and PipelineRuns: whatever the streams claim.

The simulator writes each change to its journal before it answers. The file is followed, also when it is
written anew, so that nothing is missed.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from shared.contracts.kube.conditions import ADMITTED, FINISHED, find_condition, is_true
from shared.contracts.kube.names import QUEUE
from shared.contracts.kube.quantities import parse_quantity

BILLION = 10**9


class Journal:
    """Follows the file line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rest = b""

    def changes(self) -> list[dict[str, Any]]:
        """What was written since the last time, in order."""
        found: list[dict[str, Any]] = []
        if self._file is None:
            self._open()
        while self._file is not None:
            found += self._read(self._file)
            if os.fstat(self._file).st_ino == self._inode():
                return found
            found += self._read(self._file)  # It was replaced: all of the old one is read now.
            os.close(self._file)
            self._rest = b""
            self._open()
        return found

    def close(self) -> None:
        """Follow it no more."""
        if self._file is not None:
            os.close(self._file)

    def _open(self) -> None:
        self._file = os.open(self._path, os.O_RDONLY) if self._path.exists() else None

    def _inode(self) -> int:
        return self._path.stat().st_ino

    def _read(self, file: int) -> list[dict[str, Any]]:
        data = self._rest
        while chunk := os.read(file, 1 << 20):
            data += chunk
        *lines, self._rest = data.split(b"\n")
        return [orjson.loads(line) for line in lines if line]


@dataclass(slots=True)
class JobBook:
    """One job as the API server had it."""

    name: str
    queue: str
    amount: int
    starts: int = 0
    runs: bool = False
    finished: bool = False


@dataclass(slots=True)
class Books:
    """Follows jobs and Workloads; `problems` says what was wrong when."""

    quotas: dict[str, int]
    """LocalQueue to CPUs or PipelineRuns, in billionths."""

    jobs: dict[str, JobBook] = field(default_factory=dict)
    """By uid."""

    problems: list[str] = field(default_factory=list)
    _reserved: dict[str, dict[str, int]] = field(default_factory=dict)
    """ClusterQueue to the billionths of each resource that its status says to be reserved."""

    _version: int = 0
    _admitted: set[str] = field(default_factory=set)
    _over: set[str] = field(default_factory=set)
    """Uids of jobs whose Workload says that it is finished."""

    def enter(self, changes: list[dict[str, Any]]) -> None:
        """Enter changes, in their order; a change that is repeated by a rewritten file is entered once."""
        for change in changes:
            version = int(change["version"])
            if "resource" not in change or version <= self._version or change.get("gone"):
                continue
            self._version = version
            obj = change["object"]
            if obj.get("kind") == "Workload":
                self._on_workload(obj)
            elif obj.get("kind") == "ClusterQueue":
                self._on_queue(obj)
            elif obj.get("kind") in _LIVES:
                self._on_job(obj, _LIVES[obj["kind"]](obj))

    def open_jobs(self) -> list[str]:
        """Jobs that have not ended, or whose quota has not been given back."""
        return [
            f"{job.name} {'holds quota' if job.finished else 'has not finished'}"
            for uid, job in self.jobs.items()
            if not job.finished or uid not in self._over
        ]

    def still_reserved(self) -> list[str]:
        """What ClusterQueues say to be reserved. Nothing should be, once no job is open."""
        return [
            f"ClusterQueue {queue} has {amount / BILLION:g} {resource} reserved, and no job is left"
            for queue, amounts in self._reserved.items()
            for resource, amount in amounts.items()
            if amount
        ]

    def started(self, name: str) -> bool:
        """Whether a job was let go."""
        return any(job.starts for job in self.jobs.values() if job.name == name)

    def _on_workload(self, workload: dict[str, Any]) -> None:
        for owner in workload["metadata"].get("ownerReferences") or []:
            admitted = is_true(workload, ADMITTED)
            (self._admitted.add if admitted else self._admitted.discard)(owner["uid"])
            if is_true(workload, FINISHED):
                self._over.add(owner["uid"])

    def _on_queue(self, queue: dict[str, Any]) -> None:
        totals: dict[str, int] = {}
        for flavor in (queue.get("status") or {}).get("flavorsReservation") or []:
            for one in flavor.get("resources") or []:
                totals[one["name"]] = totals.get(one["name"], 0) + parse_quantity(one["total"])
        self._reserved[queue["metadata"]["name"]] = totals

    def _on_job(self, job: dict[str, Any], life: "_Life") -> None:
        metadata = job["metadata"]
        uid = metadata["uid"]
        book = self.jobs.get(uid)
        if book is None:
            queue = (metadata.get("labels") or {}).get(QUEUE, "")
            book = self.jobs[uid] = JobBook(metadata["name"], queue, life.amount)
        if life.failed:
            self.problems.append(f"{book.name} failed")
        book.finished = book.finished or life.ended
        if life.runs and not book.runs:
            self._on_start(uid, book)
        book.runs = life.runs

    def _on_start(self, uid: str, book: JobBook) -> None:
        book.starts += 1
        if book.starts > 1:
            self.problems.append(f"{book.name} is started {book.starts} times")
        if uid not in self._admitted:
            self.problems.append(f"{book.name} is started before its Workload says that it may run")
        used = book.amount + sum(
            one.amount for one in self.jobs.values() if one.runs and one.queue == book.queue
        )
        if used > self.quotas[book.queue]:
            self.problems.append(
                f"{book.name} starts while {used / BILLION:g} of {book.queue} run, which has "
                f"{self.quotas[book.queue] / BILLION:g}"
            )


@dataclass(frozen=True, slots=True)
class _Life:
    """What an object says of itself."""

    amount: int
    """What it takes of its queue's quota while it runs, in billionths."""

    released: bool
    ended: bool
    failed: bool

    @property
    def runs(self) -> bool:
        return self.released and not self.ended


def _life_of_job(job: dict[str, Any]) -> _Life:
    spec = job["spec"]
    containers = spec["template"]["spec"]["containers"]
    each = sum(parse_quantity(one["resources"]["requests"]["cpu"]) for one in containers)
    failed = is_true(job, "Failed")
    return _Life(
        amount=each * int(spec.get("parallelism") or 1),
        released=not spec.get("suspend"),
        ended=failed or is_true(job, "Complete"),
        failed=failed,
    )


def _life_of_run(run: dict[str, Any]) -> _Life:
    condition = find_condition(run, "Succeeded")
    succeeded = condition["status"] if condition else "Unknown"
    return _Life(
        amount=BILLION,
        released=run["spec"].get("status") != "PipelineRunPending",
        ended=succeeded in {"True", "False"},
        failed=succeeded == "False",
    )


_LIVES: Final[dict[str, Callable[[dict[str, Any]], _Life]]] = {
    "Job": _life_of_job,
    "PipelineRun": _life_of_run,
}
