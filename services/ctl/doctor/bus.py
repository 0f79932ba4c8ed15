"""Examines the bus: streams, consumers, leases, answers of quota, dead letters."""

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from services.ctl.doctor.findings import Finding
from shared.bus.admin.permissions import reads_of
from shared.bus.nats.stream_drift import check
from shared.bus.port import BusError
from shared.bus.stream_reader import SUFFIX, JetStreamError, Seen, SilentError, StreamReader
from shared.bus.streams import LEASES, load
from shared.contracts import rpc
from shared.contracts.subjects import lease_subject

Json = dict[str, Any]

LAG_MAX: Final = 1_000
"""A consumer or source may be this many messages behind without a finding."""

FULL: Final = 0.9
"""Share of its size from which a log that refuses writes when full is a finding."""

DEAD_SHOWN: Final = 5
ANSWER_SECONDS: Final = 5.0


async def streams(reader: StreamReader) -> list[Finding]:
    """Streams that are missing, differ from their declaration, fill up, or fall behind."""
    try:
        problems = await check(reader.nc, views=reads_of("viewer"))
    except BusError as error:
        raise SilentError(str(error)) from error
    found = [
        Finding(where="streams", problem=problem.partition(": run")[0], advice=_apply(problem))
        for problem in problems
    ]
    for name in load().logs:
        for stream in (name, name + SUFFIX):
            try:
                info = await reader.call(f"STREAM.INFO.{stream}")
            except JetStreamError:
                continue  # Missing: there is a finding already.
            found += full_or_behind(stream, info)
    return found


def _apply(problem: str) -> str:
    before, separator, command = problem.partition(": run ")
    del before
    return f"run {command}" if separator else "run `sluice bus apply`"


def full_or_behind(stream: str, info: Json) -> list[Finding]:
    """Findings from the state of one stream."""
    found = []
    config, state = info["config"], info["state"]
    limit = int(config.get("max_bytes", -1))
    if config.get("discard") == "new" and limit > 0 and state["bytes"] > FULL * limit:
        percent = 100 * state["bytes"] // limit
        found.append(
            Finding(
                where=f"stream {stream}",
                problem=f"is {percent} % full, and refuses more when it is full",
                advice="raise max_gib in deploy/nats/streams.yaml and run `sluice bus apply`",
            )
        )
    elif stream.endswith(SUFFIX) and 0 < FULL * limit < state["bytes"]:
        percent = 100 * state["bytes"] // limit
        found.append(
            Finding(
                where=f"stream {stream}",
                problem=f"is {percent} % full, and forgets how objects stand when it is full",
                advice="look who fills it (`nats stream subjects`): a spoke that floods it has its key "
                "taken away; otherwise raise max_gib in deploy/nats/streams.yaml and run `sluice bus apply`",
            )
        )
    found += [
        Finding(
            where=f"stream {stream}",
            problem=f"is {source['lag']} messages behind {source['name']}",
            advice="look at the NATS server's load; if it does not shrink, "
            f"`sluice bus apply --rebuild {stream}`",
        )
        for source in info.get("sources") or []
        if int(source.get("lag", 0)) > LAG_MAX
    ]
    return found


async def consumers(reader: StreamReader) -> list[Finding]:
    """Durable consumers that nobody reads, or whose reader is behind."""
    found = []
    for name in load().logs:
        for stream in (name + SUFFIX, name):
            try:
                listed = await reader.call(f"CONSUMER.LIST.{stream}", {"offset": 0})
            except JetStreamError:
                continue  # Missing: `streams` reports it.
            for info in listed.get("consumers") or []:
                found += consumer_findings(stream, info)
    return found


