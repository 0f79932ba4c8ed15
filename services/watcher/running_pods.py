"""Which pods of a list run, and whose they are. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from shared.contracts.kube.bodies import Body, labels_of, pod_has_ended
from shared.contracts.kube.names import CONTROLLER_UID
from shared.integrations import controller_uid


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPods:
    """The pods of a namespace that have not ended."""

    controllers: Mapping[str, str] = field(default_factory=dict)
    """Uid of each pod to that of its controller; empty without one."""

    uids: Mapping[str, str] = field(default_factory=dict)
    """Name of each pod to its uid."""

    def named(self, names: frozenset[str]) -> Iterator[str]:
        """The uids of those that have one of these names."""
        return (self.uids[name] for name in names & self.uids.keys())


def running_pods(pods: Sequence[Body]) -> RunningPods:
    """The pods of a list that run.

    What a pod made, as the driver of a SparkApplication its executors, is its controller's.
    """
    makers = {
        pod["metadata"]["uid"]: controller_uid(pod) or labels_of(pod).get(CONTROLLER_UID, "")
        for pod in pods
    }
    running = [pod["metadata"] for pod in pods if not pod_has_ended(pod)]
    return RunningPods(
        controllers={one["uid"]: makers.get(by := makers[one["uid"]], by) for one in running},
        uids={one["name"]: one["uid"] for one in running},
    )
