"""Registers the webhook of `sluice dev` in a cluster that outlives it, and unregisters it at the end.

The webhook fails closed: left behind, it would refuse every job, and the next `sluice dev` could apply
nothing.
"""

from collections.abc import Sequence

from services.ctl.setup.definitions import MANAGED_BY
from services.whatif.manifests import Manifest
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK, PODS_WEBHOOK
from shared.kube.port import AlreadyExistsError, Kube, KubeError, NotFoundError
from shared.runtime.command import CommandError


async def register(kube: Kube, manifests: Sequence[Manifest]) -> None:
    """Create the configurations, labelled as ours. Raises `CommandError`."""
    for manifest in manifests:
        metadata = manifest.object["metadata"] | {"labels": dict(MANAGED_BY)}
        try:
            await kube.create(manifest.kind, {**manifest.object, "metadata": metadata})
        except AlreadyExistsError as error:
            text = f"the cluster has a {manifest.kind.kind} {CLASSIFIER_WEBHOOK} of somebody else"
            hint = "--no-webhook leaves admission to that one"
            raise CommandError(manifest.source, text, hint=hint) from error
        except KubeError as error:
            raise CommandError(manifest.source, f"refused: {error}") from error


async def unregister(kube: Kube) -> bool:
    """Delete what a `sluice dev` registered, this one or an earlier one; return whether there was any."""
    found = False
    for kind, name in (
        (MUTATING_WEBHOOK, CLASSIFIER_WEBHOOK),
        (MUTATING_WEBHOOK, PODS_WEBHOOK),
        (VALIDATING_WEBHOOK, CLASSIFIER_WEBHOOK),
    ):
        try:
            metadata = (await kube.get(kind, None, name))["metadata"]
            if MANAGED_BY.items() <= (metadata.get("labels") or {}).items():
                await kube.delete(kind, None, name, uid=metadata["uid"])
                found = True
        except NotFoundError:
            continue
    return found
