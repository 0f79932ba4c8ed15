"""Over to Kueue's own manager, and back, while Jobs run and wait."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from tests.controllers.judge.ledger import lives, peak, releases
from tests.controllers.place import condition
from tests.controllers.scenario import Scenario, row

CPUS = 6
Starts = Callable[[], AbstractAsyncContextManager[Any]]


class OverAndBack(Scenario):
    """Three deciders, one after the other: we, Kueue with its reconciler of Jobs, and we again.

    `ours` and `kueue` start one of them; at most one works at a time.
    """

    ours: ClassVar[Starts]
    kueue: ClassVar[Starts]

    NAMES: ClassVar = ("ours", "first", "kueues", "second", "last")

    async def play(self) -> None:
        """Of each Job some part happens under another decider."""
        at = self.at
        async with type(self).ours():
            await at.queue({"cpu": CPUS})
            await at.job("ours", "hold", pods=2, priority="mid")
            await at.job_runs("ours", 2)
            await at.job("first", "hold", pods=CPUS - 2, priority="low")
            await at.job_runs("first", CPUS - 2)
            await at.job("kueues", "hold", pods=2, priority="high")
            await at.waits("Job", "kueues")
        async with type(self).kueue():
            at.node.end(at.namespace, "first")
            await at.job_ends("first")
            await at.job_runs("kueues", 2)
            await at.job("second", "hold", pods=2, priority="mid")
            await at.job_runs("second", 2)
            await at.job("last", "sleep=1", pods=CPUS, priority="low")
            await at.waits("Job", "last")
        async with type(self).ours():
            for name in ("ours", "kueues", "second"):
                at.node.end(at.namespace, name)
                await at.job_ends(name)
            await at.job_ends("last")
            await at.until(at.is_free)

    @row
    def a_job_that_runs_goes_on_under_every_decider(self) -> Iterator[str]:
        for name in self.NAMES:
            if (count := len(releases(self.at.changes("Job", name)))) != 1:
                yield f"{name} was let go {count} times"
            job = self.at.job_now(name)
            spans = list(lives(self.at.history, self.at.namespace, name))
            if len(spans) != job["spec"]["completions"]:
                yield f"{len(spans)} pods of {name} ran"

    @row
    def what_waited_under_one_decider_is_admitted_by_the_next(self) -> Iterator[str]:
        for name in self.NAMES:
            if condition(self.at.job_now(name), "Complete") != "True":
                yield f"{name} is not complete"

    @row
    def the_quota_is_never_exceeded_over_a_change_of_the_decider(self) -> Iterator[str]:
        if (most := peak(lives(self.at.history, self.at.namespace))) > CPUS:
            yield f"{most} CPUs ran at once"

    @row
    def each_decider_takes_up_the_workloads_of_the_other(self) -> Iterator[str]:
        for name in self.NAMES:
            uid = self.at.job_now(name)["metadata"]["uid"]
            found = {
                one.obj["metadata"]["uid"]
                for key in self.at.history.keys("Workload", self.at.namespace)
                for one in self.at.history.of(*key)
                if any(o["uid"] == uid for o in one.obj["metadata"].get("ownerReferences") or ())
            }
            if len(found) != 1:
                yield f"{name} had {len(found)} Workloads"

    @row
    def every_workload_is_finished_after_a_change_of_the_decider(self) -> Iterator[str]:
        for workload in self.at.history.all_now("Workload", self.at.namespace):
            if condition(workload, "Finished") != "True":
                yield f"{workload['metadata']['name']} is not finished"
