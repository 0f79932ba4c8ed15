"""How Jobs end: by themselves, by a deadline or a policy, and by deletion in every way."""

from collections.abc import Iterator
from typing import ClassVar

from tests.controllers.judge import ledger
from tests.controllers.judge.ledger import NEVER, first, lives, releases
from tests.controllers.place import condition, reason
from tests.controllers.scenario import Scenario, row
from tests.controllers.servers.client import Json

CPUS = 4


class FailingJob(Scenario):
    """A Job fails twice, and then for good."""

    async def play(self) -> None:
        """Another one waits meanwhile."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("fails", "sleep=1", "fail", backoffLimit=1)
        await at.job_runs("fails")
        await at.job("next", "sleep=1", pods=CPUS)
        await at.job_ends("fails")
        await at.job_ends("next")
        await at.until(at.is_free)

    @row
    def a_job_keeps_its_quota_while_it_tries_again(self) -> Iterator[str]:
        failed = first(
            self.at.changes("Job", "fails"), lambda job: condition(job, "Failed") == "True"
        )
        if releases(self.at.changes("Job", "next"))[0] < failed:
            yield "another one was let go before the Job had failed for good"
        if len(list(lives(self.at.history, self.at.namespace, "fails"))) != 2:
            yield "it was not tried twice"

    @row
    def a_job_that_fails_for_good_gives_its_quota_back(self) -> Iterator[str]:
        if condition(self.at.job_now("next"), "Complete") != "True":
            yield "the next one is not complete"


class JobWithDeadline(Scenario):
    """A Job with `activeDeadlineSeconds` waits longer than these."""

    SECONDS: ClassVar = 5

    async def play(self) -> None:
        """Its pods take a while to end, and another one waits for them."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("fills", f"sleep={self.SECONDS + 3}", pods=CPUS)
        await at.job_runs("fills", CPUS)
        seconds = self.SECONDS
        await at.job(
            "late", "hold", "term=4", pods=CPUS, priority="high", activeDeadlineSeconds=seconds
        )
        await at.waits("Job", "late")
        await at.job("next", "sleep=1", pods=CPUS, priority="low")
        for name in ("fills", "late", "next"):
            await at.job_ends(name)
        await at.until(at.is_free)

    @row
    def a_deadline_counts_from_the_start_of_a_job(self) -> Iterator[str]:
        late = self.at.job_now("late")
        if reason(late, "Failed") != "DeadlineExceeded":
            yield f"it failed by {reason(late, 'Failed')}"
        if not list(lives(self.at.history, self.at.namespace, "late")):
            yield "it never ran"

    @row
    def quota_of_a_job_past_its_deadline_is_free_when_its_pods_have_ended(self) -> Iterator[str]:
        yield from ledger.released_after(self.at.history, self.at.namespace, "Job", "next", "late")


class IndexedJob(Scenario):
    """Jobs with indexes: one index fails for good, and one policy says when all is done."""

    async def play(self) -> None:
        """One after the other fits."""
        at = self.at
        await at.queue({"cpu": CPUS})
        indexed: dict[str, Json] = {"completionMode": "Indexed", "completions": 4}
        await at.job("fails", "sleep=1", "fail-index=1", pods=2, backoffLimitPerIndex=0, **indexed)
        rules = {"rules": [{"succeededIndexes": "0"}]}
        await at.job("enough", "hold", "index-sleep=0:1", pods=2, successPolicy=rules, **indexed)
        for name in ("fails", "enough"):
            await at.job_ends(name)
        await at.until(at.is_free)

    @row
    def an_indexed_job_ends_as_its_controller_says(self) -> Iterator[str]:
        status = self.at.job_now("fails")["status"]
        found = (status.get("failedIndexes"), status.get("completedIndexes"))
        if found != ("1", "0,2,3"):
            yield f"failed and completed indexes are {found}"

    @row
    def a_success_policy_ends_a_job_and_its_quota(self) -> Iterator[str]:
        if reason(self.at.job_now("enough"), "SuccessCriteriaMet") != "SuccessPolicy":
            yield "the policy did not end it"
        if not self.at.is_free():
            yield f"the queue counts {self.at.usage()}"


