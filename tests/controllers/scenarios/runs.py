"""PipelineRuns from their creation to their end, with the real Tekton."""

from collections.abc import Iterator
from typing import ClassVar

from tests.controllers.judge import ledger
from tests.controllers.judge.ledger import NEVER, lives, releases
from tests.controllers.place import SLOTS, condition, reason, task
from tests.controllers.scenario import Scenario, row


def task_runs(scenario: Scenario, run: str) -> Iterator[list[int]]:
    """The revisions of each TaskRun of a run."""
    for key in scenario.at.history.keys("TaskRun", scenario.at.namespace):
        changes = scenario.at.history.of(*key)
        labels = changes[0].obj["metadata"].get("labels") or {}
        if labels.get("tekton.dev/pipelineRun") == run:
            yield [one.revision for one in changes]


def succeeded(scenario: Scenario, *names: str) -> Iterator[str]:
    """Every run that did not succeed."""
    for name in names:
        run = scenario.at.run_now(name)
        if condition(run, "Succeeded") != "True":
            yield f"{name} ended with {(run.get('status') or {}).get('conditions')}"


class RunsOfOneQueue(Scenario):
    """PipelineRuns of three classes wait behind one."""

    ORDER: ClassVar = ("high", "mid", "low")

    async def play(self) -> None:
        """The last one comes first, and one runs at a time."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("fills", task("a", "hold"), priority="high")
        await at.run_runs("fills")
        for name in reversed(self.ORDER):
            second = task("b", "sleep=1", runAfter=["a"])
            await at.run(name, task("a", "sleep=1"), second, priority=name)
            await at.waits("PipelineRun", name)
        at.node.end(at.namespace, "fills")
        for name in self.ORDER:
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_waiting_run_has_no_task_runs_and_has_not_begun(self) -> Iterator[str]:
        for name in self.ORDER:
            changes = self.at.changes("PipelineRun", name)
            [begin, *_] = releases(changes) or [NEVER]
            if min((one[0] for one in task_runs(self, name)), default=NEVER) < begin:
                yield f"a TaskRun of {name} was made while it waited"
            for one in changes:
                if one.revision < begin and (one.obj.get("status") or {}).get("startTime"):
                    yield f"{name} had a start time while it waited"

    @row
    def runs_start_by_priority(self) -> Iterator[str]:
        yield from ledger.in_order(self.at.history, self.at.namespace, "PipelineRun", self.ORDER)

    @row
    def one_slot_is_one_run(self) -> Iterator[str]:
        if (most := ledger.peak(ledger.runs(self.at.history, self.at.namespace))) != 1:
            yield f"{most} ran at once"

    @row
    def runs_of_a_queue_succeed(self) -> Iterator[str]:
        yield from succeeded(self, "fills", *self.ORDER)


class CancelledRun(Scenario):
    """A running PipelineRun is cancelled."""

    async def play(self) -> None:
        """Its pods take a while to end."""
        at = self.at
        await at.queue({SLOTS: 1})
        last = task("f", "sleep=1")
        await at.run(
            "stops", task("a", "hold", "term=2"), task("b", runAfter=["a"]), lastly=(last,)
        )
        await at.run_runs("stops")
        await at.run("next", task("a", "sleep=1"))
        await at.waits("PipelineRun", "next")
        await at.patch("PipelineRun", "stops", {"spec": {"status": self.variant}})
        if self.variant == "StoppedRunFinally":
            at.node.end(at.namespace, "stops")
        for name in ("stops", "next"):
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_cancelled_run_gives_its_slot_back_when_it_has_ended(self) -> Iterator[str]:
        over = ledger.first(
            self.at.changes("PipelineRun", "stops"),
            lambda run: condition(run, "Succeeded") in {"True", "False"},
        )
        if releases(self.at.changes("PipelineRun", "next"))[0] < over:
            yield "the next one was let go before"
        yield from succeeded(self, "next")


class RunThatIsCancelled(CancelledRun):
    """At once."""

    variant = "Cancelled"


class RunThatIsCancelledFinally(CancelledRun):
    """Its `finally` tasks run."""

    variant = "CancelledRunFinally"


class RunThatIsStoppedFinally(CancelledRun):
    """What runs ends, and its `finally` tasks run."""

    variant = "StoppedRunFinally"


class RunWithTimeout(Scenario):
    """A PipelineRun waits longer than its time-out."""

    SECONDS: ClassVar = 6

    async def play(self) -> None:
        """It exceeds it later, while it runs."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("fills", task("a", f"sleep={self.SECONDS + 4}"))
        await at.run_runs("fills")
        await at.run("late", task("a", "hold"), timeouts={"pipeline": f"{self.SECONDS}s"})
        for name in ("fills", "late"):
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_timeout_counts_from_the_start_of_a_run(self) -> Iterator[str]:
        late = self.at.run_now("late")
        if reason(late, "Succeeded") != "PipelineRunTimeout":
            yield f"it ended by {reason(late, 'Succeeded')}"
        if not list(lives(self.at.history, self.at.namespace, "late")):
            yield "it never ran"


