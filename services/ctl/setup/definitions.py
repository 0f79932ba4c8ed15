"""The definitions of our kinds in a cluster that `sluice dev` is pointed at, where they are missing.

A cluster that has them, from Kueue or from `deploy/kubernetes/crds`, keeps what it has.
"""

import asyncio
import base64
from collections.abc import Callable
from typing import Final

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.conditions import is_true
from shared.contracts.kube.kinds import CUSTOM_RESOURCE_DEFINITION
from shared.contracts.kube.names import MANAGED_BY_LABEL
from shared.contracts.kueue.definitions import ALL_DEFINITIONS, DEFINITIONS, Definition, crd
from shared.kube.port import AlreadyExistsError, Kube, KubeError, UnavailableError
from shared.runtime.command import CommandError, Exit

MANAGED_BY: Final = {MANAGED_BY_LABEL: "sluice-dev"}
"""Label of the definitions that `sluice dev` created, and may change."""

ESTABLISHED_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1

Say = Callable[[str], None]


async def apply_definitions(kube: Kube, say: Say) -> None:
    """Create missing definitions, and return once all are served. Raises `CommandError`.

    Definitions of an earlier `sluice dev` are updated; their conversion webhook is gone.
    """
    try:
        there = await _existing(kube)
        missing = [one for one in ALL_DEFINITIONS if one.name not in there]
        for definition in ALL_DEFINITIONS:
            await _apply(kube, definition, there.get(definition.name))
        if missing:
            say(f"{len(missing)} definitions of kinds were missing: applied")
        await _until_established(kube)
    except UnavailableError as error:
        raise CommandError("the cluster", str(error), status=Exit.UNREACHABLE) from error
    except KubeError as error:
        raise CommandError("the definitions of our kinds", f"refused: {error}") from error


async def enable_conversion(kube: Kube, *, url: str, authority: bytes) -> None:
    """Let the webhook at `url` convert between the versions of our definitions. Raises `CommandError`.

    Without it, `v1beta1` is served only where it says the same as `v1beta2`.
    """
    client = {"url": url, "caBundle": base64.b64encode(authority).decode()}
    conversion = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
    }
    try:
        there = await _existing(kube)
        for definition in DEFINITIONS:
            if not _ours(there.get(definition.name)):
                continue
            wanted = crd(definition, webhook=True)["spec"] | {"conversion": conversion}
            await kube.patch(CUSTOM_RESOURCE_DEFINITION, None, definition.name, {"spec": wanted})
        await _until_established(kube)
    except KubeError as error:
        raise CommandError("the conversion of our kinds", f"refused: {error}") from error


async def disable_conversion(kube: Kube) -> None:
    """Remove the conversion webhook, which is about to end: else `v1beta1` could not be read.

    Raises `KubeError`.
    """
    there = await _existing(kube)
    for definition in DEFINITIONS:
        if _ours(there.get(definition.name)):
            await _apply(kube, definition, there[definition.name])


async def _existing(kube: Kube) -> dict[str, Body]:
    listing = await kube.list(CUSTOM_RESOURCE_DEFINITION)
    return {item["metadata"]["name"]: item for item in listing.items}


def _ours(obj: Body | None) -> bool:
    return obj is not None and MANAGED_BY.items() <= (obj["metadata"].get("labels") or {}).items()


async def _apply(kube: Kube, definition: Definition, there: Body | None) -> None:
    wanted = crd(definition, webhook=False)
    if there is None:
        wanted["metadata"]["labels"] = dict(MANAGED_BY)
        try:
            await kube.create(CUSTOM_RESOURCE_DEFINITION, wanted)
        except AlreadyExistsError:
            return  # Another program was faster: the definition is not ours.
    elif _ours(there):
        spec = wanted["spec"] | {"conversion": {"strategy": "None", "webhook": None}}
        await kube.patch(CUSTOM_RESOURCE_DEFINITION, None, definition.name, {"spec": spec})


async def _until_established(kube: Kube) -> None:
    names = {definition.name for definition in ALL_DEFINITIONS}
    try:
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            while waiting := names - await _established(kube):  # noqa: ASYNC110 - asked, not told
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise CommandError(
            ", ".join(sorted(waiting)),
            f"not established within {ESTABLISHED_SECONDS:g} s",
            hint="kubectl get crd -o yaml says why",
        ) from error


async def _established(kube: Kube) -> set[str]:
    served = {(group, plural) for group, _, plural in await kube.served()}
    names = set()
    for name, obj in (await _existing(kube)).items():
        spec = obj["spec"]
        if is_true(obj, "Established") and (spec["group"], spec["names"]["plural"]) in served:
            names.add(name)
    return names
