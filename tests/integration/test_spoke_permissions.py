"""A spoke on a real server, directly and behind a leaf node: its work, and all that it tries beyond it."""

import asyncio
import json
from contextlib import aclosing

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from shared.bus.admin.accounts import spoke_rights
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp, Entry
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.spokes import Heartbeat
from shared.testing.waiting import PATIENCE_SECONDS
from tests.clock import now
from tests.integration.spoke_bus import (
    EAST,
    NOON,
    SECRET,
    asked,
    bus_at,
    client_at,
    order,
    sequences,
    watching,
    work_of,
)
from tests.integration.spoke_servers import Servers, servers


def outcome(spoke: str) -> Outcome:
    return Outcome(
        cluster=spoke, namespace="a", name="w", uid="u", result="applied", action="release", term=1,
        number=1, message=SECRET, at=NOON,
    )  # fmt: skip


async def test_spoke_can_do_its_work(ground: tuple[Servers, str]) -> None:
    found, url = ground
    got: asyncio.Queue[str] = asyncio.Queue()

    async def on_dispatch(entry: Entry) -> None:
        await got.put(entry.subject)

    east = NatsBus(url=url, instance="patcher-east", now=now)
    east.work(
        "DISPATCHES", "patcher-east-dispatch", on_dispatch, filters=("sluice.dispatch.east.>",)
    )
    async with asyncio.timeout(PATIENCE_SECONDS), bus_at(found.hub, "dispatcher") as hub:
        await east.start()
        await hub.publish(order("west"))
        await hub.publish(order("east"))
        assert await got.get() == "sluice.dispatch.east.a.w"
        latest = await east.latest("DISPATCHES", "sluice.dispatch.east.a.w")
        assert latest is not None, "it asks the log before it starts a copy"
        await east.publish(Heartbeat(spoke="east", instance="patcher-east", number=1, at=NOON))
        await east.publish(Synced(cluster="east", epoch="1", kinds=[], at=NOON), expect_subject=0)
        lease = await east.lease("watcher-east")
        assert lease.held
        await lease.release()
        assert await subjects_seen(east, "OBSERVED", "sluice.observed.east.>") == [
            "sluice.observed.east._._.synced"
        ]
        await east.stop()


async def subjects_seen(bus: NatsBus, stream: str, *filters: str) -> list[str]:
    seen: list[str] = []
    async with aclosing(bus.watch(stream, *filters)) as entries:
        async for entry in entries:
            if isinstance(entry, CaughtUp):
                break
            seen.append(entry.subject)
    return seen


async def test_concurrent_watches_of_a_pair_each_receive_everything() -> None:
    async with servers("east") as found, bus_at(found.hub, "hub") as hub:
        await hub.publish(order("east"))
        async with bus_at(found.direct["east"], "east") as east, asyncio.timeout(PATIENCE_SECONDS):
            seen = await asyncio.gather(
                *(subjects_seen(east, "DISPATCHES", "sluice.dispatch.east.>") for _ in range(12))
            )
            assert seen == [["sluice.dispatch.east.a.w"]] * 12


SAYS = {
    "observe another cluster": "sluice.observed.west._._.synced",
    "observe the hub": "sluice.observed.hub.a.b.jobs_batch",
    "send itself an order": "sluice.dispatch.east.a.w",
    "send an order to another spoke": "sluice.dispatch.west.a.w",
    "say that another spoke's copy is gone": "sluice.copy.west.a.w",
    "say what became of another's decision": "sluice.outcome.west.a.w",
    "live for another spoke": "sluice.beat.west._._",
    "admit something": "sluice.admission.east.a.w",
    "begin a term of quota": "sluice.term.quota",
    "answer a check": "sluice.check.hub.a.w.elsewhere",
    "write a status home": "sluice.home.hub.a.w",
    "say how a spoke stands": "sluice.spoke.hub._.east",
    "project a workload": "sluice.workload.east.a.w",
    "take the decider's lease": "sluice.lease.quota",
    "take another watcher's lease": "sluice.lease.watcher-west",
    "hand out a machine": "sluice.host.east.a.b",
    "hand out another's key to seal with": "sluice.seal.west._._",
    "say how a queue stands": "sluice.queue.east._.main",
    "write a body": "$O.objects.C.abc",
    "ask for another": "sluice.door.west.STREAM.INFO.OBSERVED",
    "ask the hub's services": "sluice.rpc.quota.explain",
}


