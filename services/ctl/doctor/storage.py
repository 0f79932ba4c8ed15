"""Whether what the streams may grow to fits where the server keeps them."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from services.ctl.doctor.findings import Finding
from shared.bus.stream_reader import StreamReader
from shared.contracts.kube.kinds import PERSISTENT_VOLUME_CLAIM
from shared.contracts.kube.quantities import amount

if TYPE_CHECKING:
    from shared.kube.port import Kube

Json = dict[str, Any]

CLAIMS: Final = re.compile(r".*-nats-\d+")
"""Names of the claims of the StatefulSet `nats`: one volume for each server."""


async def declared(reader: StreamReader) -> tuple[list[Json], int]:
    """How every stream of the account is configured, ours or not, and the account's storage; -1: no limit.

    Raises a `StreamReaderError`.
    """
    found: list[Json] = []
    while True:
        page = await reader.call("STREAM.LIST", {"offset": len(found)})
        streams = page.get("streams") or []
        found += [one["config"] for one in streams]
        if not streams or len(found) >= int(page["total"]):
            break
    limits = (await reader.call("INFO")).get("limits") or {}
    return found, int(limits.get("max_storage", -1))


def storage_findings(configs: Iterable[Json], rooms: Mapping[str, int]) -> list[Finding]:
    """Streams that may grow without end, and places smaller than all streams may become together.

    `rooms`: name of a place to its size in bytes. Each server keeps every stream if it has a replica of each.
    """
    stored = [one for one in configs if one.get("storage") == "file"]
    found = [
        Finding(
            where=f"stream {one['name']}",
            problem="may grow without end",
            advice="run `sluice bus apply`; one of your own: `nats stream edit --max-bytes`",
        )
        for one in stored
        if int(one.get("max_bytes", -1)) <= 0
    ]
    wanted = sum(max(0, int(one.get("max_bytes", -1))) for one in stored)
    return found + [
        Finding(
            where=place,
            problem=f"has {_gib(size)}, and all streams together may grow to {_gib(wanted)}",
            advice="make it larger, or lower max_gib in deploy/nats/streams.yaml and run "
            "`sluice bus apply`: on a full disk the server stops every stream",
        )
        for place, size in sorted(rooms.items())
        if 0 <= size < wanted
    ]


async def volumes(kube: "Kube", *, namespace: str) -> dict[str, int]:
    """The servers' volumes in the namespace of the services; none if the user may not list claims.

    Raises a `KubeError` if the cluster does not answer.
    """
    from shared.kube.port import RefusedError  # noqa: PLC0415

    try:
        claims = await kube.list(PERSISTENT_VOLUME_CLAIM, namespace=namespace)
    except RefusedError:
        return {}
    found = {}
    for claim in claims.items:
        name = claim["metadata"]["name"]
        asked = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
        sizes = (claim.get("status") or {}).get("capacity") or asked
        if CLAIMS.fullmatch(name) and "storage" in sizes:
            found[f"PersistentVolumeClaim {namespace}/{name}"] = amount("storage", sizes["storage"])
    return found


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
