"""Builders of requests, platforms, ledgers and rounds, with a default for every field."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from services.provisioner.allocation.allocate import allocate
from services.provisioner.allocation.ledger import AllocationLedger, HostSlot, Machine, MachineState
from services.provisioner.allocation.results import AllocationOutcome, MachineObservation
from services.provisioner.config.host_config import (
    DynamicPlatform,
    Host,
    MachineSpec,
    PlatformConfig,
    PoolPlatform,
    StaticPlatform,
)
from services.provisioner.naming import build_user_name
from services.provisioner.task_runs.requests import HostRequest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLATFORM = "linux/arm64"


def request(name: str, *, created: int = 0, failed: Iterable[str] = ()) -> HostRequest:
    return HostRequest(
        uid=f"uid-{name}",
        namespace="team-a",
        name=name,
        platform=PLATFORM,
        created_at=NOON + timedelta(seconds=created),
        failed_hosts=tuple(failed),
    )


def requests(names: str) -> list[HostRequest]:
    """`a b c` gives three requests, the first one is the oldest."""
    return [request(name, created=age) for age, name in enumerate(names.split())]


def host(name: str, concurrency: int = 1) -> Host:
    return Host(
        name=name,
        address=f"at-{name}",
        user="root",
        platform=PLATFORM,
        secret="keys",
        concurrency=concurrency,
    )


def static(**concurrency: int) -> StaticPlatform:
    return StaticPlatform(
        platform=PLATFORM, hosts=tuple(host(name, places) for name, places in concurrency.items())
    )


def spec(maximum: int = 1, *, timeout: int = 600) -> MachineSpec:
    return MachineSpec(
        provider="fake", max_instances=maximum, tag="prod", allocation_timeout_seconds=timeout
    )


def dynamic(maximum: int = 1, *, timeout: int = 600) -> DynamicPlatform:
    return DynamicPlatform(platform=PLATFORM, machines=spec(maximum, timeout=timeout))


def pool(maximum: int = 1, *, concurrency: int = 2, max_age: int = 3600) -> PoolPlatform:
    return PoolPlatform(
        platform=PLATFORM,
        machines=spec(maximum),
        concurrency=concurrency,
        max_age_seconds=max_age,
    )


def slot(name: str, on: str) -> HostSlot:
    return HostSlot(
        uid=f"uid-{name}",
        namespace="team-a",
        name=name,
        host=on,
        address=f"at-{on}",
        user=build_user_name(uid=f"uid-{name}", host=on),
    )


def machine(
    name: str,
    state: MachineState = "running",
    *,
    holder: str = "",
    shared: bool = False,
    age: int = 0,
    timeout: int = 600,
) -> Machine:
    launched_at = NOON - timedelta(seconds=age)
    return Machine(
        name=name,
        provider="fake",
        tag="prod",
        state=state,
        shared=shared,
        holder=f"uid-{holder}" if holder else "uid-nobody",
        task_run=f"team-a:{holder}",
        address=f"at-{name}" if state == "running" else "",
        launched_at=launched_at,
        deadline=launched_at + timedelta(seconds=timeout),
    )


def ledger(
    *,
    slots: Iterable[HostSlot] = (),
    machines: Iterable[Machine] = (),
    attempts: Mapping[str, int] | None = None,
    refusals: Mapping[str, str] | None = None,
) -> AllocationLedger:
    return AllocationLedger(
        cluster="hub",
        platform=PLATFORM,
        slots={one.uid: one for one in slots},
        machines={one.name: one for one in machines},
        attempts=attempts or {},
        refusals=refusals or {},
    )


def round_(
    *,
    config: PlatformConfig | str,
    asking: Iterable[HostRequest] = (),
    before: AllocationLedger | None = None,
    settled: Iterable[str] = (),
    observations: Mapping[str, MachineObservation] | None = None,
    used_by_other_platforms: Mapping[str, int] | None = None,
    now: datetime = NOON,
) -> AllocationOutcome:
    return allocate(
        ledger=before or ledger(),
        config=config,
        requests=asking,
        settled=frozenset(settled),
        observations=observations or {},
        used_by_other_platforms=used_by_other_platforms or {},
        now=now,
    )
