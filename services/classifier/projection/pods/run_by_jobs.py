"""Which pods of a job are made by other jobs, that its controller makes."""

from collections.abc import Iterable

from shared.contracts.kube.kinds import POD
from shared.contracts.messages.workloads import PodSet
from shared.integrations import Integration


def run_by_jobs(integration: Integration | None, pod_sets: Iterable[PodSet]) -> list[PodSet]:
    """The pod sets that other jobs run (`children[].podSets`); all of them where the document says nothing.

    The quota of the others is for pods that the controller makes itself, and for no job.
    """
    children = None if integration is None else integration.document.spec.children
    jobs = [each for each in children or () if (each.group, each.kind) != (POD.group, POD.kind)]
    if not jobs or any(each.pod_sets is None for each in jobs):
        return list(pod_sets)
    names = {name for each in jobs for name in each.pod_sets or ()}
    return [pod_set for pod_set in pod_sets if pod_set.name in names]
