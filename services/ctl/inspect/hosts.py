"""`sluice hosts`: the machines of each platform, who waits for one and why; and the quota that fits."""

import sys
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.table import Table
from services.provisioner.config.host_config import (
    DynamicPlatform,
    PoolPlatform,
    parse_host_config,
    slots_of,
)
from services.provisioner.config.provider_types import GROUP, KNOWN_TYPES, RULES
from shared.bus.headers import TYPE
from shared.bus.stream_reader import Seen
from shared.contracts.kube.ages import duration
from shared.contracts.kube.kinds import CONFIG_MAP
from shared.contracts.kube.names import OPERATOR_NAMESPACE, slot_resource
from shared.contracts.messages.hosts import HostState, PlatformState
from shared.contracts.multi_platform import AWS_ADDRESSES, HOST_CONFIG
from shared.contracts.subjects import Stream, observed_filter, subject_filter

LOCAL_SLOTS: Final = 1000
"""Builds in the pod itself need no machine, so this is more than anybody starts."""

GROUP_MAX: Final = 16
"""How many resources one resource group of a ClusterQueue may cover."""


@dataclass(slots=True, kw_only=True)
class Platform:
    """The state of one platform."""

    cluster: str
    name: str
    kind: str = ""
    """`local`, `static`, `dynamic`, `pool`; empty if the platform is not configured."""

    slots: int = 0
    running: int = 0
    starting: int = 0
    machines: int = 0
    kept: list[Any] = field(default_factory=list)
    """Slots reserved for a TaskRun of a run that has quota."""

    waiting: list[Any] = field(default_factory=list)
    """Host states of TaskRuns without a host, oldest first."""


def quota_of(data: dict[str, str], *, flavor: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Resource groups for the platforms of a host configuration, and the problems found in it.

    A platform `linux/arm64` becomes the resource `linux-arm64`. `aws-ip` counts the machines of AWS, as
    the shipped rules request it.
    """
    config = parse_host_config(data, available=_types(), rules=RULES)
    slots: dict[str, int] = {}
    addresses = 0
    for name, platform in sorted(config.platforms.items()):
        resource = slot_resource(name)
        slots[resource] = slots.get(resource, 0) + _slots(platform)
        if (
            isinstance(platform, DynamicPlatform | PoolPlatform)
            and platform.machines.provider == "aws"
        ):
            addresses += platform.machines.max_instances
    if addresses:
        slots[AWS_ADDRESSES] = addresses
    groups = []
    chunks = list(_batched(slots, GROUP_MAX))
    for number, chunk in enumerate(chunks, start=1):
        resources = [{"name": name, "nominalQuota": count} for name, count in chunk]
        groups.append(
            {
                "coveredResources": [name for name, _ in chunk],
                "flavors": [
                    {
                        "name": flavor if len(chunks) == 1 else f"{flavor}-{number}",
                        "resources": resources,
                    }
                ],
            }
        )
    return groups, dict(config.errors)


def _batched(slots: dict[str, int], size: int) -> list[list[tuple[str, int]]]:
    """The items of `slots`, `size` at a time."""
    items = list(slots.items())
    return [items[start : start + size] for start in range(0, len(items), size)]


def _types() -> frozenset[str]:
    """Machine types that a configuration may name: ours, and those of installed packages."""
    return KNOWN_TYPES | metadata.entry_points(group=GROUP).names


def _slots(platform: Any) -> int:
    slots = slots_of(platform)
    return LOCAL_SLOTS if slots is None else slots


_KINDS: Final = {
    "LocalPlatform": "local",
    "StaticPlatform": "static",
    "DynamicPlatform": "dynamic",
    "PoolPlatform": "pool",
}


def platforms_of(
    records: list[Any], host_states: list[Any], configs: dict[str, dict[str, str]]
) -> list[Platform]:
    """Build the platforms from `PlatformState`s, `HostState`s and host configurations by cluster."""
    found: dict[tuple[str, str], Platform] = {}

    def of(cluster: str, name: str) -> Platform:
        return found.setdefault((cluster, name), Platform(cluster=cluster, name=name))

    for cluster, data in configs.items():
        config = parse_host_config(data, available=_types(), rules=RULES)
        for name, platform in config.platforms.items():
            shown = of(cluster, name)
            shown.kind = _KINDS[type(platform).__name__]
            shown.slots = _slots(platform)
    for record in records:
        shown = of(record.cluster, record.platform)
        shown.kept = [slot for slot in record.seats if slot.state == "held"]
        shown.running = len(record.seats) - len(shown.kept)
        shown.machines = len(record.machines)
        shown.starting = sum(machine.state == "launching" for machine in record.machines)
    for state in sorted(host_states, key=lambda one: one.at):
        if state.state in {"waiting", "launching"}:
            of(state.cluster, state.platform).waiting.append(state)
    return sorted(found.values(), key=lambda one: (one.cluster, one.name))


def platform_lines(platforms: list[Platform], now: datetime) -> list[str]:
    """The table, then a line for each TaskRun that waits."""
    if not platforms:
        return ["No platforms: no cluster has a ConfigMap host-config, and no machine is in use."]
    columns = ("PLATFORM", "KIND", "PLACES", "RUNNING", "MACHINES", "STARTING", "WAITING", "OLDEST")
    rows = [
        (
            platform.name,
            platform.kind or "unknown",
            "" if platform.kind == "local" else str(platform.slots),
            str(platform.running),
            str(platform.machines),
            str(platform.starting),
            str(len(platform.waiting)),
            duration((now - platform.waiting[0].at).total_seconds()) if platform.waiting else "",
        )
        for platform in platforms
    ]
    lines = Table(columns).lines(rows)
    for platform in platforms:
        lines += [
            f"{slot.namespace}/{slot.name} keeps a place for {platform.name} on {slot.host}"
            for slot in platform.kept
        ]
        for state in platform.waiting:
            why = state.message or f"machine {state.host} is starting"
            lines.append(f"{state.namespace}/{state.name} waits for {platform.name}: {why}")
    return lines


async def show_hosts(url: str | None, directory: Path) -> None:
    """Print the platforms of every cluster that has a host-config or machines."""
    async with open_reader(url, directory) as reader:
        machines = await reader.now(
            Stream.HOSTS, subject_filter("host"), subject_filter("platform")
        )
        config_maps = await reader.now(Stream.OBSERVED, observed_filter(CONFIG_MAP))
    records: list[PlatformState] = []
    host_states: list[HostState] = []
    for seen in machines:
        if seen.headers.get(TYPE) == PlatformState.type:
            record = seen.read(PlatformState, _left_out)
            records += [] if record is None else [record]
        else:
            state = seen.read(HostState, _left_out)
            host_states += [] if state is None else [state]
    configs: dict[str, dict[str, str]] = {}
    for body in (seen.body for seen in config_maps):
        if (body.get("namespace"), body.get("name")) == (OPERATOR_NAMESPACE, HOST_CONFIG):
            configs[str(body.get("cluster"))] = (body.get("object") or {}).get("data") or {}
    print("\n".join(platform_lines(platforms_of(records, host_states, configs), utc_now())))


def _left_out(seen: Seen, error: Exception) -> None:
    print(f"sluice: HOSTS {seen.subject}: left out, it cannot be read: {error}", file=sys.stderr)
