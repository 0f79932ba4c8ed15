"""Attacks by headers, which ask the server for more than to store a message (T2, T3)."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from shared.testing.waiting import eventually
from tests.attacks.attack import Act, Attack
from tests.attacks.floods import OWN, answer
from tests.attacks.ground import BreachError, Ground

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
            headers = {FENCE: "0", f"{FENCE}-Subject": subject}
            found = await _answered(client, MINE[user], headers)
            told.append(found.get("error", {}).get("description", "stored").replace(subject, ""))
        if told[0] != told[1]:
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
    yield Attack(
        threat="T2",
        way="spoke learns by a fence whether another has an order",
        act=learning("spoke-east"),
        own=OWN,
    )
