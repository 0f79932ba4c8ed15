"""Histories that are small enough to read: what tests of judges judge."""

from datetime import UTC, datetime, timedelta
from typing import Any

from services.simulator.judge.message_logs import MessageLogs, Record
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import PodSet, WorkloadState
from shared.testing.builders import observed

AT = datetime(2026, 1, 1, tzinfo=UTC)


class History:
    """Builds message_logs: each message comes a second after the one before, whatever its log."""

    def __init__(self, *, nominal: str = "4", cohort: str = "") -> None:
        self.message_logs = MessageLogs()
        self._clock = AT
        self._number = 0
        self.observe(kinds.RESOURCE_FLAVOR, "machines", {})
        self.cluster_queue("main", nominal=nominal, cohort=cohort)
        self.observe(kinds.LOCAL_QUEUE, "queue", {"clusterQueue": "main"}, namespace="team")

    def cluster_queue(self, name: str, *, nominal: str, cohort: str = "", **limits: str) -> None:
        resource = {"name": "cpu", "nominalQuota": nominal, **limits}
        flavors = [{"name": "machines", "resources": [resource]}]
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        spec = {"namespaceSelector": {}, "cohortName": cohort, "resourceGroups": groups}
        self.observe(kinds.CLUSTER_QUEUE, name, spec)

    def observe(
        self,
        kind: Kind,
        name: str,
        spec: dict[str, Any],
        *,
        namespace: str | None = None,
        **more: Any,
    ) -> None:
        metadata = {"uid": name, **more.pop("metadata", {})}
        message = observed(kind, name, spec, namespace, metadata=metadata, **more)
        self.message_logs.observed.append(
            self._record(message, len(self.message_logs.observed) + 1)
        )

    def runs(self, name: str, *, started: str = "2026-01-01T00:00:00Z", version: str = "1") -> None:
        self.observe(
            kinds.JOB,
            name,
            {"suspend": False},
            namespace="team",
            status={"startTime": started, "active": 1},
            metadata={"labels": {"kueue.x-k8s.io/queue-name": "queue"}},
            version=version,
        )

    def stopped(self, name: str, *, version: str) -> None:
        message = Outcome(
            cluster="hub", namespace="team", name=name, uid=name, result="applied",
            action="suspend", term=1, number=self._number, version=version, at=self._clock,
        )  # fmt: skip
        self.message_logs.outcomes.append(
            self._record(message, len(self.message_logs.outcomes) + 1)
        )

    def waits(self, name: str, *, cpu: str = "1", priority: int = 0, **more: Any) -> None:
        message = WorkloadState(
            cluster="hub",
            namespace="team",
            name=name,
            uid=more.pop("uid", name),
            phase=more.pop("phase", "waiting"),
            adopts=more.pop("adopts", ""),
            queue="queue",
            priority=priority,
            created_at=AT,
            pod_sets=[
                PodSet(name="main", count=more.pop("count", 1), requests={"cpu": cpu}, **more)
            ],
        )
        self.message_logs.workloads.append(
            self._record(message, len(self.message_logs.workloads) + 1)
        )

    def decide(self, name: str, state: str = "admitted", **more: Any) -> None:
        self._number += 1
        cpu, count = more.pop("cpu", "1"), more.pop("count", 1)
        flavors = {"cpu": more.pop("flavor", "machines")}
        message = Admission.model_validate(
            {
                "cluster": "hub",
                "namespace": "team",
                "name": name,
                "uid": more.pop("uid", name),
                "state": state,
                "term": 1,
                "number": self._number,
                "decided_at": self._clock,
                "cluster_queue": "main",
                "pod_sets": [
                    PodSetAssignment(name="main", count=count, flavors=flavors, usage={"cpu": cpu})
                ],
                "inputs": {
                    "OBSERVED": len(self.message_logs.observed),
                    "WORKLOADS": len(self.message_logs.workloads),
                },
            }
            | more
        )
        self.message_logs.admissions.append(
            self._record(message, len(self.message_logs.admissions) + 1)
        )

    def _record(self, message: Any, sequence: int) -> Record[Any]:
        self._clock += timedelta(seconds=1)
        return Record(sequence=sequence, time=self._clock, message=message)
