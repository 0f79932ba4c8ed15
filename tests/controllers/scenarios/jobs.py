"""Jobs of a queue: their order, what they get, and what their tenants change."""

from collections.abc import Iterator
from typing import ClassVar

from tests.controllers.judge import ledger
from tests.controllers.judge.ledger import NEVER, lives, peak, releases
from tests.controllers.place import CLASS_LABEL, CLASSES, QUEUE_LABEL, condition
from tests.controllers.scenario import Scenario, row

CPUS = 4


class JobsOfOneQueue(Scenario):
    """Jobs of three classes wait behind one that fills the queue."""

    ORDER: ClassVar = ("high", "mid-a", "mid-b", "low-a", "low-b")

    async def play(self) -> None:
        """The last one comes first, and two pods fit at a time."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("fills", "hold", pods=CPUS, priority="high")
        await at.job_runs("fills", CPUS)
        for name in ("low-a", "low-b", "mid-a", "mid-b", "high"):
            await at.job(name, "sleep=1", pods=2, priority=name.partition("-")[0])
            await at.waits("Job", name)
        at.node.end(at.namespace, "fills")
        for name in ("fills", *self.ORDER):
            await at.job_ends(name)
        await at.until(at.is_free)

    @row
    def waiting_jobs_have_no_pods(self) -> Iterator[str]:
        for name in self.ORDER:
            [begin, *_] = releases(self.at.changes("Job", name)) or [NEVER]
            made = [
                pod[0].revision
                for key in self.at.history.keys("Pod", self.at.namespace)
                if key.name.startswith(f"{name}-") and (pod := self.at.history.of(*key))
            ]
            if min(made, default=NEVER) < begin:
                yield f"a pod of {name} was made before the Job was let go"

    @row
    def jobs_start_by_priority(self) -> Iterator[str]:
        groups = (("high", "mid-a"), ("mid-b", "low-a"))
        for earlier, later in groups:
            yield from ledger.in_order(self.at.history, self.at.namespace, "Job", (earlier, later))

    @row
    def jobs_of_a_queue_complete(self) -> Iterator[str]:
        for name in ("fills", *self.ORDER):
            if condition(self.at.job_now(name), "Complete") != "True":
                yield f"{name} is not complete"

    @row
    def workloads_of_jobs_that_ended_are_finished(self) -> Iterator[str]:
        for name in self.ORDER:
            [workload] = self.at.workloads(self.at.job_now(name)) or [None]
            if condition(workload, "Finished") != "True":
                yield f"the Workload of {name} is not finished"


class PreemptedJob(Scenario):
    """A Job is preempted, and its pods take a while to end."""

    async def play(self) -> None:
        """It starts again when the other one has ended."""
        at = self.at
        await at.queue({"cpu": CPUS}, preempts=True)
        await at.job(
            "low", "hold", "stay", pods=CPUS, priority="low", podReplacementPolicy="Failed"
        )
        await at.job_runs("low", CPUS)
        await at.job("high", "sleep=1", pods=CPUS, priority="high")
        await at.until(lambda: at.job_now("low")["spec"]["suspend"])
        await at.until(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in at.pods("low"))
        )
        at.node.let_go(at.namespace, "low")
        await at.job_ends("high")
        await at.job_runs("low", CPUS)
        at.node.end(at.namespace, "low")
        await at.job_ends("low")
        await at.until(at.is_free)

    @row
    def a_preemptor_starts_when_the_pods_of_its_victim_have_ended(self) -> Iterator[str]:
        [begin, *_] = releases(self.at.changes("Job", "high"))
        spans = sorted(lives(self.at.history, self.at.namespace, "low"), key=lambda one: one.begin)
        if begin < max(span.end for span in spans[:CPUS]):
            yield "it was let go while pods of its victim ran"

    @row
    def a_preempted_job_starts_again_and_completes(self) -> Iterator[str]:
        low = self.at.job_now("low")
        if condition(low, "Complete") != "True" or low["spec"]["parallelism"] != CPUS:
            yield f"it ended with {low['status'].get('conditions')}"

    @row
    def a_victim_is_stopped_once(self) -> Iterator[str]:
        if (starts := len(releases(self.at.changes("Job", "low")))) != 2:
            yield f"it was let go {starts} times"


class ChangedParallelism(Scenario):
    """The tenant raises the parallelism of a Job that runs."""

    async def play(self) -> None:
        """What it wants more is not there."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("grows", "sleep=2", pods=2, completions=8)
        await at.job_runs("grows", 2)
        await at.job("beside", "sleep=8", pods=2)
        await at.job_runs("beside", 2)
        await at.patch("Job", "grows", {"spec": {"parallelism": 4}})
        for name in ("grows", "beside"):
            await at.job_ends(name)
        await at.until(at.is_free)

    @row
    def a_job_that_grows_waits_for_what_it_asks_more(self) -> Iterator[str]:
        # The Job controller makes pods at once; they are stopped, and counted until then.
        last = releases(self.at.changes("Job", "grows"))[-1]
        spans = [one for one in lives(self.at.history, self.at.namespace) if one.begin > last]
        if len(releases(self.at.changes("Job", "grows"))) < 2:
            yield "it was not stopped"
        if peak(spans) > CPUS:
            yield f"{peak(spans)} CPUs ran at once"

    @row
    def a_job_that_grew_completes(self) -> Iterator[str]:
        if condition(self.at.job_now("grows"), "Complete") != "True":
            yield "it is not complete"


