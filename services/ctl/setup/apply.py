"""Applies manifests to a cluster through its API server."""

from collections.abc import Sequence

from services.whatif.manifests import Manifest
from shared.kube.port import (
    AlreadyExistsError,
    Kube,
    KubeError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from shared.runtime.command import CommandError, Exit


async def apply_manifests(kube: Kube, manifests: Sequence[Manifest]) -> None:
    """Apply all, in their order. Raises `CommandError` for the first that is refused."""
    for manifest in manifests:
        await apply_manifest(kube, manifest)


async def apply_manifest(kube: Kube, manifest: Manifest) -> None:
    """Create the object, or give an existing one the manifest's fields (a merge patch)."""
    obj = manifest.object
    if manifest.kind.namespaced and not obj["metadata"].get("namespace"):
        obj = {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}
    try:
        try:
            await kube.create(manifest.kind, obj)
        except AlreadyExistsError:
            metadata = obj["metadata"]
            await kube.patch(manifest.kind, metadata.get("namespace"), metadata["name"], obj)
    except RefusedError as error:
        raise CommandError(manifest.source, f"{manifest.title}: refused: {error}") from error
    except UnavailableError as error:
        raise CommandError(
            manifest.source, f"{manifest.title}: {error}", status=Exit.UNREACHABLE
        ) from error
    except NotFoundError as error:
        raise CommandError(
            manifest.source,
            f"{manifest.title}: {error}",
            hint="create what it says is missing, or add its manifest to these",
        ) from error
    except KubeError as error:
        raise CommandError(manifest.source, f"{manifest.title}: {error}") from error
