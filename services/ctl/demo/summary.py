"""The demo's summary from the logs: waits by tier, peak usage, machines."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from services.ctl.demo.load import TIERS
from services.ctl.demo.results import JobResult, LoadResult
from shared.contracts.kube import kinds
from shared.contracts.kube.quantities import format_quantity, parse_quantity
from shared.contracts.kube.queue_specs import quotas_of
from shared.contracts.messages.admissions import HOLDING, Admission
from shared.contracts.messages.hosts import Machine, PlatformState
from shared.contracts.messages.workloads import PodSet
from shared.contracts.subjects import Stream

_P95: Final = 0.95

Cell = tuple[str, str]
"""Flavor and resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRow:
    """Counts and waits of one tier of one kind."""

    kind: str
    tier: str
    submitted: int
    admitted: int
    finished: int
    mean_wait_seconds: float
    p95_wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The largest amount of one resource that was held at any position of the log."""

    queue: str
    flavor: str
    resource: str
    used: str
    quota: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines of one platform."""

    platform: str
    provider: str
    builds: int
    launched: int
    mean_wait_seconds: float
    most_wait_seconds: float
    """From the request for a machine to the answer."""

    kept: int = 0
    """Shared machines that wait for the next build."""

    left: int = 0
    """Slots and machines of builds that have ended: there must be none."""

    @property
    def reused(self) -> int:
        """Builds that got a machine which ran already."""
        return self.builds - self.launched


def tier_rows(cases: Iterable[JobResult]) -> list[TierRow]:
    """A row for each kind and tier, the most important tier first."""
    groups: dict[tuple[str, str], list[JobResult]] = {}
    for case in cases:
        arrival = case.submitted.arrival
        groups.setdefault((arrival.kind.kind, arrival.tier), []).append(case)

    def rank(key: tuple[str, str]) -> tuple[bool, int, str]:
        kind, tier = key
        return (
            kind != kinds.PIPELINE_RUN.kind,
            TIERS.index(tier) if tier in TIERS else len(TIERS),
            tier,
        )

    return [_row(*key, groups[key]) for key in sorted(groups, key=rank)]


def _row(kind: str, tier: str, cases: Sequence[JobResult]) -> TierRow:
    waits = sorted(case.wait_seconds for case in cases if case.wait_seconds is not None)
    return TierRow(
        kind=kind,
        tier=tier,
        submitted=len(cases),
        admitted=len(waits),
        finished=sum(case.finished for case in cases),
        mean_wait_seconds=sum(waits) / len(waits) if waits else 0.0,
        p95_wait_seconds=waits[math.ceil(_P95 * len(waits)) - 1] if waits else 0.0,
    )


def _peaks(result: LoadResult) -> list[Peak]:
    """The peak of every resource with a quota, recomputed from the decisions alone."""
    most = _most(result)
    found: list[Peak] = []
    for key, quota in _quotas(result).items():
        queue, (flavor, resource) = key
        used = most.get(key, 0)
        binary = resource == "memory"
        found.append(
            Peak(
                queue=queue,
                flavor=flavor,
                resource=resource,
                used=format_quantity(used, binary=binary),
                quota=format_quantity(quota, binary=binary),
                share=used / quota if quota else 0.0,
            )
        )
    return found


def _most(result: LoadResult) -> dict[tuple[str, Cell], int]:
    """Replay the decisions, each with the finished pods that its decider knew of."""
    held: dict[str, Admission] = {}
    using: dict[str, dict[tuple[str, Cell], int]] = {}
    done: dict[str, list[PodSet]] = {}
    now: dict[tuple[str, Cell], int] = {}
    most: dict[tuple[str, Cell], int] = {}
    coming = iter(result.message_logs.workloads)
    state = next(coming, None)

    def account(uid: str) -> None:
        for key, amount in using.pop(uid, {}).items():
            now[key] -= amount
        if uid in held:
            using[uid] = _usage(held[uid], done.get(uid, []))
            for key, amount in using[uid].items():
                now[key] = now.get(key, 0) + amount

    for record in result.message_logs.admissions:
        while state is not None and state.sequence <= record.message.inputs.get(
            Stream.WORKLOADS, 0
        ):
            if any(p.reclaimable or p.returned for p in state.message.pod_sets):
                done[state.message.uid] = state.message.pod_sets
                account(state.message.uid)
            state = next(coming, None)
        one = record.message
        held.pop(one.uid, None)
        if one.state in HOLDING:
            held[one.uid] = one
        account(one.uid)
        for key in using.get(one.uid, {}):
            most[key] = max(most.get(key, 0), now[key])
    return most


