"""Attacks by headers, which ask the server for more than to store a message (T2, T3)."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.bus.port import CaughtUp
from shared.bus.streams import LEASE_BYTES_MAX
from shared.testing.waiting import eventually
from tests.attacks.attack import Act, Attack
from tests.attacks.floods import OWN, answer
from tests.attacks.ground import BreachError, Ground, say

FENCE: Final = "Nats-Expected-Last-Subject-Sequence"
Json = dict[str, Any]

MINE: Final = {
    "spoke-east": "sluice.copy.east.a.w",
    "watcher": "sluice.observed.hub.team.x.pods",
    "patcher": "sluice.outcome.hub.team.w",
    "classifier": "sluice.workload.hub.team.w",
    "provisioner": "sluice.check.hub.team.w.x.provisioner",
}
"""A subject that a user may write to."""

THEIRS: Final = {
    "spoke-east": "sluice.dispatch.west.a.w",
    "watcher": "sluice.observed.west.a.b.pods",
    "patcher": "sluice.admission.hub.team.w",
    "classifier": "sluice.workload.west.a.w",
    "provisioner": "sluice.check.hub.team.w.machines",
}
"""One that it may not write to."""

TERM: Final = "sluice.term.quota"
SPOKEN: Final[tuple[Mapping[str, str], ...]] = (
    *({"Status": status, "Description": "Consumer Deleted"} for status in ("409", "503", "500", "")),
    *({"Status": status, "Nats-Pending-Messages": "x"} for status in ("100", "404", "408", "204")),
    {"Nats-Sequence": "1", "Nats-Last-Sequence": "7", "Nats-Num-Pending": "x"},
    {"Nats-Sequence": "x", "Nats-Subject": "sluice.term.quota", "Nats-Time-Stamp": "never"},
    {"Nats-Stream": "ADMISSIONS", "Nats-UpTo-Sequence": "1", "Nats-Msg-Size": "-1"},
    {"Nats-Marker-Reason": "Purge"}, {"KV-Operation": "PURGE"},
    {"ce-time": "9999-99-99", "traceparent": "x", "Sluice-Term": "x", "ce-type": "x"},
)  # fmt: skip


BLANKS: Final = ("\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x7f", "\xa0", " ", "\t")
"""Before the name of a header: some libraries take them off."""


async def _sent(client: Client, subject: str, headers: Mapping[str, str]) -> Json:
    """What is answered to headers as they are: the library would take blanks off."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
    block = b"NATS/1.0\r\n" + lines + b"\r\n"
    sizes = f"{len(block)} {len(block) + 2}"
    command = f"HPUB {subject} {inbox} {sizes}\r\n".encode()
    await client._send_command(command + block + b"{}\r\n")
    await client.flush()
    found: Json = json.loads((await answers.next_msg(timeout=60)).data)
    await answers.unsubscribe()
    return found


async def _client(ground: Ground, user: str) -> Client:
    if user.startswith("spoke-"):
        await ground.spoke_is_served()
    client = await ground.client(user)
    if user.startswith("spoke-"):
        await eventually(lambda: _is_stored(client, MINE[user]), "the gateway does not write yet")
    return client


async def _is_stored(client: Client, subject: str) -> bool:
    try:
        return "error" not in await answer(client, subject, b"{}")
    except NatsError:
        return False


