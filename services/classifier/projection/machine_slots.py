"""Joins machines with workloads: an unavailable platform blocks a run, a released machine frees slots.

The provisioner publishes both facts on `HOSTS`. Pure.
"""

from collections.abc import Iterator, Mapping

from shared.contracts.kube.bodies import Body, strings_in
from shared.contracts.kube.names import slot_resource
from shared.contracts.kube.quantities import QuantityError, amount, format_amount
from shared.contracts.messages.hosts import HostState, PlatformOffer
from shared.contracts.messages.workloads import PodSet
from shared.contracts.multi_platform import UNAVAILABLE
from shared.contracts.refs import WorkloadRef


class MachineSlots:
    """Platforms and released slots of one cluster."""

    def __init__(self) -> None:
        self._offer: PlatformOffer | None = None
        self._released: dict[WorkloadRef, dict[str, Mapping[str, str]]] = {}
        """Workload to TaskRun uid to the slots of its released machine."""

    def observe_offer(self, offer: PlatformOffer) -> bool:
        """Store which platforms are configured. Returns whether that may change what is blocked."""
        before, self._offer = self._offer, offer
        if before is None:
            return True
        return (before.configured, before.platforms, before.problems) != (
            offer.configured,
            offer.platforms,
            offer.problems,
        )

    def observe_host(self, host: HostState) -> WorkloadRef | None:
        """Store the slots of a released machine. Returns the workload that gets slots back."""
        if host.state != "released" or not host.workload or not host.slots:
            return None
        ref = WorkloadRef(host.cluster, host.namespace, host.workload)
        self._released.setdefault(ref, {})[host.uid] = host.slots
        return ref

    def forget(self, ref: WorkloadRef) -> None:
        """Drop the slots of a workload that ended."""
        self._released.pop(ref, None)

    def problems(self, job: Body, pod_sets: list[PodSet]) -> Iterator[str]:
        """Yield why a job cannot run: it names a platform and requests its slots, and there are none.

        A parameter with a platform's name alone proves nothing, and neither does a resource: only both
        together mean a build on that platform.
        """
        if self._offer is None or not self._offer.configured:
            return
        offered = self._offer.platforms.values()
        requested = {r for ps in pod_sets for r in ps.requests if r not in offered}
        if not requested:
            return
        named = {text for text in strings_in(job.get("spec")) if "/" in text}
        for platform in sorted(named):
            if slot_resource(platform) in requested:
                why = self._offer.problems.get(platform, f"no hosts configured for {platform}")
                yield f"platform {platform} {UNAVAILABLE}: {why}"

    def with_returned(
        self, ref: WorkloadRef, pod_sets: list[PodSet], last: list[PodSet]
    ) -> list[PodSet]:
        """Return the pod sets with the slots that released machines gave back.

        Each ended TaskRun gives one slot back, and never more come back than were requested. The amount
        only grows: `last` are the pod sets published before.
        """
        before = {ps.name: ps.returned for ps in last}
        left: dict[str, int] = {}
        for slots in self._released.get(ref, {}).values():
            for resource, text in slots.items():
                left[resource] = left.get(resource, 0) + _amount_or_zero(resource, text)
        if not left and not any(before.values()):
            return pod_sets
        return [_with_returned(ps, before.get(ps.name, {}), left) for ps in pod_sets]


def _with_returned(pod_set: PodSet, before: Mapping[str, str], left: dict[str, int]) -> PodSet:
    """Assign returned slots to a pod set, up to its requests, and subtract them from `left`."""
    returned: dict[str, str] = {}
    for resource, text in pod_set.requests.items():
        requested = _amount_or_zero(resource, text) * pod_set.count
        back = min(requested, left.get(resource, 0))
        left[resource] = left.get(resource, 0) - back
        back = max(back, _amount_or_zero(resource, before.get(resource, "0")))
        if back > 0:
            returned[resource] = format_amount(resource, back)
    return pod_set.with_returned(returned) if returned else pod_set


def _amount_or_zero(resource: str, text: str) -> int:
    """An unreadable quantity counts as zero; quota reports it where it is requested."""
    try:
        return amount(resource, text)
    except QuantityError:
        return 0
