"""`sluice who-preempted`: which workload was evicted for which other one, from the log of decisions."""

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.table import Table, coloured
from shared.bus.stream_reader import Seen, StreamReader
from shared.contracts.kube.ages import duration
from shared.contracts.refs import NamespacedName
from shared.contracts.subjects import Stream, subject_pattern
from shared.runtime.command import CommandError, Exit

Json = dict[str, Any]
HEADER = ("AGO", "WORKLOAD", "CLUSTERQUEUE", "PREEMPTED BY", "MESSAGE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """One preemption."""

    at: datetime
    workload: str
    """``<namespace>/<name>``, as `preempted_by`."""

    cluster_queue: str
    preempted_by: str
    message: str
    body: Json


def preemptions(decisions: list[Seen]) -> list[Preemption]:
    """Each preemption once, oldest first: later decisions repeat it."""
    found: dict[tuple[str, str, str], Preemption] = {}
    for message in decisions:
        body = message.body
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
    workload: NamespacedName | None,
    *,
    namespace: str | None,
    output: str,
    url: str | None,
    directory: Path,
) -> None:
    """Print the preemptions of one workload, of a namespace, or of all (None)."""
    async with open_reader(url, directory) as reader:
        found = await _read(reader, workload, namespace)
    if output == "json":
        print(json.dumps([each.body for each in found], indent=4))
        return
    if not found:
        whom = workload.path if workload else "anybody"
        print(f"Nobody preempted {whom}, as far as the log goes back.", file=sys.stderr)
        return
    now = utc_now()
    rows = [
        (
            duration((now - each.at).total_seconds()),
            *(each.workload, each.cluster_queue, each.preempted_by, each.message),
        )
        for each in found
    ]
    print("\n".join(Table(HEADER, colours=coloured()).lines(rows)))


async def _names(reader: StreamReader, workload: NamespacedName) -> set[str]:
    """Names of the Workloads for which `workload` stands, as far as their states are in the log."""
    namespace, name = workload
    # A job's name stands for all its workloads, finished ones included.
    return {
        str(message.body["name"])
        for message in await reader.replay(
            Stream.WORKLOADS, subject_pattern("workload", namespace=namespace)
        )
        if name in {message.body["name"], (message.body.get("owner") or {}).get("name")}
    }


async def _read(
    reader: StreamReader, workload: NamespacedName | None, namespace: str | None
) -> list[Preemption]:
    """The preemptions that were asked for. Raises `CommandError` for a workload that no log knows."""
    if workload is None:
        filters = [subject_pattern("admission", namespace=namespace)]
        return preemptions(await reader.valid(await reader.replay(Stream.ADMISSIONS, *filters)))
    names = await _names(reader, workload)
    filters = [
        subject_pattern("admission", namespace=workload.namespace, name=name)
        for name in sorted(names | {workload.name})
    ]
    decisions = await reader.replay(Stream.ADMISSIONS, *filters)
    if not (names or decisions):
        raise CommandError(
            workload.path,
            "the logs know nothing of it",
            hint="give the name of a job or of its Workload; `sluice get workloads -A` lists them",
            status=Exit.FAILED,
        )
    return preemptions(await reader.valid(decisions))
