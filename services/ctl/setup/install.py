"""`sluice install`: applies what a cluster needs before the services can work."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from services.ctl.connect.cluster import check_kubeconfig, refused
from services.ctl.connect.progress import progress
from services.ctl.setup.apply import apply_manifest, apply_manifests
from services.ctl.setup.definitions import apply_definitions
from services.ctl.setup.spokes import hub_manifests
from services.ctl.setup.webhook import webhook_manifest
from services.whatif.manifests import load_manifests
from shared.kube.client import HttpKube
from shared.kube.port import KubeError, UnavailableError
from shared.runtime.command import CommandError, Exit

IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""Variable that Kubernetes sets in every pod."""

RETRY_SECONDS: Final = 1.0


async def install(
    *,
    kubeconfig: Path | None,
    context: str | None = None,
    manifests: Sequence[Path],
    spokes: int = 0,
    definitions: bool = False,
    webhook_url: str | None,
    authority: Path | None,
    wait_seconds: float,
) -> list[str]:
    """Apply manifests, and register the webhook at `webhook_url`; return the titles of what was applied.

    `spokes` also applies the hub of so many spokes, `definitions` first applies missing definitions of
    our kinds. Waits for the API server and for the classifier's CA file. Raises `CommandError`.
    """
    documents = load_manifests(manifests) + (hub_manifests(spokes) if spokes else [])
    _check_webhook(webhook_url, authority)
    if kubeconfig is not None:
        check_kubeconfig(kubeconfig, context)
    elif context is not None:
        raise CommandError("--context", "needs --kubeconfig")
    elif IN_POD not in os.environ:
        hint = "give a kubeconfig of the cluster"
        raise CommandError("--kubeconfig", "is needed: this is no pod", hint=hint)
    kube = HttpKube.from_kubeconfig(None if kubeconfig is None else str(kubeconfig), context)
    done: list[str] = []
    waits_for = "the API server does not answer"
    try:
        with progress("waiting for the API server") as note:
            async with asyncio.timeout(wait_seconds):
                await _until_served(kube)
                waits_for = "the API server is slow"
                note(f"applying {len(documents)} object(s)")
                if definitions:
                    await apply_definitions(kube, done.append)
                await apply_manifests(kube, documents)
                done += [document.title for document in documents]
                if webhook_url and authority:
                    waits_for = f"--authority: there is no file {str(authority)!r}"
                    note(f"waiting for the file {authority}")
                    certificate = await _authority(authority)
                    waits_for = "the API server is slow"
                    manifest = webhook_manifest(url=webhook_url, authority=certificate)
                    await apply_manifest(kube, manifest)
                    done.append(manifest.title)
    except TimeoutError as error:
        raise CommandError(
            "install", f"not done within {wait_seconds:g} s: {waits_for}", status=Exit.UNREACHABLE
        ) from error
    except KubeError as error:
        raise refused("install", error) from error
    finally:
        await kube.close()
    return done


async def _until_served(kube: HttpKube) -> None:
    while True:
        try:
            await kube.served()
        except UnavailableError:
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


def _check_webhook(url: str | None, authority: Path | None) -> None:
    """Raise `CommandError` for a URL that no API server would call, or one without an authority."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "https" and parts.hostname and parts.username is None
        usable = usable and parts.port != 0 and not parts.query + parts.fragment
    except ValueError:
        usable = False
    if not usable:
        hint = "give the classifier's, such as https://classifier.sluicegate.svc/mutate"
        raise CommandError("--webhook-url", f"{url!r} is no https URL of a server", hint=hint)
    if authority is None:
        raise CommandError("--webhook-url", "needs --authority FILE: the CA of the classifier")


async def _authority(path: Path) -> bytes:
    while not await asyncio.to_thread(path.is_file):  # noqa: ASYNC110 - a file tells nobody
        await asyncio.sleep(RETRY_SECONDS)
    return await asyncio.to_thread(path.read_bytes)