def consumer_findings(stream: str, info: Json) -> list[Finding]:
    """Findings from the state of one consumer."""
    if goal := info["config"].get("deliver_subject"):
        return [
            Finding(
                where=f"consumer {info['name']} of {stream}",
                problem=f"has the server push to {goal}, which none of ours does",
                advice=f"`nats consumer rm {stream} {info['name']}` as operator; if nobody of you made it, "
                "make new keys (`sluice bus permissions`)",
            )
        ]
    if not info["config"].get("durable_name"):
        return []
    name = info["config"]["durable_name"]
    service = name.partition("-")[0]
    where = f"consumer {name} of {stream}"
    if not info.get("num_waiting"):
        return [
            Finding(
                where=where,
                problem=f"nobody reads it; {info.get('num_pending', 0)} messages wait",
                advice=f"start the {service}, or look at why it cannot reach NATS; one that is no "
                f"longer wanted: `nats consumer rm {stream} {name}`",
            )
        ]
    if int(info.get("num_pending", 0)) > LAG_MAX:
        return [
            Finding(
                where=where,
                problem=f"is {info['num_pending']} messages behind",
                advice=f"give the {service} more time or CPU; look at its log for retries",
            )
        ]
    return []


async def leases(reader: StreamReader, clusters: Iterable[str]) -> list[Finding]:
    """Services that need a leader and have none."""
    wanted = {
        "quota": "nothing is decided",
        "classifier-projection": "new jobs do not become workloads",
        **{f"watcher-{cluster}": f"nothing new is seen of {cluster}" for cluster in clusters},
    }
    found = []
    for name, consequence in wanted.items():
        if not await _held(reader, name):
            service = name.partition("-")[0]
            found.append(
                Finding(
                    where=f"lease {name}",
                    problem=f"nobody holds it: {consequence}",
                    advice=f"start a {service}, or look at its log",
                )
            )
    return found


async def _held(reader: StreamReader, name: str) -> bool:
    try:
        answer = await reader.call(
            f"STREAM.MSG.GET.{LEASES}", {"last_by_subj": lease_subject(name)}
        )
    except JetStreamError:
        return False
    # A released or expired lease leaves an empty message.
    return bool(base64.b64decode(answer["message"].get("data", "")))


async def quota_answers(reader: StreamReader) -> list[Finding]:
    """Whether the quota service answers, and admits."""
    try:
        data = await reader.ask(rpc.POSITIONS, b'{"limit":1}', timeout_seconds=ANSWER_SECONDS)
    except SilentError as error:
        return [
            Finding(
                where="quota",
                problem=f"does not answer questions: {error}",
                advice="start it, or wait until it has read the streams; `/readyz` says what it does",
            )
        ]
    return stopped_admission(json.loads(data))


def stopped_admission(answer: Json) -> list[Finding]:
    """A finding if quota's answer says why nobody is admitted."""
    if not (why := answer.get("stopped")):
        return []
    return [
        Finding(
            where="quota",
            problem=f"admits nobody: {why}",
            advice="see docs/runbooks/SluicegateAdmissionHalted.md, or SluicegateLogNearlyFull.md where a "
            "log is full; what ends gives its quota back meanwhile",
        )
    ]


def dead_letters(letters: list[Seen]) -> list[Finding]:
    """Messages that a service gave up on, the latest first; closed ones are none."""
    letters = [seen for seen in letters if seen.body.get("state", "open") == "open"]
    found = [
        Finding(
            where=f"dead letter of {seen.body.get('service')}",
            problem=f"{seen.body.get('original_subject')} "
            f"(sequence {seen.body.get('original_sequence')}): {seen.body.get('reason')}",
            advice="mend the cause, then `sluice dead retry`; `sluice dead show` says what to look at",
        )
        for seen in sorted(letters, key=lambda seen: seen.sequence, reverse=True)[:DEAD_SHOWN]
    ]
    if len(letters) > DEAD_SHOWN:
        found.append(
            Finding(
                where="dead letters",
                problem=f"{len(letters) - DEAD_SHOWN} more",
                advice="`sluice dead list` shows all",
            )
        )
    return found
