"""What holds over everything that was played: of all Jobs, runs and services together."""

from collections.abc import Iterator
from typing import ClassVar, Final

from tests.controllers.judge.ledger import (
    lives,
    peak,
    releases,
    runs,
    start_times,
    unadmitted_starts,
)
from tests.controllers.place import SLOTS, condition, ended, owned_by
from tests.controllers.scenario import Scenario, row
from tests.controllers.servers.client import Json

FORBIDDEN: Final = (401, 403)
SHOWN: Final = 5


class WholeRun(Scenario):
    """Judges the history of every namespace that has queues of ours."""

    places: ClassVar[dict[str, dict[str, dict[str, int]]]] = {}
    """Namespace to the amounts of its queues."""

    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Namespaces in which pods run on purpose that a tenant has made uncounted, for a while."""

    async def play(self) -> None:
        """Ask for what is judged, while the services still run."""
        self.requests = list(self.at.tools.requests())
        self.surprises = self.at.tools.surprises()
        self.complaints = await self.at.tools.doctor() if self.at.tools.doctor else []

    def _namespaces(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Each namespace with what all of its queues have."""
        for namespace, queues in self.places.items():
            total: dict[str, int] = {}
            for amounts in queues.values():
                for resource, many in amounts.items():
                    total[resource] = total.get(resource, 0) + many
            yield namespace, total

    @row
    def nothing_starts_before_its_workload_is_admitted(self) -> Iterator[str]:
        for namespace in self.places:
            for kind in ("Job", "PipelineRun"):
                for problem in unadmitted_starts(self.at.history, namespace, kind):
                    yield f"{namespace}: {problem}"

    @row
    def no_queue_runs_more_than_it_has(self) -> Iterator[str]:
        for namespace, total in self._namespaces():
            slots, cpus = total.get(SLOTS), total.get("cpu")
            if slots is not None and (most := peak(runs(self.at.history, namespace))) > slots:
                yield f"{namespace}: {most} runs, and {slots} slots"
            if slots is not None or cpus is None or namespace in self.uncounted:
                continue  # Tasks of a run are no pods of the queue.
            if (most := peak(lives(self.at.history, namespace))) > cpus:
                yield f"{namespace}: {most} CPUs ran, and its queues have {cpus}"

    @row
    def no_job_has_two_workloads_at_a_time(self) -> Iterator[str]:
        for namespace in self.places:
            seen: dict[str, str] = {}
            for workload in self.at.history.all_now("Workload", namespace):
                for owner in workload["metadata"].get("ownerReferences") or ():
                    if owner["uid"] in seen:
                        yield f"{namespace}: {owner['name']} has two"
                    seen[owner["uid"]] = workload["metadata"]["name"]

    @row
    def workloads_of_what_has_ended_are_finished(self) -> Iterator[str]:
        for namespace in self.places:
            over = [
                obj["metadata"]["uid"]
                for kind in ("Job", "PipelineRun")
                for obj in self.at.history.all_now(kind, namespace)
                if ended(obj)
            ]
            for workload in self.at.history.all_now("Workload", namespace):
                is_over = any(owned_by(workload, uid) for uid in over)
                if is_over and condition(workload, "Finished") != "True":
                    yield f"{namespace}: {workload['metadata']['name']} is not"

    @row
    def nothing_is_left_that_somebody_deleted(self) -> Iterator[str]:
        for kind in ("Job", "PipelineRun", "Workload", "Pod"):
            for obj in self.at.history.all_now(kind):
                metadata = obj["metadata"]
                if "deletionTimestamp" in metadata:
                    yield f"{kind} {metadata['name']} stays by {metadata.get('finalizers')}"

    @row
    def every_queue_is_free_at_the_end(self) -> Iterator[str]:
        for queue in self.at.history.all_now("ClusterQueue"):
            status = queue.get("status") or {}
            for flavor in status.get("flavorsReservation") or ():
                for resource in flavor["resources"]:
                    if resource["total"] != "0":
                        yield f"{queue['metadata']['name']} counts {resource}"

    @row
    def a_pipeline_run_begins_at_most_once(self) -> Iterator[str]:
        for key in self.at.history.keys("PipelineRun"):
            changes = self.at.history.of(*key)
            uids = {one.obj["metadata"]["uid"] for one in changes}
            starts = start_times(changes)
            if len(starts) > len(uids):
                yield f"{key.namespace}/{key.name} began at {sorted(starts)}"
            if len(releases(changes)) > len(uids):
                yield f"{key.namespace}/{key.name} was let go {len(releases(changes))} times"

    @row
    def no_request_of_a_service_lacks_a_right(self) -> Iterator[str]:
        yield from sorted({_words(one) for one in self.requests if _status(one) in FORBIDDEN})[
            :SHOWN
        ]

    @row
    def services_without_rights_ask_nothing_of_kubernetes(self) -> Iterator[str]:
        users = {one["user"]["username"].rpartition(":")[2] for one in self.requests}
        yield from sorted(users - {"watcher", "patcher", "console"})

    @row
    def services_that_have_rights_use_them(self) -> Iterator[str]:
        users = {one["user"]["username"].rpartition(":")[2] for one in self.requests}
        yield from sorted({"watcher", "patcher"} - users)

    @row
    def no_service_ends_unless_it_is_killed(self) -> Iterator[str]:
        yield from self.surprises

    @row
    def the_doctor_finds_nothing_wrong(self) -> Iterator[str]:
        yield from self.complaints

    @row
    def nothing_the_kubelet_writes_is_refused(self) -> Iterator[str]:
        yield from self.at.node.problems[:SHOWN]


def _status(request: Json) -> int:
    return int((request.get("responseStatus") or {}).get("code") or 0)


def _words(request: Json) -> str:
    obj = request.get("objectRef") or {}
    what = "/".join(filter(None, (obj.get("resource"), obj.get("subresource"))))
    user = request["user"]["username"].rpartition(":")[2]
    said = (request.get("responseStatus") or {}).get("message") or ""
    return f"{user}: {request['verb']} {what}: {_status(request)} {said}"[:300]
