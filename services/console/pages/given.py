"""What a workload asks beside what it was given: pods, resources, flavors, and the nodes of those."""

from collections.abc import Mapping

from services.console.pages.documents import GivenFlavor, GivenList, GivenPodSet, GivenResource
from services.console.view import View
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.quantities import QuantityError, amount, format_amount
from shared.contracts.messages.admissions import HOLDING, PodSetAssignment
from shared.contracts.messages.workloads import PodSet
from shared.contracts.refs import WorkloadRef


def given(view: View, ident: WorkloadRef, *, shows_flavors: bool) -> GivenList | None:
    """The pod sets of a workload; None if there is no such workload.

    `shows_flavors`: whether the user may see the node labels of flavors.
    """
    found = view.workload(ident)
    if found is None:
        return None
    state, admission = found
    has_quota = admission is not None and admission.state in HOLDING
    assigned = {each.name: each for each in admission.pod_sets} if admission and has_quota else {}
    names = sorted({flavor for each in assigned.values() for flavor in each.flavors.values()})
    labels = _node_labels(view, ident.cluster) if shows_flavors else {}
    return GivenList(
        items=[_pod_set(each, assigned.get(each.name)) for each in state.pod_sets],
        flavors=[GivenFlavor(name=name, node_labels=labels.get(name)) for name in names],
    )


def _pod_set(asked: PodSet, assigned: PodSetAssignment | None) -> GivenPodSet:
    usage = {} if assigned is None else assigned.usage
    return GivenPodSet(
        name=asked.name,
        asked=asked.count,
        least=asked.min_count,
        given=None if assigned is None else assigned.count,
        resources=[
            GivenResource(
                name=name,
                per_pod=asked.requests.get(name),
                asked=_times(name, asked.requests.get(name), asked.count),
                given=usage.get(name),
                flavor=None if assigned is None else assigned.flavors.get(name),
            )
            for name in sorted({*asked.requests, *usage})
        ],
    )


def _times(resource: str, quantity: str | None, count: int) -> str | None:
    """The quantity of all pods together; None if there is none that can be read."""
    try:
        return (
            None
            if quantity is None
            else format_amount(resource, amount(resource, quantity) * count)
        )
    except QuantityError:
        return None  # The workload's reason names the malformed quantity.


def _node_labels(view: View, cluster: str) -> Mapping[str, dict[str, str]]:
    """By flavor."""
    return {
        each.name: {
            str(k): str(v) for k, v in (spec_of(each.object).get("nodeLabels") or {}).items()
        }
        for each in view.observed(kinds.RESOURCE_FLAVOR)
        if each.cluster == cluster
    }
