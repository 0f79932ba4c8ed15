"""What machines mean for a workload: a platform that nobody has keeps it out, a machine's end frees its slot.

The provisioner says both, on `HOSTS`; here it is joined with what the run asks for. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import slot_resource
from shared.contracts.kube.quantities import QuantityError, amount, format_amount
from shared.contracts.messages.effects import HostState, PlatformOffer
from shared.contracts.messages.workloads import PodSet

__all__ = ["Machines"]

_Name = tuple[str, str]
"""Namespace and name of a Workload."""


class Machines:
    """What is known of the machines of one cluster."""

    def __init__(self) -> None:
        self._offer: PlatformOffer | None = None
        self._released: dict[_Name, dict[str, Mapping[str, str]]] = {}
        """Workload to TaskRun uid to the slots that its machine stood for."""

    def take_offer(self, offer: PlatformOffer) -> bool:
        """Take in which platforms there are; True if that may change what is refused."""
        before, self._offer = self._offer, offer
        return before is None or _says(before) != _says(offer)

    def take_host(self, host: HostState) -> _Name | None:
        """Take in how a TaskRun's machine stands; the workload whose slots came back."""
        if host.state != "released" or not host.workload or not host.slots:
            return None
        name = (host.namespace, host.workload)
        self._released.setdefault(name, {})[host.uid] = host.slots
        return name

    def forget(self, name: _Name) -> None:
        """A workload is over: nothing of it is held any more."""
        self._released.pop(name, None)

    def refusals(self, job: Object, pod_sets: list[PodSet]) -> Iterator[str]:
        """Why a job cannot be had: it names platforms, asks for their slots, and there are none.

        A parameter alone means nothing (a test may have one of that name), nor does a resource (it may
        be anything): both together are a build on that platform.
        """
        if self._offer is None or not self._offer.configured:
            return
        offered = self._offer.platforms.values()
        asked = {r for ps in pod_sets for r in ps.requests if r not in offered}
        if not asked:
            return
        named = {text for text in _texts(job.get("spec")) if "/" in text}
        for platform in sorted(named):
            if slot_resource(platform) in asked:
                why = self._offer.problems.get(platform, f"no hosts configured for {platform}")
                yield f"platform {platform} cannot be had: {why}"

    def with_returned(
        self, name: _Name, pod_sets: list[PodSet], last: list[PodSet]
    ) -> list[PodSet]:
        """The pod sets with what came back of them, which only grows: `last` remembers it.

        One slot comes back for each TaskRun that has ended, and never more than were asked for.
        """
        before = {ps.name: ps.returned for ps in last}
        left: dict[str, int] = {}
        for slots in self._released.get(name, {}).values():
            for resource, text in slots.items():
                left[resource] = left.get(resource, 0) + _counted(resource, text)
        if not left and not any(before.values()):
            return pod_sets
        return [_returned(ps, before.get(ps.name, {}), left) for ps in pod_sets]


def _returned(pod_set: PodSet, before: Mapping[str, str], left: dict[str, int]) -> PodSet:
    """`left` is what is still to be given back; what this pod set asked for is taken from it."""
    returned: dict[str, str] = {}
    for resource, text in pod_set.requests.items():
        asked = _counted(resource, text) * pod_set.count
        back = min(asked, left.get(resource, 0))
        left[resource] = left.get(resource, 0) - back
        back = max(back, _counted(resource, before.get(resource, "0")))
        if back > 0:
            returned[resource] = format_amount(resource, back)
    return pod_set.model_copy(update={"returned": returned}) if returned else pod_set


def _counted(resource: str, text: str) -> int:
    """What cannot be read counts nothing: quota says so where it is asked for."""
    try:
        return amount(resource, text)
    except QuantityError:
        return 0


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _says(offer: PlatformOffer) -> tuple[object, ...]:
    return (offer.configured, offer.platforms, offer.problems)
