"""What else happens to PipelineRuns: tenants and operators act on them."""

from collections.abc import Iterator
from typing import ClassVar

from tests.controllers.judge import ledger
from tests.controllers.judge.ledger import NEVER, peak, releases, runs
from tests.controllers.place import PENDING, SLOTS, condition, ended, held, task
from tests.controllers.scenario import Scenario, row
from tests.controllers.scenarios.runs import succeeded, task_runs
from tests.controllers.servers.client import Json, RequestError


class DeletedRun(Scenario):
    """A running PipelineRun is deleted, and its pods stay for a while."""

    async def play(self) -> None:
        """Something that happens later has happened before the pods may end."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.queue({"cpu": 1}, "other")
        await at.run("goes", task("a", "hold", "stay"))
        await at.run_runs("goes")
        await at.run("next", task("a", "sleep=1"))
        await at.waits("PipelineRun", "next")
        await at.delete("PipelineRun", "goes", self.variant)
        orphaned = self.variant == "Orphan"
        await at.until(
            lambda: (
                orphaned or all("deletionTimestamp" in pod["metadata"] for pod in at.pods("goes"))
            )
        )
        for name in ("one", "two"):
            await at.job(name, "sleep=1", queue="other")
            await at.job_ends(name)
        at.node.end(at.namespace, "goes")
        at.node.let_go(at.namespace, "goes")
        await at.run_ends("next")
        await at.until(lambda: at.is_free() and not at.run_now("goes"))

    @row
    def slot_of_a_deleted_run_is_free_when_its_pods_have_ended(self) -> Iterator[str]:
        yield from ledger.released_after(
            self.at.history, self.at.namespace, "PipelineRun", "next", "goes"
        )

    @row
    def nothing_of_a_deleted_run_holds_quota(self) -> Iterator[str]:
        yield from succeeded(self, "next")
        for workload in self.at.history.all_now("Workload", self.at.namespace):
            owners = workload["metadata"].get("ownerReferences") or []
            is_left = not owners or any(one["name"] == "goes" for one in owners)
            if is_left and condition(workload, "Finished") != "True":
                yield f"{workload['metadata']['name']} is left"


class RunDeletedInTheBackground(DeletedRun):
    """Its TaskRuns are deleted after it."""

    variant = "Background"


class RunDeletedInTheForeground(DeletedRun):
    """It stays until its TaskRuns are gone."""

    variant = "Foreground"


class OrphanedRun(DeletedRun):
    """Its TaskRuns run on."""

    variant = "Orphan"


class EndedWhileItWaits(Scenario):
    """A waiting PipelineRun is cancelled, and one is deleted."""

    async def play(self) -> None:
        """A third one starts after what runs."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("fills", task("a", "hold"))
        await at.run_runs("fills")
        for name in ("cancelled", "deleted", "next"):
            await at.run(name, task("a", "sleep=1"))
            await at.waits("PipelineRun", name)
        await at.patch("PipelineRun", "cancelled", {"spec": {"status": "Cancelled"}})
        await at.delete("PipelineRun", "deleted")
        await at.run_ends("cancelled")
        at.node.end(at.namespace, "fills")
        for name in ("fills", "next"):
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_waiting_run_can_be_cancelled(self) -> Iterator[str]:
        if condition(self.at.run_now("cancelled"), "Succeeded") != "False":
            yield "it has not ended"
        if any(True for _ in task_runs(self, "cancelled")):
            yield "it has TaskRuns"

    @row
    def a_waiting_run_that_is_deleted_never_starts(self) -> Iterator[str]:
        if releases(self.at.changes("PipelineRun", "deleted")):
            yield "it was let go"
        yield from succeeded(self, "next")


