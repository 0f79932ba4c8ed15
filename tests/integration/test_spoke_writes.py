"""What spokes write goes through the gateway, which keeps a budget for each; on small logs."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.errors import NoRespondersError

from shared.bus.nats.jetstream_api import call
from shared.bus.spoke_gateway.budget import PART
from shared.testing.waiting import eventually, first_value
from tests.integration.spoke_bus import client_at
from tests.integration.spoke_servers import Servers, servers

pytestmark = pytest.mark.asyncio(loop_scope="module")

KIB, MIB = 1 << 10, 1 << 20
SMALL = {"OBSERVED": PART * MIB, "OUTCOMES": PART * 8 * MIB, "OUTCOMES_NOW": 4 * MIB}
"""Bytes of streams: a spoke may write 1 MiB to OBSERVED at once."""

Json = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both() -> AsyncIterator[Servers]:
    async with servers("east", "west") as found:
        async with client_at(found.hub) as hub:
            for stream, most in SMALL.items():
                config = (await call(hub, f"STREAM.INFO.{stream}"))["config"]
                await call(hub, f"STREAM.UPDATE.{stream}", config | {"max_bytes": most})
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def clients(both: Servers) -> AsyncIterator[dict[str, Client]]:
    async with AsyncExitStack() as stack:
        found = {
            one: await stack.enter_async_context(client_at(both.direct[one])) for one in both.direct
        }
        yield found | {"hub": await stack.enter_async_context(client_at(both.hub))}


async def write(
    client: Client, subject: str, size: int = 2, *, headers: dict[str, str] | None = None
) -> Json:
    """The log's answer. Nobody answers before the gateway listens: a spoke asks again."""

    async def told() -> Json | None:
        try:
            reply = await client.request(subject, b"x" * size, timeout=60, headers=headers)
        except NoRespondersError:
            return None
        answer: Json = json.loads(reply.data)
        return answer

    return await first_value(told)


async def test_answer_of_the_log_comes_back_with_its_sequence_and_fences(
    clients: dict[str, Client],
) -> None:
    subject = "sluice.copy.east.a.fenced"
    first = await write(clients["east"], subject)
    assert first["stream"] == "DISPATCHES"
    fence = {"Nats-Expected-Last-Subject-Sequence": str(first["seq"])}
    second = await write(clients["east"], subject, headers=fence)
    assert second["seq"] > first["seq"]
    assert (await write(clients["east"], subject, headers=fence))["error"]["err_code"] == 10071


async def test_spoke_that_wrote_its_part_of_a_log_harms_only_itself(
    clients: dict[str, Client],
) -> None:
    many = [
        await write(clients["east"], f"sluice.observed.east.a.j{n}.jobs_batch", 64 * KIB)
        for n in range(17)
    ]
    assert [n for n, one in enumerate(many) if "error" in one] == [15, 16], "subjects count, too"
    refusal = many[-1]["error"]
    assert refusal["err_code"] == 10077
    for words in ("east has used up its part of OBSERVED", "raise max_gib of OBSERVED"):
        assert words in refusal["description"]
    for client, subject in (
        ("east", "sluice.outcome.east.a.w"),
        ("east", "sluice.copy.east.a.w"),
        ("west", "sluice.observed.west.a.j.jobs_batch"),
        ("hub", "sluice.observed.hub.a.j.jobs_batch"),
    ):
        assert "error" not in await write(clients[client], subject), subject


async def test_spoke_in_a_crowded_view_may_replace_and_end_but_not_add(
    clients: dict[str, Client],
) -> None:
    hub, east = clients["hub"], clients["east"]
    for number in range(9):
        await write(hub, f"sluice.outcome.hub.a.w{number}", 256 * KIB)

    async def arrived() -> bool:
        info = await call(hub, "STREAM.INFO.OUTCOMES_NOW")
        return bool(info["state"]["bytes"] > 2 * MIB)

    await eventually(arrived)
    many = [await write(east, f"sluice.outcome.east.a.w{n}", 256 * KIB) for n in range(16)]
    refused = [n for n, one in enumerate(many) if "error" in one]
    assert refused, "the share has no end"
    assert refused == list(range(refused[0], 16)), "what is above the share is not taken"
    assert "fills its share of OUTCOMES_NOW, 2 MiB" in many[-1]["error"]["description"]
    for size in (256 * KIB, 10):
        assert "error" not in await write(east, "sluice.outcome.east.a.w0", size)
    which = {"last_by_subj": "sluice.outcome.hub.a.w0"}
    assert (await call(hub, "STREAM.MSG.GET.OUTCOMES_NOW", which))["message"]["subject"], (
        "pushed out"
    )
