"""`sluice who-preempted`: who was evicted for whom, from the log of decisions."""

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from services.ctl.connect.reader import current, lookout
from services.ctl.get.table import Table, coloured
from shared.bus.nats.stream_reader import Look, Seen
from shared.contracts import subjects
from shared.contracts.kube.ages import duration

__all__ = ["Preemption", "preemptions", "who_preempted"]

Json = dict[str, Any]
HEADER = ("AGO", "WORKLOAD", "CLUSTERQUEUE", "PREEMPTED BY", "MESSAGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """One eviction for somebody else's sake."""

    at: datetime
    workload: str
    """``<namespace>/<name>``, as `preempted_by`."""

    cluster_queue: str
    preempted_by: str
    message: str
    body: Json


def preemptions(decisions: list[Seen]) -> list[Preemption]:
    """Each preemption once, oldest first: a decision repeats what still holds."""
    found: dict[tuple[str, str, str], Preemption] = {}
    for seen in decisions:
        body = seen.body
        if body.get("state") != "evicted" or not body.get("preempted_by"):
            continue
        workload = f"{body['namespace']}/{body['name']}"
        found.setdefault(
            (workload, str(body.get("uid")), str(body.get("decided_at"))),
            Preemption(
                at=datetime.fromisoformat(body["decided_at"]),
                workload=workload,
                cluster_queue=str(body.get("cluster_queue", "")),
                preempted_by=str(body["preempted_by"]),
                message=str(body.get("message", "")),
                body=body,
            ),
        )
    return sorted(found.values(), key=lambda preemption: preemption.at)


async def who_preempted(
    workload: tuple[str, str] | None,
    *,
    namespace: str | None,
    output: str,
    url: str | None,
    directory: Path,
) -> None:
    """Print the preemptions of one workload, of a namespace, or of all (None)."""
    async with lookout(url, directory) as look:
        found = await _read(look, workload, namespace)
    if output == "json":
        print(json.dumps([each.body for each in found], indent=4))
        return
    if not found:
        whom = "/".join(workload) if workload else "anybody"
        print(f"Nobody preempted {whom}, as far as the log goes back.", file=sys.stderr)
        return
    now = current()
    rows = [
        (
            duration((now - each.at).total_seconds()),
            *(each.workload, each.cluster_queue, each.preempted_by, each.message),
        )
        for each in found
    ]
    print("\n".join(Table(HEADER, colours=coloured()).lines(rows)))


async def _read(
    look: Look, workload: tuple[str, str] | None, namespace: str | None
) -> list[Preemption]:
    if workload is not None:
        namespace = workload[0]
    where = "*" if namespace is None else subjects.encode(namespace)
    if workload is None:
        return preemptions(await look.replay("ADMISSIONS", f"sluice.admission.*.{where}.*"))
    names = {workload[1]}
    # The job's name leads to its workloads, also to those that are over.
    for seen in await look.replay("WORKLOADS", f"sluice.workload.*.{where}.*"):
        if (seen.body.get("owner") or {}).get("name") == workload[1]:
            names.add(str(seen.body["name"]))
    filters = [f"sluice.admission.*.{where}.{subjects.encode(name)}" for name in sorted(names)]
    return preemptions(await look.replay("ADMISSIONS", *filters))