async def test_forbidden_publish_of_a_spoke_is_not_delivered(ground: tuple[Servers, str]) -> None:
    found, url = ground
    async with bus_at(found.hub, "judge") as hub, client_at(url) as client:
        before = await sequences(hub)
        for what, subject in SAYS.items():
            assert await unheard(client, subject), what
        assert await sequences(hub) == before


async def unheard(client: Client, subject: str) -> bool:
    """Whether nobody is there who hears it."""
    try:
        await client.request(subject, b"{}", timeout=PATIENCE_SECONDS)
    except NoRespondersError:
        return True
    return False


async def test_server_sends_nothing_to_the_hub_for_a_spoke(ground: tuple[Servers, str]) -> None:
    """Who may say where an answer goes could have a message of its own told under any name."""
    found, url = ground
    goal = "sluice.admission.hub.a.w"
    async with bus_at(found.hub, "hub") as hub, client_at(url) as client:
        await hub.publish(order("east"))
        forged = outcome("east")
        acknowledged = await client.request(
            forged.subject, forged.encode(), timeout=PATIENCE_SECONDS
        )
        assert "seq" in json.loads(acknowledged.data), "what it may say it says"
        mine = watching(EAST, name="reader-x", inactive_threshold=60 * 10**9)
        made = await asked(
            client,
            "CONSUMER.CREATE.DISPATCHES_NOW.reader-x",
            {**mine, "stream_name": "DISPATCHES_NOW"},
        )
        assert made is not None
        assert made["name"] == "reader-east-0"
        for request, body in (
            ("STREAM.INFO.OBSERVED", b""),
            ("STREAM.MSG.GET.DISPATCHES", b'{"last_by_subj": "sluice.dispatch.east.a.w"}'),
            ("STREAM.MSG.GET.OUTCOMES", b'{"last_by_subj": "sluice.outcome.east.a.w"}'),
            ("CONSUMER.MSG.NEXT.DISPATCHES_NOW.reader-east-0", b'{"batch": 5}'),
        ):
            await client.publish(f"$JS.API.{request}", body, reply=goal)
        await client.publish(forged.subject, forged.encode(), reply=goal)
        await asked(client, "STREAM.INFO.ADMISSIONS", None)  # All of that was taken in by now.
        await asyncio.sleep(1)
        for log in ("ADMISSIONS", "DISPATCHES"):
            assert await hub.last_sequence(log) == (0 if log == "ADMISSIONS" else 1), log


async def test_spoke_receives_no_message_for_other_spokes(ground: tuple[Servers, str]) -> None:
    found, url = ground
    heard: list[str] = []

    async def on_message(message: Msg) -> None:
        heard.append(message.subject)

    async with (
        bus_at(found.hub, "hub") as hub,
        bus_at(found.direct["west"], "west") as west,
        client_at(url) as client,
    ):
        for subject in (">", "sluice.>", "_INBOX.>", "$JS.>", "_R_.>", "sluice.door.>"):
            await client.subscribe(subject, cb=on_message)
        await client.flush()
        heard.clear()
        said: tuple[Message, ...] = (order("west"), order("east"))
        for message in said:
            await hub.publish(message)
        await west.publish(Heartbeat(spoke="west", instance="patcher-west", number=1, at=NOON))
        assert await west.latest("DISPATCHES", "sluice.dispatch.west.a.w") is not None
        await client.flush()
        await asyncio.sleep(0.5)
        assert [one for one in heard if one.startswith(("sluice.", "_INBOX", "$JS"))] == []


async def test_spoke_cannot_acknowledge_messages_of_another(ground: tuple[Servers, str]) -> None:
    found, url = ground
    async with bus_at(found.hub, "hub") as hub, client_at(url) as client:
        await hub.publish(order("west"))
        await work_of(found.direct["west"])
        for subject in (
            "$JS.ACK.DISPATCHES_NOW.patcher-west-dispatch.1.1.1.1.0",
            "$JS.ACK._.hash.DISPATCHES_NOW.patcher-west-dispatch.1.1.1.1.0",
        ):
            assert await unheard(client, subject)


@pytest.mark.parametrize("name", ["*", ">", "", "a.*", "East!", "hub"])
def test_cluster_name_that_is_a_wildcard_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name of a cluster|is the cluster itself"):
        spoke_rights(name)
