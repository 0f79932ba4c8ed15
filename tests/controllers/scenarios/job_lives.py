"""What else happens to Jobs: other controllers, operators and tenants act on them."""

from collections.abc import Iterator
from typing import ClassVar

from tests.controllers.judge.ledger import lives, peak, releases
from tests.controllers.place import condition, owned_by
from tests.controllers.scenario import Scenario, row
from tests.controllers.servers.client import Json

CPUS = 4


class NamespaceDeleted(Scenario):
    """A namespace is deleted with a Job that runs and one that waits."""

    async def play(self) -> None:
        """All of it goes."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("runs", "hold", "term=2", pods=CPUS)
        await at.job_runs("runs", CPUS)
        await at.job("waits", "hold", pods=CPUS)
        await at.waits("Job", "waits")
        await at.admin.delete("Namespace", None, at.namespace)
        await at.until(
            lambda: (
                not any(
                    any(at.history.all_now(kind, at.namespace))
                    for kind in ("Job", "Workload", "Pod")
                )
            )
        )
        await at.until(at.is_free)
        await at.gone("Namespace", at.namespace)

    @row
    def a_namespace_goes_with_all_that_ran_and_waited(self) -> Iterator[str]:
        for kind in ("Job", "Workload", "Pod"):
            for obj in self.at.history.all_now(kind, self.at.namespace):
                yield f"{kind} {obj['metadata']['name']} is left"

    @row
    def what_waits_in_a_namespace_that_goes_never_starts(self) -> Iterator[str]:
        if releases(self.at.changes("Job", "waits")):
            yield "it was let go"


class JobsOfACronJob(Scenario):
    """A CronJob makes Jobs that name a queue."""

    async def play(self) -> None:
        """One of them is enough; then the CronJob is deleted."""
        at = self.at
        await at.queue({"cpu": CPUS})
        container = {
            "name": "c", "image": "example.test/c", "args": ["sleep=1"],
            "resources": {"requests": {"cpu": "1"}},
        }  # fmt: skip
        pod = {"restartPolicy": "Never", "containers": [container]}
        job = {
            "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "spec": {"template": {"spec": pod}},
        }
        spec = {"schedule": "* * * * *", "jobTemplate": job}
        metadata = {"name": "often", "namespace": at.namespace}
        await at.tenant.create("CronJob", {"metadata": metadata, "spec": spec})
        self.name = await at.until(self._completed)
        await at.delete("CronJob", "often")
        await at.until(
            lambda: (
                not any(any(at.history.all_now(kind, at.namespace)) for kind in ("Job", "Workload"))
            )
        )
        await at.until(at.is_free)

    def _completed(self) -> str:
        """Name of a Job that is complete; empty if none is."""
        jobs = self.at.history.all_now("Job", self.at.namespace)
        done = (one for one in jobs if condition(one, "Complete") == "True")
        return next((str(one["metadata"]["name"]) for one in done), "")

    @row
    def a_job_of_a_cron_job_is_held_until_it_is_admitted(self) -> Iterator[str]:
        changes = self.at.changes("Job", self.name)
        if not changes[0].obj["spec"]["suspend"]:
            yield "it was not held at its creation"
        if len(releases(changes)) != 1:
            yield "it was not let go once"

    @row
    def workloads_go_with_the_cron_job(self) -> Iterator[str]:
        if any(self.at.history.all_now("Workload", self.at.namespace)):
            yield "a Workload is left"


class WorkloadDeleted(Scenario):
    """A Workload is deleted by hand while its Job runs."""

    async def play(self) -> None:
        """The Job gets another one."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("loses", "hold", "term=1", pods=CPUS)
        await at.job_runs("loses", CPUS)
        [workload] = at.workloads(at.job_now("loses"))
        self.name, self.uid = workload["metadata"]["name"], workload["metadata"]["uid"]
        await at.admin.delete("Workload", at.namespace, self.name)
        await at.until(self._has_another)
        await at.until(lambda: len(releases(at.changes("Job", "loses"))) > 1)
        await at.job_runs("loses", CPUS)
        at.node.end(at.namespace, "loses")
        await at.job_ends("loses")
        await at.until(at.is_free)

    def _has_another(self) -> bool:
        workload = self.at.history.now("Workload", self.at.namespace, self.name)
        return workload is not None and workload["metadata"]["uid"] != self.uid

    @row
    def a_job_that_loses_its_workload_is_stopped_and_starts_with_another(self) -> Iterator[str]:
        job = self.at.job_now("loses")
        if condition(job, "Complete") != "True":
            yield "it is not complete"
        workload = self.at.history.now("Workload", self.at.namespace, self.name)
        if workload is None or not owned_by(workload, job["metadata"]["uid"]):
            yield "its Workload is not its own"

    @row
    def a_job_that_lost_its_workload_never_runs_above_the_quota(self) -> Iterator[str]:
        if (most := peak(lives(self.at.history, self.at.namespace))) > CPUS:
            yield f"{most} CPUs ran at once"