class RunStartedByHand(Scenario):
    """A tenant takes `PipelineRunPending` off a run that waits."""

    CHANGES: ClassVar[dict[str, Json]] = {
        "the status is taken away": [{"op": "remove", "path": "/spec/status"}],
        "the status is emptied": {"spec": {"status": ""}},
    }

    async def play(self) -> None:
        """In two ways."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("fills", task("a", "hold"))
        await at.run_runs("fills")
        await at.run("waits", task("a", "sleep=1"))
        await at.waits("PipelineRun", "waits")
        self.answers = {
            words: await at.refused("PipelineRun", "waits", patch)
            for words, patch in self.CHANGES.items()
        }
        at.node.end(at.namespace, "fills")
        await at.run_ends("waits")
        await at.until(at.is_free)

    @row
    def a_waiting_run_cannot_be_started_by_hand(self) -> Iterator[str]:
        for words, answer in self.answers.items():
            if not answer:
                yield f"it was not refused that {words}"
        if (most := peak(runs(self.at.history, self.at.namespace))) > 1:
            yield f"{most} ran at once"


class PausedByItsUser(Scenario):
    """A tenant creates a run that is pending, and starts it later."""

    async def play(self) -> None:
        """The queue is free at first, and full when the pause ends."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("paused", task("a", "sleep=1"), status=PENDING)
        await at.run("other", task("a", "hold"))
        await at.run_runs("other")
        self.still_paused = held(at.run_now("paused"))
        await at.patch("PipelineRun", "paused", [{"op": "remove", "path": "/spec/status"}])
        await at.run("after", task("a", "sleep=1"), priority="high")
        await at.waits("PipelineRun", "after")
        at.node.end(at.namespace, "other")
        for name in ("other", "after", "paused"):
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_pause_of_the_user_s_own_is_respected(self) -> Iterator[str]:
        if not self.still_paused:
            yield "it did not wait for its user"
        yield from succeeded(self, "other")

    @row
    def a_run_whose_user_ends_the_pause_waits_for_its_turn_and_runs(self) -> Iterator[str]:
        yield from ledger.released_after(
            self.at.history, self.at.namespace, "PipelineRun", "paused", "other"
        )
        yield from succeeded(self, "paused", "after")


class CreatedWithAStatus(Scenario):
    """Runs are created with another `spec.status` than pending, or are not valid."""

    async def play(self) -> None:
        """Tekton judges them, not we."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("cancelled", task("a", "sleep=1"), status="Cancelled")
        self.answers = {}
        wrong: dict[str, Json] = {
            "nonsense": {"status": "Nonsense"},
            "two pipelines": {"pipelineRef": {"name": "library"}},
            "time-outs that contradict": {"timeouts": {"pipeline": "5s", "tasks": "10s"}},
        }
        for number, (words, spec) in enumerate(wrong.items()):
            try:
                await at.run(f"wrong-{number}", task("a"), **spec)
                self.answers[words] = ""
            except RequestError as error:
                self.answers[words] = str(error)
        await at.run_ends("cancelled")
        await at.run("next", task("a", "sleep=1"))
        await at.run_ends("next")
        await at.until(at.is_free)

    @row
    def a_run_that_is_created_cancelled_never_runs(self) -> Iterator[str]:
        changes = self.at.changes("PipelineRun", "cancelled")
        if any(one.obj["spec"].get("status") != "Cancelled" for one in changes):
            yield "its status was changed"
        if any(True for _ in task_runs(self, "cancelled")):
            yield "it has TaskRuns"
        if condition(self.at.run_now("cancelled"), "Succeeded") != "False":
            yield "it has not ended"

    @row
    def what_tekton_refuses_is_refused(self) -> Iterator[str]:
        for words, answer in self.answers.items():
            if not answer:
                yield f"{words} was accepted"


class RunOfAnOlderVersion(Scenario):
    """A PipelineRun is created as `v1beta1`."""

    async def play(self) -> None:
        """It waits as any other."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("fills", task("a", "hold"))
        await at.run_runs("fills")
        spec = {"pipelineSpec": {"tasks": [task("a", "sleep=1")]}, "timeout": "10m"}
        body = {
            "apiVersion": "tekton.dev/v1beta1",
            "kind": "PipelineRun",
            "metadata": {"name": "older", "namespace": at.namespace},
            "spec": spec,
        }
        path = f"apis/tekton.dev/v1beta1/namespaces/{at.namespace}/pipelineruns"
        await at.tenant.call("POST", path, body)
        await at.waits("PipelineRun", "older")
        at.node.end(at.namespace, "fills")
        await at.run_ends("older")
        await at.until(at.is_free)

    @row
    def a_run_of_an_older_version_waits_and_runs(self) -> Iterator[str]:
        if not held(self.at.changes("PipelineRun", "older")[0].obj):
            yield "it was not held at its creation"
        yield from succeeded(self, "older")