class JobWithTimeToLive(Scenario):
    """A Job is deleted by its controller some seconds after its end."""

    async def play(self) -> None:
        """Its Workload goes with it."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("brief", "sleep=1", ttlSecondsAfterFinished=2)
        await at.until(lambda: at.changes("Job", "brief") and not at.job_now("brief"))
        await at.until(lambda: not any(at.history.all_now("Workload", at.namespace)))
        await at.until(at.is_free)

    @row
    def a_job_that_is_cleaned_up_has_completed_and_leaves_no_workload(self) -> Iterator[str]:
        changes = self.at.changes("Job", "brief")
        if first(changes, lambda job: condition(job, "Complete") == "True") == NEVER:
            yield "it was deleted before it was complete"


class DeletedJob(Scenario):
    """A running Job is deleted, and its pods stay for a while."""

    async def play(self) -> None:
        """Something that happens later has happened before the pods may end."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.queue({"cpu": 1}, "other")
        await at.job("goes", "hold", "stay", pods=CPUS)
        await at.job_runs("goes", CPUS)
        await at.job("next", "sleep=1", pods=CPUS)
        await at.waits("Job", "next")
        await at.delete("Job", "goes", self.variant)
        await at.until(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in at.pods("goes"))
        )
        for name in ("one", "two"):
            await at.job(name, "sleep=1", queue="other")
            await at.job_ends(name)
        at.node.let_go(at.namespace, "goes")
        await at.job_ends("next")
        await at.until(lambda: at.is_free() and not at.pods("goes"))
        await at.until(lambda: at.history.now("Job", at.namespace, "goes") is None)

    @row
    def quota_of_a_deleted_job_is_free_when_its_pods_have_ended(self) -> Iterator[str]:
        yield from ledger.released_after(self.at.history, self.at.namespace, "Job", "next", "goes")

    @row
    def no_workload_of_a_deleted_job_is_left(self) -> Iterator[str]:
        for workload in self.at.history.all_now("Workload", self.at.namespace):
            if any(one["name"] == "goes" for one in workload["metadata"]["ownerReferences"]):
                yield f"{workload['metadata']['name']} is left"


class JobDeletedInTheBackground(DeletedJob):
    """Its pods are deleted after it."""

    variant = "Background"


class JobDeletedInTheForeground(DeletedJob):
    """It stays until its pods are gone."""

    variant = "Foreground"