class PartlyAdmittedJob(Scenario):
    """A Job may start with fewer pods."""

    async def play(self) -> None:
        """It asks for twice what there is."""
        at = self.at
        await at.queue({"cpu": CPUS})
        annotations = {"kueue.x-k8s.io/job-min-parallelism": "2"}
        await at.job("partly", "sleep=2", pods=2 * CPUS, annotations=annotations)
        await at.job_ends("partly")
        await at.until(at.is_free)

    @row
    def a_partly_admitted_job_runs_as_many_pods_as_it_got(self) -> Iterator[str]:
        if (most := peak(lives(self.at.history, self.at.namespace, "partly"))) != CPUS:
            yield f"{most} pods ran at once"

    @row
    def a_partly_admitted_job_completes(self) -> Iterator[str]:
        if self.at.job_now("partly")["status"].get("succeeded") != 2 * CPUS:
            yield f"its status is {self.at.job_now('partly')['status']}"


class ReclaimedPods(Scenario):
    """Two indexes of a Job end early."""

    async def play(self) -> None:
        """What they leave is enough for another Job."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job(
            "long", "hold", "index-sleep=0:1", "index-sleep=1:1", pods=CPUS,
            completionMode="Indexed",
        )  # fmt: skip
        await at.job_runs("long", CPUS)
        await at.job("short", "sleep=1", pods=2)
        await at.job_ends("short")
        self.ran = at.running("long")
        at.node.end(at.namespace, "long")
        await at.job_ends("long")
        await at.until(at.is_free)

    @row
    def quota_of_pods_that_have_succeeded_is_given_to_others(self) -> Iterator[str]:
        if self.ran != 2:
            yield f"{self.ran} pods ran when the other Job had ended"
        if (most := peak(lives(self.at.history, self.at.namespace))) > CPUS:
            yield f"{most} CPUs ran at once"


class ResumedJob(Scenario):
    """A Job is preempted after some of its pods have succeeded."""

    async def play(self) -> None:
        """It does not name a least parallelism."""
        at = self.at
        await at.queue({"cpu": CPUS}, preempts=True)
        await at.job(
            "low", "hold", "index-sleep=0:1", "index-sleep=1:1", pods=CPUS, priority="low",
            completionMode="Indexed",
        )  # fmt: skip
        await at.until(lambda: (at.job_now("low").get("status") or {}).get("succeeded") == 2)
        await at.job("high", "sleep=1", pods=CPUS, priority="high")
        await at.job_ends("high")
        await at.job_runs("low", 2)
        self.parallelism = {one.obj["spec"]["parallelism"] for one in at.changes("Job", "low")}
        at.node.end(at.namespace, "low")
        await at.job_ends("low")
        await at.until(at.is_free)

    @row
    def a_resumed_job_keeps_its_parallelism(self) -> Iterator[str]:
        if self.parallelism != {CPUS}:
            yield f"its parallelism was {sorted(self.parallelism)}"

    @row
    def a_resumed_job_runs_only_what_is_left(self) -> Iterator[str]:
        if (count := sum(1 for _ in lives(self.at.history, self.at.namespace, "low"))) != 6:
            yield f"{count} pods of it ran, and 6 had to"


class MovedJob(Scenario):
    """A tenant gives Jobs another queue: one that waits, and one that runs."""

    async def play(self) -> None:
        """The other queue has room."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.queue({"cpu": CPUS}, "other")
        await at.job("runs", "hold", pods=CPUS)
        await at.job_runs("runs", CPUS)
        await at.job("moves", "sleep=1", pods=CPUS)
        await at.waits("Job", "moves")
        to_other = {"metadata": {"labels": {QUEUE_LABEL: "other"}}}
        await at.patch("Job", "moves", to_other)
        await at.job_ends("moves")
        self.answer = await at.refused("Job", "runs", to_other)
        at.node.end(at.namespace, "runs")
        await at.job_ends("runs")
        await at.until(lambda: at.is_free() and at.is_free("other"))

    @row
    def a_waiting_job_moves_to_another_queue(self) -> Iterator[str]:
        if condition(self.at.job_now("moves"), "Complete") != "True":
            yield "it is not complete"

    @row
    def a_running_job_keeps_its_queue(self) -> Iterator[str]:
        if not self.answer:
            yield "the change was not refused"


class RaisedPriority(Scenario):
    """A tenant gives a waiting Job a higher class."""

    async def play(self) -> None:
        """It was behind another one."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("fills", "hold", pods=CPUS)
        await at.job_runs("fills", CPUS)
        for name in ("first", "raised"):
            await at.job(name, "sleep=1", pods=CPUS, priority="low")
            await at.waits("Job", name)
        await at.patch("Job", "raised", {"metadata": {"labels": {CLASS_LABEL: "high"}}})
        [workload] = at.workloads(at.job_now("raised"))
        name = workload["metadata"]["name"]
        await at.until(lambda: at.workload_now(name)["spec"]["priority"] == CLASSES["high"])
        at.node.end(at.namespace, "fills")
        for name in ("fills", "raised", "first"):
            await at.job_ends(name)
        await at.until(at.is_free)

    @row
    def a_job_whose_class_is_raised_starts_before_others(self) -> Iterator[str]:
        yield from ledger.in_order(self.at.history, self.at.namespace, "Job", ("raised", "first"))


SCENARIOS = (
    JobsOfOneQueue,
    PreemptedJob,
    ChangedParallelism,
    PartlyAdmittedJob,
    ReclaimedPods,
    ResumedJob,
    MovedJob,
    RaisedPriority,
)