def learning(user: str) -> Act:
    """Ask by a fence whether a subject of another exists: the answers must not differ."""

    async def act(ground: Ground) -> None:
        client = await _client(ground, user)
        told = []
        for subject in (THEIRS[user], f"{THEIRS[user]}-none"):
            for before in ("", *BLANKS):
                headers = {f"{before}{FENCE}": "0", f"{before}{FENCE}-Subject": subject}
                found = await _sent(client, MINE[user], headers)
                said = found.get("error", {}).get("description", "stored")
                told.append(said.replace(subject, ""))
        if told[: len(told) // 2] != told[len(told) // 2 :]:
            raise BreachError(f"{user} learns of another's subject: {told}")

    return act


def keeping(user: str) -> Act:
    """Have the server keep what is never committed, and in no bound of a stream."""

    async def act(ground: Ground) -> None:
        client = await _client(ground, user)
        headers = {"Nats-Batch-Id": f"{user}-1", "Nats-Batch-Sequence": "1"}
        found = await _answered(client, MINE[user], headers)
        if "error" not in found:
            raise BreachError(f"a batch began: {found}")

    return act


def scheduling(user: str) -> Act:
    """Have the server publish to somebody else's subject in a moment."""

    async def act(ground: Ground) -> None:
        client = await _client(ground, user)
        soon = (datetime.now(UTC) + timedelta(milliseconds=50)).isoformat()
        for when in (f"@at {soon}", "@every 1s", "* * * * * *"):
            headers = {"Nats-Schedule": when, "Nats-Schedule-Target": THEIRS[user]}
            found = await _answered(client, MINE[user], headers)
            if "error" not in found:
                raise BreachError(f"{when} was taken: {found}")

    return act


def counting(user: str) -> Act:
    """Have the server count, drop what was there, or let a message expire: a log keeps what it has."""

    async def act(ground: Ground) -> None:
        client = await _client(ground, user)
        many: tuple[Mapping[str, str], ...] = (
            {"Nats-Incr": "1"}, {"Nats-Rollup": "sub"}, {"Nats-Rollup": "all"}, {"Nats-TTL": "1s"},
            {"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "never"},
        )  # fmt: skip
        for headers in many:
            found = await _answered(client, MINE[user], headers)
            if "error" not in found:
                raise BreachError(f"{sorted(headers)} was taken: {found}")

    return act


def reporting(user: str) -> Act:
    """Have the server report somewhere which way a message went: there somebody else speaks."""

    async def act(ground: Ground) -> None:
        client = await _client(ground, user)
        for goal in (TERM, "sluice.admission.hub.team.w", "$JS.API.STREAM.PURGE.ADMISSIONS"):
            for only in ("true", "false"):
                headers = {"Nats-Trace-Dest": goal, "Nats-Trace-Only": only}
                await say(client, MINE[user], b"{}", headers=headers, reply=client.new_inbox())

    return act


def keeping_on_a_lease(user: str, lease: str) -> Act:
    """Have the server keep by a lease what is none, or what pushes out those of others."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        soon = (datetime.now(UTC) + timedelta(milliseconds=50)).isoformat()
        many: tuple[tuple[Mapping[str, str], bytes], ...] = (
            ({}, b"x" * (LEASE_BYTES_MAX + 1)), ({}, b"x" * (1 << 20)),
            ({"x": "x" * LEASE_BYTES_MAX}, b""),
            ({"Nats-Msg-Id": "x" * LEASE_BYTES_MAX}, b""),
            ({"Nats-Batch-Id": "1", "Nats-Batch-Sequence": "1"}, b""),
            ({"Nats-Schedule": f"@at {soon}", "Nats-Schedule-Target": "sluice.lease.quota"}, b""),
            ({"Nats-Incr": "1"}, b""), ({"Nats-Rollup": "all"}, b""), ({"Nats-Rollup": "sub"}, b""),
        )  # fmt: skip
        for headers, body in many:
            found = await answer(client, lease, body, headers=headers)
            if "error" not in found:
                raise BreachError(f"{sorted(headers)} and {len(body)} bytes were taken: {found}")
        for _ in range(2):
            found = await answer(client, lease, b"", headers={"Nats-Msg-Id": "kept"})
            await asyncio.sleep(1)
        if found.get("duplicate"):
            raise BreachError("the server keeps ids of leases in memory")

    return act


def silencing(user: str, cluster: str, readers: tuple[str, ...]) -> Act:
    """Write headers by which the server speaks to readers, each under its own name: they must read on."""
    last = f"sluice.observed.{cluster}.a.zz.pods"

    async def act(ground: Ground) -> None:
        client = await _client(ground, user)
        for number, headers in enumerate(SPOKEN):
            subject = f"sluice.observed.{cluster}.a.w{number}.pods"
            await say(client, subject, b"{}", headers=headers, reply=client.new_inbox())
        await _answered(client, last, {})
        for reader in readers:
            bus, seen = await ground.bus(reader), []
            try:
                async with asyncio.timeout(30), aclosing(bus.watch("OBSERVED")) as items:
                    async for item in items:
                        if isinstance(item, CaughtUp):
                            break
                        seen.append(item.subject)
            except TimeoutError as error:
                raise BreachError(f"{reader} does not read on") from error
            if last not in seen:
                raise BreachError(f"{reader} does not read {last}")

    return act


async def _answered(client: Client, subject: str, headers: Mapping[str, str]) -> Json:
    return await answer(client, subject, b"{}", headers=headers)


def attacks() -> Iterator[Attack]:
    """The rows."""
    own = {user: (subject,) for user, subject in MINE.items()} | {"spoke-east": OWN}
    for user in MINE:
        threat, name = ("T2", "spoke") if user.startswith("spoke-") else ("T3", user)
        for what, act in (
            ("has the server keep what it never commits", keeping(user)),
            ("has the server publish to another's subject later", scheduling(user)),
            ("has the server drop, count or let expire by a header", counting(user)),
        ):
            yield Attack(threat=threat, way=f"{name} {what}", act=act, own=own[user])
        act = reporting(user)
        way = f"{name} has the server report to another's subject"
        yield Attack(threat=threat, way=way, act=act, own=own[user])
    for user, lease in (
        ("spoke-east", "sluice.lease.watcher-east"), ("tracer", "sluice.lease.tracer"),
        ("watcher", "sluice.lease.watcher-hub"),
    ):  # fmt: skip
        threat = "T2" if user.startswith("spoke-") else "T3"
        way = f"{user} has the server keep by a lease what is none"
        act = keeping_on_a_lease(user, lease)
        yield Attack(threat=threat, way=way, act=act, own=(lease,))
    for threat, user, cluster in (("T2", "spoke-east", "east"), ("T3", "watcher", "hub")):
        way = f"{user} silences readers by headers that the server uses"
        act = silencing(user, cluster, ("quota", "classifier", "console"))
        yield Attack(threat=threat, way=way, act=act, own=(*OWN, "sluice.observed.hub.>"))
    yield Attack(
        threat="T2",
        way="spoke learns by a fence whether another has an order",
        act=learning("spoke-east"),
        own=OWN,
    )