class OrphanedJob(Scenario):
    """Jobs are deleted without what they own: a running one, and one that waits."""

    async def play(self) -> None:
        """The pods of the running one run on."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("runs", "hold", pods=CPUS)
        await at.job_runs("runs", CPUS)
        await at.job("waits", "sleep=1", pods=CPUS)
        await at.waits("Job", "waits")
        await at.job("next", "sleep=1", pods=CPUS)
        await at.waits("Job", "next")
        self.uids = {name: at.job_now(name)["metadata"]["uid"] for name in ("runs", "waits")}
        self.pods = [pod["metadata"]["name"] for pod in at.pods("runs")]
        await at.delete("Job", "waits", "Orphan")
        await at.delete("Job", "runs", "Orphan")
        await at.until(lambda: not at.job_now("runs") and not at.job_now("waits"))
        await at.until(lambda: at.changes("Job", "next") and self._left_alone("waits"))
        at.node.end(at.namespace, "runs")
        await at.job_ends("next")
        await at.until(at.is_free)

    def _left_alone(self, name: str) -> bool:
        """Whether no Workload of a Job that is gone says that it may still get quota."""
        found = [
            workload
            for workload in self.at.history.all_now("Workload", self.at.namespace)
            if (workload["metadata"].get("labels") or {}).get("kueue.x-k8s.io/job-uid")
            == self.uids[name]
        ]
        return all(condition(one, "Finished") == "True" for one in found)

    @row
    def pods_of_an_orphaned_job_keep_its_quota_until_they_end(self) -> Iterator[str]:
        yield from ledger.released_after(self.at.history, self.at.namespace, "Job", "next", "runs")
        if sum(1 for _ in lives(self.at.history, self.at.namespace, "runs")) != CPUS:
            yield "its pods did not run once each"

    @row
    def workload_of_an_orphaned_job_is_finished(self) -> Iterator[str]:
        for name in self.uids:
            if not self._left_alone(name):
                yield f"the Workload of {name} is not finished"

    @row
    def nobody_admits_a_job_that_is_gone(self) -> Iterator[str]:
        for key in self.at.history.keys("Workload", self.at.namespace):
            changes = self.at.history.of(*key)
            labels = changes[0].obj["metadata"].get("labels") or {}
            if labels.get("kueue.x-k8s.io/job-uid") == self.uids["waits"] and any(
                condition(one.obj, "QuotaReserved") == "True" for one in changes
            ):
                yield f"{key.name} got quota"


class DeletedWhileItWaits(Scenario):
    """Waiting Jobs are deleted in three ways."""

    WAYS: ClassVar = ("Background", "Foreground", "Orphan")

    async def play(self) -> None:
        """Nothing is left of them."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("fills", "hold", pods=CPUS)
        await at.job_runs("fills", CPUS)
        for way in self.WAYS:
            await at.job(way.lower(), "sleep=1", pods=CPUS)
            await at.waits("Job", way.lower())
            await at.delete("Job", way.lower(), way)
        await at.until(lambda: not any(at.job_now(way.lower()) for way in self.WAYS))
        at.node.end(at.namespace, "fills")
        await at.job_ends("fills")
        await at.until(at.is_free)

    @row
    def a_waiting_job_that_is_deleted_never_starts(self) -> Iterator[str]:
        for way in self.WAYS:
            if releases(self.at.changes("Job", way.lower())):
                yield f"the one deleted in the way {way} was let go"

    @row
    def queues_count_no_jobs_that_are_gone(self) -> Iterator[str]:
        if not self.at.is_free():
            yield f"the queue counts {self.at.usage()}"


class SameNameAgain(Scenario):
    """A running Job is deleted, and created again at once."""

    async def play(self) -> None:
        """Its pods are still there."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("again", "hold", "stay", pods=CPUS)
        await at.job_runs("again", CPUS)
        self.uid = at.job_now("again")["metadata"]["uid"]
        await at.delete("Job", "again")
        await at.until(lambda: not at.job_now("again"))
        await at.job("again", "sleep=1", pods=CPUS)
        await at.until(
            lambda: all("deletionTimestamp" in pod["metadata"] for pod in at.pods("again"))
        )
        at.node.let_go(at.namespace, "again")
        await at.job_ends("again")
        await at.until(at.is_free)

    @row
    def a_job_of_the_same_name_waits_for_the_pods_of_the_one_before(self) -> Iterator[str]:
        changes = [
            one for one in self.at.changes("Job", "again") if one.obj["metadata"]["uid"] != self.uid
        ]
        spans = sorted(
            lives(self.at.history, self.at.namespace, "again"), key=lambda one: one.begin
        )
        if releases(changes)[0] < max(span.end for span in spans[:CPUS]):
            yield "it was let go while pods of the one before ran"

    @row
    def a_job_of_the_same_name_completes(self) -> Iterator[str]:
        if condition(self.at.job_now("again"), "Complete") != "True":
            yield "it is not complete"


SCENARIOS = (
    FailingJob,
    JobWithDeadline,
    IndexedJob,
    JobWithTimeToLive,
    JobDeletedInTheBackground,
    JobDeletedInTheForeground,
    OrphanedJob,
    DeletedWhileItWaits,
    SameNameAgain,
)