class StoppedAndRecreated(Scenario):
    """A queue lets its runs be preempted: one is stopped, and a copy waits in its place."""

    async def play(self) -> None:
        """The copy runs at last."""
        at = self.at
        annotations = {"sluicegate.dev/on-preemption": "StopAndRecreate"}
        await at.queue({SLOTS: 1}, preempts=True, annotations=annotations)
        await at.run(
            "low", task("a", "sleep=40", "term=1"), priority="low", lastly=(task("f", "sleep=1"),)
        )
        await at.run_runs("low")
        await at.run("high", task("a", "sleep=1"), priority="high")
        for name in ("low", "high"):
            await at.run_ends(name)
        self.copy = await at.until(self._copy_that_ended)
        await at.until(at.is_free)

    def _copy_that_ended(self) -> str:
        for run in self.at.history.all_now("PipelineRun", self.at.namespace):
            name = str(run["metadata"]["name"])
            if name.startswith("low-r") and ended(run):
                return name
        return ""

    @row
    def a_preemptor_starts_when_the_run_before_it_has_ended(self) -> Iterator[str]:
        yield from ledger.released_after(
            self.at.history, self.at.namespace, "PipelineRun", "high", "low"
        )
        if (most := peak(runs(self.at.history, self.at.namespace))) != 1:
            yield f"{most} ran at once"

    @row
    def a_copy_of_a_preempted_run_runs_later(self) -> Iterator[str]:
        yield from succeeded(self, "high", self.copy)
        yield from ledger.in_order(
            self.at.history, self.at.namespace, "PipelineRun", ("low", "high", self.copy)
        )


class DeactivatedRun(Scenario):
    """An operator deactivates the Workload of a running PipelineRun."""

    async def play(self) -> None:
        """It is ended, and the next one starts."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("off", task("a", "hold", "term=1"), lastly=(task("f", "sleep=1"),))
        await at.run_runs("off")
        [workload] = at.workloads(at.run_now("off"))
        name = workload["metadata"]["name"]
        await at.run("next", task("a", "sleep=1"))
        await at.waits("PipelineRun", "next")
        await at.admin.patch("Workload", at.namespace, name, {"spec": {"active": False}})
        for one in ("off", "next"):
            await at.run_ends(one)
        await at.until(at.is_free)

    @row
    def a_deactivated_run_ends_before_the_next_one_starts(self) -> Iterator[str]:
        if condition(self.at.run_now("off"), "Succeeded") != "False":
            yield "it was not ended"
        over = ledger.first(
            self.at.changes("PipelineRun", "off"),
            lambda run: condition(run, "Succeeded") == "False",
        )
        if (releases(self.at.changes("PipelineRun", "next")) or [NEVER])[0] < over:
            yield "the next one was let go before"
        yield from succeeded(self, "next")


class RunOfTheSameName(Scenario):
    """A running PipelineRun is deleted, and created again at once."""

    async def play(self) -> None:
        """Its pods are still there."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("again", task("a", "hold", "term=3"))
        await at.run_runs("again")
        await at.delete("PipelineRun", "again")
        await at.until(lambda: not at.run_now("again"))
        await at.run("again", task("a", "sleep=1"))
        await at.run_ends("again")
        await at.until(at.is_free)

    @row
    def a_run_of_the_same_name_runs_once(self) -> Iterator[str]:
        yield from succeeded(self, "again")
        if (count := len(releases(self.at.changes("PipelineRun", "again")))) != 2:
            yield f"both together were let go {count} times"


SCENARIOS = (
    RunDeletedInTheBackground,
    RunDeletedInTheForeground,
    OrphanedRun,
    EndedWhileItWaits,
    RunStartedByHand,
    PausedByItsUser,
    CreatedWithAStatus,
    RunOfAnOlderVersion,
    StoppedAndRecreated,
    DeactivatedRun,
    RunOfTheSameName,
)
