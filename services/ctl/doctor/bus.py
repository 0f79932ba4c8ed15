"""Examines the bus: streams, consumers, leases, answers of quota, dead letters."""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from services.ctl.doctor.findings import Finding
from shared.bus.stream_reader import SUFFIX, JetStreamError, Seen, SilentError, StreamReader
from shared.contracts import rpc
from shared.contracts.subjects import PROJECTION_LEASE, lease_subject

Json = dict[str, Any]

LAG_MAX: Final = 1_000
"""A consumer or source may be this many messages behind without a finding."""

FULL: Final = 0.9
"""Share of its size from which a log that refuses writes when full is a finding."""

DEAD_SHOWN: Final = 5
ANSWER_SECONDS: Final = 5.0


async def streams(reader: StreamReader) -> list[Finding]:
    """Streams that are missing, differ from their declaration, fill up, or fall behind."""
    # Once the reader is connected: it imports the library of NATS without its HTTP client.
    from shared.bus.admin.permissions import reads_of  # noqa: PLC0415
    from shared.bus.nats.stream_drift import check  # noqa: PLC0415
    from shared.bus.port import BusError  # noqa: PLC0415

    try:
        problems = await check(reader.nc, views=reads_of("viewer"))
    except BusError as error:
        raise SilentError(str(error)) from error
    found = [
        Finding(where="streams", problem=problem.partition(": run")[0], advice=_apply(problem))
        for problem in problems
    ]
    names = [stream for log in _logs() for stream in (log, log + SUFFIX)]
    infos = await asyncio.gather(*(_known(reader, f"STREAM.INFO.{name}") for name in names))
    for name, info in zip(names, infos, strict=True):
        if info is not None:  # A missing one is a finding already.
            found += full_or_behind(name, info)
    return _newer_formats([info["config"] for info in infos if info is not None]) + found


def _newer_formats(configs: Iterable[Json]) -> list[Finding]:
    """A finding if logs and views are committed to a newer format than ours: no service of ours runs."""
    from shared.bus.port import NewerFormatError  # noqa: PLC0415
    from shared.bus.streams import newer_format  # noqa: PLC0415
    from shared.contracts.messages.base import FORMAT  # noqa: PLC0415

    for config in configs:
        if newer := newer_format(config):
            error = NewerFormatError(config["name"], newer, FORMAT)
            return [Finding(where="streams", problem=error.problem, advice=error.to_do)]
    return []


async def _known(reader: StreamReader, call: str, body: Json | None = None) -> Json | None:
    """The answer of JetStream; None if it is an error."""
    try:
        return await reader.call(call, body)
    except JetStreamError:
        return None


def _logs() -> list[str]:
    from shared.bus.streams import load  # noqa: PLC0415

    return list(load().logs)


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
                advice="look who fills it (`nats stream subjects`); spokes may fill half of it: "
                "raise max_gib in deploy/nats/streams.yaml and run `sluice bus apply`",
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
    names = [stream for name in _logs() for stream in (name + SUFFIX, name)]
    calls = (_known(reader, f"CONSUMER.LIST.{name}", {"offset": 0}) for name in names)
    for name, listed in zip(names, await asyncio.gather(*calls), strict=True):
        for info in (listed or {}).get("consumers") or []:  # `streams` reports a missing stream.
            found += consumer_findings(name, info)
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
        PROJECTION_LEASE: "new jobs do not become workloads",
        **{f"watcher-{cluster}": f"nothing new is seen of {cluster}" for cluster in clusters},
    }
    found = []
    held = await asyncio.gather(*(_held(reader, name) for name in wanted))
    for (name, consequence), is_held in zip(wanted.items(), held, strict=True):
        if not is_held:
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
    from shared.bus.streams import LEASES  # noqa: PLC0415

    asked = {"last_by_subj": lease_subject(name)}
    answer = await _known(reader, f"STREAM.MSG.GET.{LEASES}", asked)
    if answer is None:
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
    answer: Json = json.loads(data)
    return [*stopped_admission(answer), *ignored_objects(answer)]


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


def ignored_objects(answer: Json) -> list[Finding]:
    """A finding for each object that quota ignores in its present form, by quota's answer."""
    findings = []
    for each in answer.get("ignored") or []:
        where, _, problem = str(each).partition(": ")
        findings.append(
            Finding(
                where=where,
                problem=f"is ignored by quota, and its last valid form is in force: {problem}",
                advice="correct the field; nothing else of the change counts before",
            )
        )
    return findings


async def leaf_nodes(reader: StreamReader) -> list[Finding]:
    """Leaf nodes whose key is no longer accepted; none where the server does not say."""
    from shared.bus.admin.leaf_nodes import NobodyAnswersError, without_key  # noqa: PLC0415

    try:
        found = await without_key(reader.nc)
    except NobodyAnswersError:
        return []  # A server without users, or with users of an earlier version.
    return [
        Finding(
            where=str(leaf),
            problem=f"its key is no longer accepted ({leaf.account} is gone): it can do nothing",
            advice="`sluice bus disconnect` as operator closes it; if the spoke is yours, give it its "
            "present key (`sluice bus leaf`)",
        )
        for leaf in found
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
