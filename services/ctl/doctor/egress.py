"""Finds services that network policies let reach any address outside, and where the API server is."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from services.ctl.doctor.findings import Finding
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.kinds import ENDPOINT_SLICE, NETWORK_POLICY

if TYPE_CHECKING:
    from shared.kube.port import Kube

Json = Mapping[str, Any]

API_SERVER: Final = "kubernetes"
"""The Service of the API server, and the slice of its addresses, in the namespace `default`."""

TO_API_SERVER: Final = ("watcher", "patcher", "console")
"""Policies of ours that let out to the API server, and outside the cluster to nothing else."""


async def open_egress(kube: "Kube", *, namespace: str) -> list[Finding]:
    """One finding if services may reach any address; none if the user may not list network policies.

    Raises a `KubeError` if the cluster does not answer.
    """
    from shared.kube.port import NotFoundError, RefusedError  # noqa: PLC0415

    try:
        policies = await kube.list(NETWORK_POLICY, namespace=namespace)
        slices = await kube.list(ENDPOINT_SLICE, namespace="default")
    except (NotFoundError, RefusedError):
        return []
    return egress_findings(policies.items, slices.items)


def egress_findings(policies: Iterable[Json], slices: Iterable[Json]) -> list[Finding]:
    """A finding for the policies to the API server that name no address, with the addresses to name."""
    named = {policy["metadata"]["name"]: policy for policy in policies}
    left_open = [
        name
        for name in TO_API_SERVER
        if any(not rule.get("to") for rule in spec_of(named.get(name)).get("egress") or ())
    ]
    if not left_open:
        return []
    blocks = sorted(
        f"{address}/{128 if ':' in address else 32}"
        for one in slices
        if one["metadata"]["name"] == API_SERVER
        for endpoint in one.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    )
    return [
        Finding(
            where=f"NetworkPolicy {', '.join(left_open)}",
            problem="may reach any address outside the cluster at the ports of an API server",
            advice=(
                f"name that of yours: --set 'egress.apiServer={{{','.join(blocks)}}}' with Helm, or a patch"
                " (docs/how-to/deploy.md)"
            ),
            # The address is not known when the manifests are made.
            wrong=False,
        )
    ]