class Deactivated(Scenario):
    """An operator sets `spec.active` of a running Job's Workload, and takes it back."""

    async def play(self) -> None:
        """Another Job runs between."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("off", "hold", "stay", pods=CPUS)
        await at.job_runs("off", CPUS)
        [workload] = at.workloads(at.job_now("off"))
        name = workload["metadata"]["name"]
        await at.job("next", "sleep=1", pods=CPUS)
        await at.waits("Job", "next")
        await at.admin.patch("Workload", at.namespace, name, {"spec": {"active": False}})
        await at.until(lambda: at.job_now("off")["spec"]["suspend"])
        at.node.let_go(at.namespace, "off")
        await at.job_ends("next")
        await at.admin.patch("Workload", at.namespace, name, {"spec": {"active": True}})
        await at.job_runs("off", CPUS)
        at.node.end(at.namespace, "off")
        await at.job_ends("off")
        await at.until(at.is_free)

    @row
    def a_deactivated_job_stops_before_the_next_one_starts(self) -> Iterator[str]:
        [begin, *_] = releases(self.at.changes("Job", "next"))
        spans = sorted(lives(self.at.history, self.at.namespace, "off"), key=lambda one: one.begin)
        if begin < max(span.end for span in spans[:CPUS]):
            yield "the next one was let go while pods ran"

    @row
    def a_job_that_is_activated_again_completes(self) -> Iterator[str]:
        if condition(self.at.job_now("off"), "Complete") != "True":
            yield "it is not complete"


class DrainedQueue(Scenario):
    """An operator drains a queue, and opens it again."""

    async def play(self) -> None:
        """The running Job stops, and goes on later."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("runs", "hold", "term=1", pods=CPUS)
        await at.job_runs("runs", CPUS)
        await self._stop("HoldAndDrain")
        await at.until(lambda: at.job_now("runs")["spec"]["suspend"] and at.running("runs") == 0)
        await at.until(lambda: set(at.usage().values()) <= {"0"})
        self.drained = at.history.changes[-1].revision
        await self._stop("None")
        await at.job_runs("runs", CPUS)
        at.node.end(at.namespace, "runs")
        await at.job_ends("runs")
        await at.until(at.is_free)

    async def _stop(self, policy: str) -> None:
        spec = {"spec": {"stopPolicy": policy}}
        await self.at.admin.patch("ClusterQueue", None, self.at.cluster_queue(), spec)

    @row
    def a_drained_queue_stops_what_runs_and_starts_it_when_it_is_open(self) -> Iterator[str]:
        starts = releases(self.at.changes("Job", "runs"))
        if len(starts) != 2 or starts[1] < self.drained:
            yield f"it was let go at {starts}, and the queue was empty at {self.drained}"

    @row
    def a_job_of_a_drained_queue_completes(self) -> Iterator[str]:
        if condition(self.at.job_now("runs"), "Complete") != "True":
            yield "it is not complete"


class StartedByHand(Scenario):
    """A tenant tries to start a Job that waits."""

    CHANGES: ClassVar[dict[str, Json]] = {
        "suspend is set false": {"spec": {"suspend": False}},
        "suspend is taken away": {"spec": {"suspend": None}},
        "the queue is taken away too": {
            "spec": {"suspend": False},
            "metadata": {"labels": {"kueue.x-k8s.io/queue-name": None}},
        },
    }

    async def play(self) -> None:
        """In three ways."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("fills", "hold", pods=CPUS)
        await at.job_runs("fills", CPUS)
        await at.job("waits", "sleep=1", pods=CPUS)
        await at.waits("Job", "waits")
        self.answers = {
            words: await at.refused("Job", "waits", patch) for words, patch in self.CHANGES.items()
        }
        at.node.end(at.namespace, "fills")
        await at.job_ends("waits")
        await at.until(at.is_free)

    @row
    def a_waiting_job_cannot_be_started_by_hand(self) -> Iterator[str]:
        for words, answer in self.answers.items():
            if not answer:
                yield f"it was not refused that {words}"
        if (most := peak(lives(self.at.history, self.at.namespace))) > CPUS:
            yield f"{most} CPUs ran at once"


class JobWithoutAQueue(Scenario):
    """A Job names no queue."""

    async def play(self) -> None:
        """It is nobody's."""
        at = self.at
        await at.queue({"cpu": CPUS})
        await at.job("free", "sleep=1", queue=None)
        await at.job_ends("free")
        await at.job("queued", "sleep=1")
        await at.job_ends("queued")
        await at.until(at.is_free)

    @row
    def a_job_without_a_queue_is_left_alone(self) -> Iterator[str]:
        uid = self.at.job_now("free")["metadata"]["uid"]
        if self.at.changes("Job", "free")[0].obj["spec"].get("suspend"):
            yield "it was held"
        for key in self.at.history.keys("Workload", self.at.namespace):
            if owned_by(self.at.history.of(*key)[0].obj, uid):
                yield f"it has Workload {key.name}"


SCENARIOS = (
    NamespaceDeleted,
    JobsOfACronJob,
    WorkloadDeleted,
    Deactivated,
    DrainedQueue,
    StartedByHand,
    JobWithoutAQueue,
)
