"""Observes the pods of all clusters at once: which job runs where, and when."""

from collections.abc import Callable
from functools import partial

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import PODS
from services.simulator.cluster.storage.stored import Event
from shared.contracts.coscheduling import RUN_LABEL
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.spokes import COPY_FINALIZER
from shared.integrations import INTEGRATIONS, Integration
from shared.kube.port import Kube

Name = tuple[str, str]
"""Namespace and name of a job; names are unique in a world."""


class PodObserver:
    """Follows every pod from its creation to its end, and records problems."""

    def __init__(
        self,
        apis: dict[str, Api],
        now: Callable[[], float],
        *,
        given_up: Callable[[Name, str], bool] = lambda _job, _cluster: False,
    ) -> None:
        """`given_up` returns True if the hub published that the job's copy on that cluster is lost.

        With leases that may be a copy whose end no service saw; the job then runs again.
        """
        self._given_up = given_up
        self.problems: list[str] = []
        self.ran: dict[Name, list[str]] = {}
        """Clusters in which each job had pods, in order."""

        self._now = now
        self._living: dict[Name, dict[str, dict[str, None]]] = {}
        """Uids of running pods by job and cluster."""

        self._done: dict[Name, str] = {}
        """Clusters in which each job succeeded."""

        self._told: dict[tuple[Name, str], None] = {}
        for cluster, api in apis.items():
            api.store.subscribe(PODS, partial(self._on_pod, cluster))
            for integration in INTEGRATIONS:
                kind = integration.kind
                served = api.kinds.find(kind.group, kind.version, kind.plural)
                if served is not None:
                    api.store.subscribe(served, partial(self._on_job, cluster, integration))

    def at_work(self) -> list[tuple[Name, str]]:
        """Return the jobs with running pods and their clusters."""
        return [
            (job, cluster)
            for job, places in self._living.items()
            for cluster, pods in places.items()
            if pods
        ]

    def _on_pod(self, cluster: str, event: Event) -> None:
        pod = event.stored.obj
        job = _job_of(as_body(pod))
        if job is None:
            return
        phase = (pod.get("status") or {}).get("phase")
        living = self._living.setdefault(job, {}).setdefault(cluster, {})
        if event.type == "DELETED" or phase in {"Succeeded", "Failed"}:
            living.pop(pod["metadata"]["uid"], None)
            return
        if not living:
            self._starts(job, cluster)
        living[pod["metadata"]["uid"]] = None
        places = [place for place, pods in self._living[job].items() if pods]
        if len(places) > 1:
            self._tell(job, f"runs on {' and '.join(sorted(places))} at once")

    def _starts(self, job: Name, cluster: str) -> None:
        places = self.ran.setdefault(job, [])
        if not places or places[-1] != cluster:
            places.append(cluster)
        done = self._done.get(job)
        if done is not None and done != cluster and not self._given_up(job, done):
            self._tell(job, f"ended well on {done} and is started again on {cluster}")

    def _on_job(self, cluster: str, integration: Integration, event: Event) -> None:
        obj = event.stored.obj
        finish = integration.finish(obj)
        if (
            finish is not None
            and finish.success
            and ORIGIN in (obj["metadata"].get("labels") or {})
        ):
            self._done[obj["metadata"]["namespace"], obj["metadata"]["name"]] = cluster

    def _tell(self, job: Name, what: str) -> None:
        if (job, what) not in self._told:
            self._told[job, what] = None
            self.problems.append(f"at {self._now():.1f} s {'/'.join(job)} {what}")


def _job_of(pod: Body) -> Name | None:
    metadata = pod["metadata"]
    run = (metadata.get("labels") or {}).get(RUN_LABEL)
    if run:
        return metadata["namespace"], str(run)
    for owner in metadata.get("ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") == "Job":
            return metadata["namespace"], str(owner["name"])
    return None


async def left_behind(kubes: dict[str, Kube]) -> list[str]:
    """Return copies and Workloads that were not removed."""
    left = []
    for cluster, kube in kubes.items():
        for kind in (kinds.JOB, kinds.PIPELINE_RUN):
            for obj in (await kube.list(kind, labels=ORIGIN)).items:
                held = COPY_FINALIZER in (obj["metadata"].get("finalizers") or [])
                state = "being deleted" if obj["metadata"].get("deletionTimestamp") else "there"
                name = f"{kind.kind} {obj['metadata']['namespace']}/{obj['metadata']['name']}"
                left.append(f"{name} is {state} on {cluster}{', held by us' if held else ''}")
    return left
