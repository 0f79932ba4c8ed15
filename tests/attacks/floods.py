"""Attacks of a spoke that writes as much as goes through the line, to subjects that it may write to (T2)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from shared.bus.spoke_gateway.budget import PART
from shared.bus.streams import load, view_of
from shared.testing.waiting import first_value
from tests.attacks.attack import Attack
from tests.attacks.ground import BreachError, Ground, look

FLOOD_BYTES: Final = 150 << 20
QUEUE: Final = "sluice.queue.hub._.main"
SLACK_BYTES: Final = 5 << 20
"""One message that leaves a budget in debt, and what was there before."""

Json = dict[str, Any]

OWN: Final = (
    *(f"sluice.{what}.east.>" for what in ("observed", "outcome", "copy")),
    *(f"sluice.{what}.east._._" for what in ("beat", "seal")),
)


async def floods(ground: Ground) -> None:
    """Write as much as fits through the line, to subjects that one may write to, while others report."""
    await ground.spoke_is_served()
    east, west = await ground.client("spoke-east"), await ground.client("spoke-west")
    body = b"x" * (1 << 20)
    for number in range(FLOOD_BYTES // len(body)):
        await east.publish(f"sluice.observed.east.a.j{number}.jobs_batch", body)
        if number % 8 == 0:
            await east.flush(timeout=60)
    for client, subject in ((west, "sluice.beat.west._._"), (await ground.client("quota"), QUEUE)):
        await client.request(subject, b"{}", timeout=60)
    operator = await ground.client("operator")
    for log, subject in (("OBSERVED", "sluice.observed.hub.team.j.jobs_batch"), ("QUEUES", QUEUE)):
        for stream in (log, view_of(log)):
            which = {"last_by_subj": subject}
            if await look(operator, f"$JS.API.STREAM.MSG.GET.{stream}", which) is None:
                raise BreachError(f"{subject} is gone from {stream}")
    for stream in load().configs():
        info = await look(operator, f"$JS.API.STREAM.INFO.{stream}")
        if info is None or not 0 < info["state"]["bytes"] + 1 <= info["config"]["max_bytes"]:
            raise BreachError(f"{stream} has no bound")


async def exceeds_its_part(ground: Ground) -> None:
    """Write heartbeats for more than the spoke's part of their log, without waiting for an answer."""
    await ground.spoke_is_served()
    east, west = await ground.client("spoke-east"), await ground.client("spoke-west")
    quota, operator = await ground.client("quota"), await ground.client("operator")
    before = await bytes_of(operator, "SPOKES")
    part = load().configs()["SPOKES"]["max_bytes"] // PART
    body = b"x" * (60 << 10)
    for _ in range(2 * part // len(body)):
        await east.publish("sluice.beat.east._._", body)
        await east.flush(timeout=60)
    for _ in range(part // len(body)):
        if "error" in (refusal := await answer(east, "sluice.beat.east._._", body)):
            break
    else:
        raise BreachError(f"nothing is refused: {refusal}")
    if "raise max_gib of SPOKES" not in refusal["error"]["description"]:
        raise BreachError(f"does not say what to do: {refusal}")
    if await bytes_of(operator, "SPOKES") - before > part + SLACK_BYTES:
        raise BreachError("more than its part is in the log")
    for client, subject in (
        (west, "sluice.beat.west._._"), (quota, QUEUE), (east, "sluice.outcome.east.a.w"),
        (east, "sluice.copy.east.a.w"), (east, "sluice.observed.east.a.w.jobs_batch"),
    ):  # fmt: skip
        if "error" in (found := await answer(client, subject, b"{}")):
            raise BreachError(f"{subject} has no room: {found}")


async def answer(
    client: Client, subject: str, body: bytes, *, headers: Mapping[str, str] | None = None
) -> Json:
    """What the one who stores it says; nothing, where it says nothing. It may still be starting."""
    asked = dict(headers) if headers else None

    async def said() -> Msg | None:
        with suppress(NoRespondersError):
            return await client.request(subject, body, timeout=60, headers=asked)
        return None

    data = (await first_value(said, f"nobody stores {subject}")).data
    found: Json = json.loads(data) if data else {}
    return found


async def bytes_of(operator: Client, stream: str) -> int:
    """How much is in a stream."""
    info = await look(operator, f"$JS.API.STREAM.INFO.{stream}")
    assert info is not None
    return int(info["state"]["bytes"])


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T2",
        way="spoke writes 150 MB into shared streams",
        act=floods,
        own=(*OWN, "sluice.beat.west.>", "sluice.queue.>"),
    )
    yield Attack(
        threat="T2",
        way="spoke writes more than its part of a log, which then keeps what others wrote",
        act=exceeds_its_part,
        own=(*OWN, "sluice.beat.west.>", "sluice.queue.>"),
    )
