"""The manifests of a hub with simulated spokes, from `deploy/examples/spokes`."""

from pathlib import Path
from typing import Final

from services.whatif.manifests import Manifest, load_manifests, to_manifest
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body

SPOKES_EXAMPLE: Final = Path(__file__).parents[3] / "deploy" / "examples" / "spokes"
"""A hub and what each spoke has."""


def spoke_names(count: int) -> tuple[str, ...]:
    """Return their names, `spoke-1` and so on."""
    return tuple(f"spoke-{number}" for number in range(1, count + 1))


def hub_manifests(count: int) -> list[Manifest]:
    """The example's hub, with as many spokes as there are."""
    plurals = {kinds.MULTIKUEUE_CLUSTER, kinds.MULTIKUEUE_CONFIG}
    manifests = [m for m in load_manifests((SPOKES_EXAMPLE / "hub.yaml",)) if m.kind not in plurals]
    names = spoke_names(count)
    objects: list[Body] = [
        {
            "apiVersion": kinds.MULTIKUEUE_CONFIG.api_version,
            "kind": kinds.MULTIKUEUE_CONFIG.kind,
            "metadata": {"name": "spokes"},
            "spec": {"clusters": list(names)},
        }
    ]
    objects += [
        {
            "apiVersion": kinds.MULTIKUEUE_CLUSTER.api_version,
            "kind": kinds.MULTIKUEUE_CLUSTER.kind,
            "metadata": {"name": name},
        }
        for name in names
    ]
    return [
        *manifests,
        *(to_manifest(f"{obj['kind']} {obj['metadata']['name']}", obj) for obj in objects),
    ]
