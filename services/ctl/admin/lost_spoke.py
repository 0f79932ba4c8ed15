"""`sluice spokes lost` and `found`: an operator declares that nothing runs on a spoke any more.

The declaration is an annotation of the MultiKueueCluster, which the dispatcher reads.
"""

from services.ctl.connect.cluster import ClusterChoice, refused
from shared.contracts.kube.bodies import annotations_of
from shared.contracts.kube.kinds import MULTIKUEUE_CLUSTER
from shared.contracts.kube.names import LOST
from shared.kube.port import Kube, KubeError


async def declare_lost(spoke: str, reason: str | None, cluster: ClusterChoice) -> str:
    """Declare a spoke lost, or with None take that back; return a sentence. Raises `CommandError`."""
    kube = cluster.open()
    try:
        return await write_declaration(kube, spoke, reason)
    finally:
        await kube.close()


async def write_declaration(kube: Kube, spoke: str, reason: str | None) -> str:
    """Write the annotation through `kube`; None removes it. Returns a sentence."""
    title = f"multikueuecluster {spoke}"
    try:
        obj = await kube.get(MULTIKUEUE_CLUSTER, None, spoke)
        if annotations_of(obj).get(LOST) == reason:
            return f"{title} is {_state(reason)} already"
        # The uid makes the API server refuse the patch for a new object of the same name.
        metadata = {"uid": obj["metadata"]["uid"], "annotations": {LOST: reason}}
        await kube.patch(MULTIKUEUE_CLUSTER, None, spoke, {"metadata": metadata})
    except KubeError as error:
        raise refused(title, error) from error
    return f"{title} is {_state(reason)}"


def _state(reason: str | None) -> str:
    return "not given up" if reason is None else f"given up as lost: {reason}"
