"""`sluice status`: one screen that says whether it is healthy, what waits, and what to do."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.doctor.command import examine
from services.ctl.doctor.findings import Finding
from services.ctl.get.command import read
from services.ctl.get.snapshot import ObjectKey, Snapshot
from services.ctl.get.table import Table
from services.ctl.get.usage import quota_of, used_of_quota
from services.ctl.get.workloads import status_of, waiting_reason
from shared.contracts.kube import kinds, names
from shared.contracts.kube.ages import age
from shared.contracts.kube.bodies import spec_of
from shared.contracts.reasons import PENDING_EVALUATION
from shared.contracts.subjects import Stream, observed_filter, subject_filter
from shared.runtime.command import Exit

SHOWN_MAX: Final = 5
"""Rows of each part: it is one screen."""

_INPUTS: Final = (
    (Stream.WORKLOADS, subject_filter("workload")),
    (Stream.ADMISSIONS, subject_filter("admission")),
    (Stream.QUEUES, subject_filter("queue")),
    (Stream.OBSERVED, observed_filter(kinds.CLUSTER_QUEUE)),
    (Stream.OBSERVED, observed_filter(kinds.LOCAL_QUEUE)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Workloads that wait for the same reason."""

    reason: str
    count: int
    oldest: str
    """``<namespace>/<name>`` of the one that waits longest."""

    since: str


async def status(*, output: str, url: str | None, directory: Path) -> int:
    """Print the screen; return the exit status: 1 if something is wrong."""
    async with open_reader(url, directory) as reader:
        findings = await examine(reader)
        snapshot = await read(reader, _INPUTS)
    wrong = [finding for finding in findings if finding.wrong]
    waits = waiting(snapshot)
    if output == "json":
        shown = {
            "healthy": not wrong,
            "workloads": counts(snapshot),
            "waiting": [asdict(wait) for wait in waits],
            "findings": [asdict(finding) for finding in findings],
        }
        print(json.dumps(shown, indent=4))
    else:
        print("\n".join(screen(snapshot, findings, waits, utc_now())))
    return Exit.FAILED if wrong else Exit.OK


def counts(snapshot: Snapshot) -> dict[str, int]:
    """Workloads by status, in the words of `sluice get`. Copies on spokes are no further workloads."""
    found: dict[str, int] = {}
    for ident in _workloads(snapshot):
        word = status_of(snapshot, ident)
        found[word] = found.get(word, 0) + 1
    return found


def _workloads(snapshot: Snapshot) -> list[ObjectKey]:
    """All but those that are copies of another one here."""
    copies = {
        ident
        for ident, state in snapshot.workloads.items()
        if names.ORIGIN in (state.get("labels") or {})
    }
    originals = {(each.namespace, each.name) for each in snapshot.workloads if each not in copies}
    return [
        each
        for each in snapshot.workloads
        if each not in copies or (each.namespace, each.name) not in originals
    ]


def waiting(snapshot: Snapshot) -> list[Wait]:
    """Why workloads wait, the most frequent reason first."""
    groups: dict[str, list[ObjectKey]] = {}
    for ident in _workloads(snapshot):
        if status_of(snapshot, ident) == "PENDING":
            reason = waiting_reason(snapshot, ident) or PENDING_EVALUATION
            groups.setdefault(reason, []).append(ident)

    def since(ident: ObjectKey) -> str:
        return str(snapshot.workloads[ident].get("created_at") or "")

    result = []
    for reason, idents in groups.items():
        oldest = min(idents, key=lambda ident: (since(ident), ident))
        result.append(
            Wait(
                reason=reason,
                count=len(idents),
                oldest=f"{oldest.namespace}/{oldest.name}",
                since=since(oldest),
            )
        )
    return sorted(result, key=lambda wait: (-wait.count, wait.reason))


def screen(
    snapshot: Snapshot, findings: list[Finding], waits: list[Wait], now: datetime
) -> Iterator[str]:
    """The lines."""
    wrong = sum(finding.wrong for finding in findings)
    yield "Healthy: yes" if not wrong else f"Healthy: no, {wrong} wrong"
    found = counts(snapshot)
    holding = sum(found.get(word, 0) for word in ("ADMITTED", "QUOTARESERVED", "EVICTED"))
    yield f"Workloads: {found.get('PENDING', 0)} wait, {holding} have quota"
    queues = snapshot.of(kinds.CLUSTER_QUEUE)
    if queues:
        yield ""
        titles = ("CLUSTERQUEUE", "PENDING", "ADMITTED", "USED/QUOTA")
        rows = [(ident.cluster, *_queue(snapshot, ident)) for ident in _busiest(snapshot)]
        first = 0 if len({ident.cluster for ident in queues}) > 1 else 1
        yield from Table(("CLUSTER", *titles)[first:]).lines([row[first:] for row in rows])
        yield from _more(len(queues), "`sluice get clusterqueues`")
    if waits:
        yield ""
        yield from Table(("WAITING BECAUSE", "COUNT", "LONGEST", "WORKLOAD")).lines(
            [
                (wait.reason, str(wait.count), age(wait.since, now), wait.oldest)
                for wait in waits[:SHOWN_MAX]
            ]
        )
        yield f"`sluice explain {waits[0].oldest}` says why, and what would help"
    if findings:
        yield ""
        yield "What to do:"
        for finding in findings[:SHOWN_MAX]:
            yield f"  {finding.where}: {finding.problem}"
            yield f"    {finding.advice}"
        yield from _more(len(findings), "`sluice doctor`")


def _more(count: int, command: str) -> Iterator[str]:
    if count > SHOWN_MAX:
        yield f"{count - SHOWN_MAX} more: {command}"


def _busiest(snapshot: Snapshot) -> list[ObjectKey]:
    """The ClusterQueues in which most waits."""

    def order(ident: ObjectKey) -> tuple[int, ObjectKey]:
        return -int(snapshot.queues.get(ident, {}).get("pending") or 0), ident

    return sorted(snapshot.of(kinds.CLUSTER_QUEUE), key=order)[:SHOWN_MAX]


def _queue(snapshot: Snapshot, ident: ObjectKey) -> tuple[str, ...]:
    queue, spec = snapshot.queues.get(ident, {}), spec_of(snapshot.of(kinds.CLUSTER_QUEUE)[ident])
    on_hold = (spec.get("stopPolicy") or "None") != "None"
    return (
        ident.name + (" (on hold)" if on_hold else ""),
        str(queue.get("pending", "")),
        str(queue.get("admitted", "")),
        used_of_quota(queue, quota_of(spec)),
    )
