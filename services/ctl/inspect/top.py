"""`sluice top`: usage of the queues, live on a terminal, else one line for each queue."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from services.ctl.connect.reader import open_reader
from services.ctl.get.command import read
from services.ctl.get.snapshot import Json, Snapshot
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import spec_of
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.contracts.kube.queue_specs import quotas_of
from shared.contracts.subjects import Stream, observed_filter, subject_pattern

if TYPE_CHECKING:
    from rich.table import Table

BAR_CELLS: Final = 20
BUSY: Final = 0.9
"""Share of nominal quota from which a bar is yellow; it is red if the queue borrows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceUsage:
    """Usage of one resource in one flavor."""

    flavor: str
    resource: str
    used: str
    nominal: str
    borrowed: str
    share: float
    """Used divided by nominal; 1 if something is used and nothing is nominal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """One ClusterQueue."""

    name: str
    cluster: str
    cohort: str
    active: bool
    pending: int
    reserving: int
    admitted: int
    usages: tuple[ResourceUsage, ...]


async def top(*, once: bool, seconds: float, url: str | None, directory: Path) -> None:
    """Show the queues; on a terminal repeatedly, until Ctrl-C."""
    inputs = [
        (Stream.QUEUES, subject_pattern("queue", namespace="")),
        (Stream.OBSERVED, observed_filter(kinds.CLUSTER_QUEUE)),
    ]
    async with open_reader(url, directory) as reader:
        if once or not sys.stdout.isatty():
            for line in lines(queue_lines(await read(reader, inputs))):
                print(line)
            return
        from rich.live import Live  # noqa: PLC0415

        with Live(screen=True, auto_refresh=False) as live:
            while True:
                snapshot = await read(reader, inputs)
                live.update(_table(queue_lines(snapshot)), refresh=True)
                await asyncio.sleep(seconds)


def queue_lines(snapshot: Snapshot) -> list[QueueLine]:
    """The ClusterQueues, those with most pending workloads first."""
    found = []
    for ident, status in snapshot.queues.items():
        if status.get("kind") != "ClusterQueue":
            continue
        spec = spec_of(snapshot.of(kinds.CLUSTER_QUEUE).get(ident))
        found.append(
            QueueLine(
                name=ident.name,
                cluster=ident.cluster,
                cohort=str(spec.get("cohortName") or spec.get("cohort") or ""),
                active=bool(status.get("active")),
                pending=int(status["pending"]),
                reserving=int(status["reserving"]),
                admitted=int(status["admitted"]),
                usages=tuple(_usages(spec, status)),
            )
        )
    return sorted(found, key=lambda line: (-line.pending, line.cluster, line.name))


def _usages(spec: Json, status: Json) -> Iterator[ResourceUsage]:
    nominal = {place: str(quota.get("nominalQuota", 0)) for place, quota in quotas_of(spec)}
    used = {
        (str(flavor["name"]), str(resource["name"])): resource
        for flavor in status.get("reservation") or []
        for resource in flavor.get("resources") or []
    }
    for flavor, resource in {**nominal, **used}:
        found = used.get((flavor, resource), {})
        most = nominal.get((flavor, resource), "0")
        total = str(found.get("total", "0"))
        yield ResourceUsage(
            flavor=flavor,
            resource=resource,
            used=total,
            nominal=most,
            borrowed=str(found.get("borrowed", "0")),
            share=_share(total, most),
        )


def _share(used: str, nominal: str) -> float:
    try:
        part, whole = parse_quantity(used), parse_quantity(nominal)
    except QuantityError:
        return 0.0  # Quota ignores the malformed object, and says so in its log.
    if whole == 0:
        return 1.0 if part else 0.0
    return part / whole


def lines(queues: list[QueueLine]) -> list[str]:
    """For pipes and logs: one line for each queue, ``key=value``."""
    return [
        " ".join(
            [
                f"queue={queue.name}",
                f"cluster={queue.cluster}",
                f"active={str(queue.active).lower()}",
                f"pending={queue.pending}",
                f"reserving={queue.reserving}",
                f"admitted={queue.admitted}",
                *(
                    f"{usage.flavor}/{usage.resource}={usage.used}/{usage.nominal}"
                    + (f"(borrowed={usage.borrowed})" if usage.borrowed != "0" else "")
                    for usage in queue.usages
                    if usage.used != "0"
                ),
            ]
        )
        for queue in queues
    ]


def _table(queues: list[QueueLine]) -> "Table":
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    several = len({queue.cluster for queue in queues}) > 1
    clusters = ("CLUSTER",) if several else ()
    for title in (
        *clusters,
        "QUEUE",
        "COHORT",
        "PENDING",
        "RESERVING",
        "ADMITTED",
        "USE OF NOMINAL QUOTA",
    ):
        table.add_column(title, justify="right" if title.endswith(("ING", "TED")) else "left")
    for queue in queues:
        bars = Text("\n").join(
            Text.assemble(
                (bar(usage.share), "red" if usage.share > 1 else _colour(usage.share)),
                f" {usage.used}/{usage.nominal} {usage.resource} ({usage.flavor})",
                f" borrows {usage.borrowed}" if usage.borrowed != "0" else "",
            )
            for usage in queue.usages
            if usage.used != "0"
        )
        style = "" if queue.active else "dim"
        name = queue.name + ("" if queue.active else " (inactive)")
        counts = map(str, (queue.pending, queue.reserving, queue.admitted))
        cluster = (queue.cluster,) if several else ()
        table.add_row(*cluster, name, queue.cohort, *counts, bars, style=style)
    return table


def _colour(share: float) -> str:
    return "yellow" if share >= BUSY else "green"


def bar(share: float) -> str:
    """A bar that is full at nominal quota; borrowing does not lengthen it."""
    filled = round(BAR_CELLS * min(1.0, share))
    return "█" * filled + "░" * (BAR_CELLS - filled)
