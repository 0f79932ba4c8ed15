"""`sluice explain`: why a workload waits, as the quota service answers."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.clusters import refuse_unknown_cluster
from services.ctl.inspect.preempted import preemptions
from shared.bus.direct_read import StreamReaderError
from shared.bus.stream_reader import SilentError, StreamReader
from shared.contracts import rpc
from shared.contracts.kube import names
from shared.contracts.kube.ages import age, duration, instant
from shared.contracts.reasons import HOPELESS, NEVER, NOT_WAITING
from shared.contracts.subjects import Stream, subject_pattern
from shared.runtime.command import CommandError, Exit

ANSWER_SECONDS: Final = 5.0
QUOTA_AWAY: Final = "is a quota service running, and has it read the streams? `sluice doctor` looks"
LATE_SECONDS: Final = 60.0
"""An earliest start that is nearer says nothing: it waits now."""

LOG_SECONDS: Final = 1.0
"""The facts wait no longer for what the log of decisions says besides."""

_WIDTH: Final = 16

Json = dict[str, Any]


async def explain(
    namespace: str,
    name: str,
    *,
    cluster: str | None,
    output: str,
    forecast: bool,
    forecast_seconds: float = 2.0,
    configuration: Path | None = None,
    url: str | None,
    directory: Path,
) -> None:
    """Print the answer. Raises `CommandError` if nobody answers, or if there is no such workload."""
    # Whoever may read the streams with this command may see all namespaces.
    question: Json = {"namespace": namespace, "name": name, "all_namespaces": True}
    if cluster is not None:
        question["cluster"] = cluster
    async with open_reader(url, directory) as reader:
        try:
            data = await reader.ask(
                rpc.EXPLAIN, json.dumps(question).encode(), timeout_seconds=ANSWER_SECONDS
            )
        except SilentError as error:
            raise CommandError(
                "the quota service", str(error), hint=QUOTA_AWAY, status=Exit.UNREACHABLE
            ) from error
        answer: Json = json.loads(data)
        items: list[Json] = answer.get("items") or []
        if not items:
            if cluster is not None:
                await refuse_unknown_cluster(reader, cluster)
            problem = str(answer.get("problem", "no answer"))
            raise CommandError(
                f"{namespace}/{name}",
                problem.replace(f"of {namespace}/{name}", "of it", 1),
                hint=f"`sluice get workloads -n {namespace}` lists what is known; "
                f"a job that is not among them may lack the label {names.QUEUE}",
                status=Exit.FAILED,
            )
        await add_preemptors(reader, [item for item in items if item["reason"] not in NOT_WAITING])
        waiting = [item for item in items if item["reason"] not in NOT_WAITING] if forecast else []
        if output == "text":
            # At once: the forecast takes a moment.
            print("\n\n".join("\n".join(explained(item, utc_now())) for item in items), flush=True)
        if any(item["reason"] not in HOPELESS for item in waiting):
            from services.quota.forecast import Budget  # noqa: PLC0415
            from services.whatif.expected_start import add_expected_starts  # noqa: PLC0415

            budget = Budget(forecast_seconds, monotonic)
            await add_expected_starts(
                reader, waiting, utc_now(), budget=budget, configuration=configuration
            )
    if output == "json":
        print(json.dumps(items, indent=4))
        return
    for item in waiting:
        title = "" if len(items) == 1 else f"of {_title(item)} "
        print(_line("Expected start", title + expected(item, utc_now())))


async def add_preemptors(reader: StreamReader, items: list[Json]) -> None:
    """Add who preempted each item last, and when, as far as the log of decisions goes back and answers."""
    for item in items:
        place = (item["cluster"], item["namespace"], item["name"])
        pattern = subject_pattern("admission", *place)
        try:
            async with asyncio.timeout(LOG_SECONDS):
                decisions = await reader.valid(await reader.replay(Stream.ADMISSIONS, pattern))
        except (StreamReaderError, TimeoutError):  # Who may ask may not always read the log.
            return
        found = preemptions(decisions)
        created = instant(item["created_at"])
        # An earlier one may have had the same name.
        found = [each for each in found if created is None or each.at >= created]
        if found:
            item["preempted_by"] = found[-1].preempted_by
            item["preempted_at"] = found[-1].at.isoformat()


def _title(item: Json) -> str:
    return f"{item['namespace']}/{item['name']} in {item['cluster']}"


def explained(item: Json, now: datetime) -> Iterator[str]:
    """The lines of one explanation."""
    title = f"{item['namespace']}/{item['name']}"
    yield title + (f" ({item['job']})" if item.get("job") else "") + f" in {item['cluster']}"
    yield _line("Reason", str(item["reason"]))
    yield _line("Message", str(item["message"]))
    yield _line("Queue", _queue(item))
    yield _line("Created", _since(item, now))
    if item["reason"] in NOT_WAITING:
        return
    if item.get("preempted_by"):
        at = str(item["preempted_at"])
        yield _line("Preempted", f"by {item['preempted_by']} at {at} ({age(at, now)})")
    if item.get("position"):
        yield _line("Position", _position(item))
        yield _line("Ahead", _ahead(item))
    for shortage in item.get("shortages", []):
        yield _line("Binding", _shortage(shortage))
        yield _line("Held by", _held(shortage))
    if item.get("victims") or item.get("victims_elsewhere"):
        victims = _names(item.get("victims", []), int(item.get("victims_elsewhere", 0)))
        yield _line("Preempts", victims)
    if item.get("unready") or item.get("unready_elsewhere"):
        unready = _names(item.get("unready", []), int(item.get("unready_elsewhere", 0)))
        yield _line("Not ready", unready)
    if item.get("fair_shares"):
        shares = item["fair_shares"].items()
        yield _line("Fair shares", ", ".join(f"{whose} {share}" for whose, share in shares))
    for check, state in item.get("checks", {}).items():
        text = item.get("check_messages", {}).get(check)
        yield _line("Check", f"{check} is {state}" + (f": {text}" if text else ""))
    if item.get("requeue_at"):
        yield _line("Not before", str(item["requeue_at"]))
    if item.get("remedy"):
        yield _line("What would help", str(item["remedy"]))


def _line(label: str, text: str) -> str:
    return f"  {label + ':':<{_WIDTH}} {text}"


def _queue(item: Json) -> str:
    text = str(item.get("queue") or "<none>")
    if item.get("cluster_queue"):
        text += f" -> ClusterQueue {item['cluster_queue']}"
    return f"{text}, priority {item.get('priority', 0)}"


def _since(item: Json, now: datetime) -> str:
    return f"{item['created_at']} ({age(item['created_at'], now)})"


def _position(item: Json) -> str:
    text = f"{item['position']} in ClusterQueue {item.get('cluster_queue')}"
    if item.get("position_in_local_queue"):
        text += f", {item['position_in_local_queue']} in LocalQueue {item.get('queue')}"
    return text


def _ahead(item: Json) -> str:
    here, elsewhere = int(item.get("ahead_here", 0)), int(item.get("ahead_elsewhere", 0))
    names = list(item.get("ahead", []))
    if here > len(names):
        names.append(f"{here - len(names)} more here")
    return _names(names, elsewhere) if here or elsewhere else "nobody"


def _names(names: list[str], elsewhere: int) -> str:
    parts = [*names]
    if elsewhere:
        parts.append(f"{elsewhere} of other namespaces")
    return ", ".join(parts)


def _shortage(shortage: Json) -> str:
    text = (
        f"{shortage['resource']} in flavor {shortage['flavor']}: asked {shortage['asked']}, "
        f"free {shortage['free']} (of which borrowable {shortage['borrowable']}), "
        f"at most {shortage['most']}"
    )
    return text + (f"; {shortage['limit']}" if shortage.get("limit") else "")


def _held(shortage: Json) -> str:
    parts = [_holder(holder) for holder in shortage.get("holders", [])]
    if count := int(shortage.get("holders_elsewhere", 0)):
        parts.append(f"{count} more {shortage['held_elsewhere']}")
    return ", ".join(parts) or "nobody"


def _holder(holder: Json) -> str:
    name = "/".join(filter(None, (holder.get("namespace"), holder["name"])))
    queue = f" (ClusterQueue {holder['cluster_queue']})" if holder.get("cluster_queue") else ""
    return f"{name} {holder['amount']}{queue}"


def expected(item: Json, now: datetime) -> str:
    """When it starts, how sure that is, or why it is unknown."""
    if item.get("reason") in HOPELESS:
        return NEVER
    at = instant(item.get("expected_start"))
    earliest, latest = (instant(item.get(f"expected_{end}")) for end in ("earliest", "latest"))
    begin = "" if earliest is None else _from_now(earliest, now)
    if at is None:
        because = item.get("expected_start_unknown_because")
        if not because:
            return "as soon as its checks are ready"
        is_late = earliest is not None and (earliest - now).total_seconds() >= LATE_SECONDS
        return f"in {begin} at the earliest: {because}" if is_late else f"unknown: {because}"
    end = "any time" if latest is None else _from_now(latest, now)
    rough = f"; {item['expected_start_rough']}" if item.get("expected_start_rough") else ""
    runs = item.get("expected_from_runs")
    runs_in_words = "1 run" if runs == 1 else f"{runs} runs"
    return (
        f"in {_from_now(at, now)} (80 %: {begin} to {end}; from {runs_in_words} of its kind{rough})"
    )


def _from_now(at: datetime, now: datetime) -> str:
    return duration(max(0.0, (at - now).total_seconds()))