def _usage(admission: Admission, done: Iterable[PodSet]) -> dict[tuple[str, Cell], int]:
    """What an admission holds, without finished pods and returned machines."""
    usage: dict[tuple[str, Cell], int] = {}
    over = {one.name: one for one in done}
    for pod_set in admission.pod_sets:
        known = over.get(pod_set.name)
        left = pod_set.count - (known.reclaimable if known else 0)
        returned = known.returned if known else {}
        for resource, quantity in pod_set.usage.items():
            key = (admission.cluster_queue, (pod_set.flavors.get(resource, ""), resource))
            share = parse_quantity(quantity) * left // max(1, pod_set.count)
            share = max(0, share - parse_quantity(returned.get(resource, "0")))
            usage[key] = usage.get(key, 0) + share
    return usage


def _quotas(result: LoadResult) -> dict[tuple[str, Cell], int]:
    quotas: dict[tuple[str, Cell], int] = {}
    for record in result.message_logs.observed:
        observed = record.message
        if observed.plural != kinds.CLUSTER_QUEUE.plural or observed.object is None:
            continue
        for cell, quota in quotas_of(observed.object.get("spec", {})):
            quotas[observed.name, cell] = parse_quantity(str(quota.get("nominalQuota", "0")))
    return quotas


def machines(result: LoadResult) -> list[Machines]:
    """Builds, launches and waits for each platform; local platforms launch nothing."""
    waits: dict[tuple[str, str], dict[str, float]] = {}
    hosts: dict[tuple[str, str], set[str]] = {}
    asked: dict[str, datetime] = {}
    for state in result.hosts:
        asked.setdefault(state.uid, state.at)
        if state.state != "ready":
            continue
        key = (state.platform, state.provider)
        seconds = (state.at - asked[state.uid]).total_seconds()
        waits.setdefault(key, {}).setdefault(state.uid, seconds)
        if state.provider:
            hosts.setdefault(key, set()).add(state.host)
    records = {record.platform: record for record in result.platforms}
    return [
        Machines(
            platform=platform,
            provider=provider or "local",
            builds=len(waits[platform, provider]),
            launched=len(hosts.get((platform, provider), ())),
            mean_wait_seconds=fmean(waits[platform, provider].values()),
            most_wait_seconds=max(waits[platform, provider].values()),
            kept=sum(machine.shared for machine in _machines_of(records.get(platform))),
            left=left_behind(records.get(platform)),
        )
        for platform, provider in sorted(waits)
    ]


def _machines_of(record: PlatformState | None) -> list[Machine]:
    return record.machines if record is not None else []


def left_behind(record: PlatformState | None) -> int:
    """Slots and unshared machines that a platform still has."""
    if record is None:
        return 0
    return len(record.seats) + sum(not machine.shared for machine in record.machines)


def print_summary(result: LoadResult, console: Console) -> None:
    """Print the three tables."""
    table = _table("Waits", "kind", "tier", "submitted", "admitted", "finished", "mean", "p95")
    for row in tier_rows(result.cases):
        numbers = (row.submitted, row.admitted, row.finished)
        waits = (f"{row.mean_wait_seconds:.1f} s", f"{row.p95_wait_seconds:.1f} s")
        table.add_row(row.kind, row.tier, *map(str, numbers), *waits)
    console.print(table)
    table = _table("Peak use", "queue", "resource", "peak", "quota", "share")
    for peak in _peaks(result):
        if peak.share:
            share = f"{peak.share:.0%}"
            table.add_row(peak.queue, peak.resource, peak.used, peak.quota, share)
    console.print(table)
    served = machines(result)
    if served:
        title = "Machines (type fake: they exist in memory only)"
        columns = ("builds", "launched", "reused", "mean wait", "longest", "kept", "left behind")
        table = _table(title, "platform", "provider", *columns)
        for each in served:
            waits = (f"{each.mean_wait_seconds:.1f} s", f"{each.most_wait_seconds:.1f} s")
            counts = (each.builds, each.launched, each.reused if each.launched else 0)
            ends = (each.kept, each.left)
            table.add_row(each.platform, each.provider, *map(str, counts), *waits, *map(str, ends))
        console.print(table)


def _table(title: str, *columns: str, text: int = 2) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < text else "right")
    return table