class RunThatFails(Scenario):
    """A task fails once, and one fails for good."""

    async def play(self) -> None:
        """Another run waits meanwhile."""
        at = self.at
        await at.queue({SLOTS: 1})
        await at.run("tries", task("a", "sleep=1", "fail-first=1", retries=2))
        await at.run_runs("tries")
        await at.run("fails", task("a", "sleep=1", "fail"))
        await at.waits("PipelineRun", "fails")
        await at.run("next", task("a", "sleep=1"))
        for name in ("tries", "fails", "next"):
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_run_keeps_its_slot_while_a_task_is_tried_again(self) -> Iterator[str]:
        yield from succeeded(self, "tries")
        if sum(1 for _ in lives(self.at.history, self.at.namespace, "tries")) != 2:
            yield "its task was not tried twice"
        yield from ledger.released_after(
            self.at.history, self.at.namespace, "PipelineRun", "fails", "tries"
        )

    @row
    def a_run_that_fails_gives_its_slot_back(self) -> Iterator[str]:
        if condition(self.at.run_now("fails"), "Succeeded") != "False":
            yield "it did not fail"
        yield from succeeded(self, "next")


class RunWithMatrix(Scenario):
    """A PipelineRun has a matrix, results and a task behind both."""

    async def play(self) -> None:
        """All of it is one slot."""
        at = self.at
        await at.queue({SLOTS: 1})
        matrix = {"params": [{"name": "p", "value": ["x", "y", "z"]}]}
        many = task("many", "sleep=1", matrix=matrix, taskSpec={"params": [{"name": "p"}]})
        gives = task(
            "gives", "sleep=1", "result=d:1", runAfter=["many"],
            taskSpec={"results": [{"name": "d"}]},
        )  # fmt: skip
        takes = task("takes", "sleep=1", taskSpec={"params": [{"name": "d"}]})
        takes["params"] = [{"name": "d", "value": "$(tasks.gives.results.d)"}]
        await at.run("matrix", many, gives, takes)
        await at.run_ends("matrix")
        await at.until(at.is_free)

    @row
    def a_run_with_a_matrix_and_results_succeeds(self) -> Iterator[str]:
        yield from succeeded(self, "matrix")
        if (count := sum(1 for _ in task_runs(self, "matrix"))) != 5:
            yield f"it has {count} TaskRuns"


class RunByReference(Scenario):
    """PipelineRuns name a Pipeline, in the cluster or through a resolver; one is not there."""

    async def play(self) -> None:
        """One after the other."""
        at = self.at
        await at.queue({SLOTS: 1})
        spec = {"tasks": [task("a", "sleep=1")]}
        metadata = {"name": "library", "namespace": at.namespace}
        await at.tenant.create("Pipeline", {"metadata": metadata, "spec": spec})
        await at.run("named", pipelineRef={"name": "library"})
        where = {"kind": "pipeline", "name": "library", "namespace": at.namespace}
        params = [{"name": name, "value": value} for name, value in where.items()]
        await at.run("resolved", pipelineRef={"resolver": "cluster", "params": params})
        await at.run("missing", pipelineRef={"name": "nothing"})
        for name in ("named", "resolved", "missing"):
            await at.run_ends(name)
        await at.until(at.is_free)

    @row
    def a_run_that_names_a_pipeline_succeeds(self) -> Iterator[str]:
        yield from succeeded(self, "named")

    @row
    def a_run_that_is_resolved_elsewhere_succeeds(self) -> Iterator[str]:
        yield from succeeded(self, "resolved")

    @row
    def a_run_whose_pipeline_is_missing_gives_its_slot_back(self) -> Iterator[str]:
        if condition(self.at.run_now("missing"), "Succeeded") != "False":
            yield "it did not fail"
        if not self.at.is_free():
            yield f"the queue counts {self.at.usage()}"


class RunWithTemplates(Scenario):
    """A PipelineRun says how its pods are made."""

    async def play(self) -> None:
        """The webhook leaves that as it is."""
        at = self.at
        await at.queue({SLOTS: 1})
        metadata = {"name": "builder", "namespace": at.namespace}
        await at.admin.create("ServiceAccount", {"metadata": metadata})
        self.template = {
            "serviceAccountName": "builder",
            "podTemplate": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        }
        requests = {"computeResources": {"requests": {"cpu": "1"}}}
        self.specs = [{"pipelineTaskName": "a", **requests}]
        await at.run(
            "shaped", task("a", "sleep=1"), taskRunTemplate=self.template, taskRunSpecs=self.specs
        )
        await at.run_ends("shaped")
        await at.until(at.is_free)

    @row
    def a_run_keeps_what_its_user_says_of_its_pods(self) -> Iterator[str]:
        spec = self.at.run_now("shaped")["spec"]
        for name, wanted in (("taskRunTemplate", self.template), ("taskRunSpecs", self.specs)):
            if spec.get(name) != wanted:
                yield f"{name} is {spec.get(name)}"
        for key in self.at.history.keys("Pod", self.at.namespace):
            pod = self.at.history.of(*key)[0].obj["spec"]
            if (
                pod["serviceAccountName"] != "builder"
                or "kubernetes.io/os" not in pod["nodeSelector"]
            ):
                yield f"pod {key.name} is made otherwise"


SCENARIOS = (
    RunsOfOneQueue,
    RunThatIsCancelled,
    RunThatIsCancelledFinally,
    RunThatIsStoppedFinally,
    RunWithTimeout,
    RunThatFails,
    RunWithMatrix,
    RunByReference,
    RunWithTemplates,
)
