"""A spoke on a real server, directly and behind a leaf node: its work, and all that it tries beyond it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from shared.bus.admin.accounts import spoke_rights
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp, Entry
from shared.bus.streams import load, view_of
from shared.contracts.messages.base import Message
from shared.contracts.messages.effects import Dispatch, Outcome
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.spokes import Beat
from shared.testing.waiting import PATIENCE_SECONDS
from tests.integration.spoke_servers import Servers, now, servers

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECRET: Final = "what west is told"
Json = dict[str, Any]


@pytest.fixture(params=["with a user of its own", "behind a leaf node"])
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Servers, str]]:
    """The servers, and where the spoke `east` connects."""
    async with servers("east", "west") as found:
        yield found, found.direct["east"] if request.param.startswith("with") else found.leaf


@asynccontextmanager
async def bus_at(url: str, name: str) -> AsyncIterator[NatsBus]:
    bus = NatsBus(url=url, instance=name, now=now)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


def order(spoke: str, **more: Any) -> Dispatch:
    return Dispatch(
        spoke=spoke, cluster="hub", namespace="a", name="w", uid="u", state="offered", at=NOON, **more
    )  # fmt: skip


def outcome(spoke: str) -> Outcome:
    return Outcome(
        cluster=spoke, namespace="a", name="w", uid="u", result="applied", action="release", term=1,
        number=1, message=SECRET, at=NOON,
    )  # fmt: skip


async def test_a_spoke_can_do_its_work(ground: tuple[Servers, str]) -> None:
    found, url = ground
    got: asyncio.Queue[str] = asyncio.Queue()

    async def on_dispatch(entry: Entry) -> None:
        await got.put(entry.subject)

    east = NatsBus(url=url, instance="patcher-east", now=now)
    east.work(
        "DISPATCHES", "patcher-east-dispatch", on_dispatch, filters=("sluice.dispatch.east.>",)
    )
    async with asyncio.timeout(60), bus_at(found.hub, "dispatcher") as hub:
        await east.start()
        await hub.publish(order("west"))
        await hub.publish(order("east"))
        assert await got.get() == "sluice.dispatch.east.a.w"
        latest = await east.latest("DISPATCHES", "sluice.dispatch.east.a.w")
        assert latest is not None, "it asks the log before it starts a copy"
        await east.publish(Beat(spoke="east", instance="patcher-east", number=1, at=NOON))
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


async def test_as_many_watches_as_a_pair_needs_go_on_at_once_and_each_sees_all() -> None:
    async with servers("east") as found, bus_at(found.hub, "hub") as hub:
        await hub.publish(order("east"))
        async with bus_at(found.direct["east"], "east") as east, asyncio.timeout(60):
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


async def test_what_it_may_not_say_reaches_nobody(ground: tuple[Servers, str]) -> None:
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


async def sequences(bus: NatsBus) -> dict[str, int]:
    return {log: await bus.last_sequence(log) for log in load().logs}


@asynccontextmanager
async def client_at(url: str) -> AsyncIterator[Client]:
    """A client with the spoke's password, and no library of ours."""
    client = await nats.connect(url)
    try:
        yield client
    finally:
        await client.close()


def watching(subject: str | None, **more: Any) -> Json:
    config = {"name": "reader-x", "ack_policy": "none", "deliver_policy": "all", **more}
    if subject is not None:
        config["filter_subjects"] = [subject]
    return {"config": config, "action": "create"}


WEST: Final = "sluice.dispatch.west.>"
EAST: Final = "sluice.dispatch.east.>"
ASKS: dict[str, tuple[str, Json]] = {
    "read another's orders": ("CONSUMER.CREATE.DISPATCHES_NOW.reader-x", watching(WEST)),
    "read all orders": ("CONSUMER.CREATE.DISPATCHES_NOW.reader-x", watching(None)),
    "read all by a wildcard": (
        "CONSUMER.CREATE.DISPATCHES_NOW.reader-x",
        watching("sluice.dispatch.*.>"),
    ),
    "read by a filter beside the list of them": (
        "CONSUMER.CREATE.DISPATCHES_NOW.reader-x",
        watching(EAST, filter_subject=WEST),
    ),
    "read by a filter in the subject": (
        f"CONSUMER.CREATE.DISPATCHES_NOW.reader-x.{WEST}",
        watching(WEST),
    ),
    "let the server say what it likes": (
        "CONSUMER.CREATE.OBSERVED_NOW.reader-x",
        watching("sluice.observed.east.>", deliver_subject="sluice.admission.hub.a.w"),
    ),
    "read the log in which all is kept": ("CONSUMER.CREATE.DISPATCHES.reader-x", watching(EAST)),
    "read keys that wait": ("CONSUMER.CREATE.KEYS_NOW.reader-x", watching("sluice.key.east.>")),
    "read answers of checks": ("CONSUMER.CREATE.OUTCOMES_NOW.reader-x", watching("sluice.>")),
    "read what is in the object store": ("CONSUMER.CREATE.OBJ_objects.reader-x", watching("$O.>")),
    "turn another's consumer round": (
        "CONSUMER.CREATE.DISPATCHES_NOW.patcher-west-dispatch",
        watching(EAST, name="patcher-west-dispatch", durable_name="patcher-west-dispatch"),
    ),
    "make one consumer and name another": (
        "CONSUMER.CREATE.DISPATCHES_NOW.patcher-east-dispatch",
        watching(EAST, name="patcher-west-dispatch", durable_name="patcher-west-dispatch"),
    ),
    "widen its own consumer": (
        "CONSUMER.CREATE.DISPATCHES_NOW.patcher-east-dispatch",
        watching(
            "sluice.>", name="patcher-east-dispatch", durable_name="patcher-east-dispatch"
        ),
    ),
    "delete another's consumer": ("CONSUMER.DELETE.DISPATCHES_NOW.patcher-west-dispatch", {}),
    "look at another's consumer": ("CONSUMER.INFO.DISPATCHES_NOW.patcher-west-dispatch", {}),
    "list consumers": ("CONSUMER.LIST.DISPATCHES_NOW", {}),
    "name consumers": ("CONSUMER.NAMES.DISPATCHES_NOW", {}),
    "pull another's orders": (
        "CONSUMER.MSG.NEXT.DISPATCHES_NOW.patcher-west-dispatch",
        {"batch": 1, "no_wait": True},
    ),
    "pause another's consumer": ("CONSUMER.PAUSE.DISPATCHES_NOW.patcher-west-dispatch", {}),
    "get another's last order": (
        "STREAM.MSG.GET.DISPATCHES",
        {"last_by_subj": "sluice.dispatch.west.a.w"},
    ),
    "get another's order by its place": ("STREAM.MSG.GET.DISPATCHES", {"seq": 1}),
    "get the next order of anybody": (
        "STREAM.MSG.GET.DISPATCHES",
        {"next_by_subj": "sluice.dispatch.>", "seq": 1},
    ),
    "get the next of its own behind a place": (
        "STREAM.MSG.GET.DISPATCHES",
        {"seq": 1, "next_by_subj": EAST},
    ),
    "get many": ("STREAM.MSG.GET.DISPATCHES", {"multi_last": ["sluice.>"], "batch": 10}),
    "get another's orders directly": (
        "DIRECT.GET.DISPATCHES_NOW.sluice.dispatch.west.a.w",
        {},
    ),
    "get orders directly": ("DIRECT.GET.DISPATCHES_NOW", {"seq": 1}),
    "get a body of the object store": (
        "STREAM.MSG.GET.OBJ_objects",
        {"last_by_subj": "$O.objects.M.>"},
    ),
    "get a key of a key-value store": ("STREAM.MSG.GET.KV_x", {"last_by_subj": "$KV.x.>"}),
    "see who holds the decider's lease": (
        "STREAM.MSG.GET.LEASES",
        {"last_by_subj": "sluice.lease.quota"},
    ),
    "see who holds any lease": ("STREAM.MSG.GET.LEASES", {"last_by_subj": ">"}),
    "list the names of all objects": ("STREAM.INFO.OBSERVED", {"subjects_filter": ">"}),
    "list streams": ("STREAM.LIST", {}),
    "delete a stream": ("STREAM.DELETE.ADMISSIONS", {}),
    "purge a stream": ("STREAM.PURGE.ADMISSIONS", {}),
    "delete one message": ("STREAM.MSG.DELETE.DISPATCHES", {"seq": 1}),
    "change a stream": ("STREAM.UPDATE.OBSERVED", {"name": "OBSERVED"}),
    "make a stream": (
        "STREAM.CREATE.MINE",
        {"name": "MINE", "sources": [{"name": "DISPATCHES"}]},
    ),
    "take a stream away whole": ("STREAM.SNAPSHOT.DISPATCHES", {"deliver_subject": "x"}),
    "send what is no JSON object": ("STREAM.MSG.GET.DISPATCHES", {"seq": "1"}),
}  # fmt: skip


async def test_what_it_may_not_ask_is_refused_or_reaches_nobody(
    ground: tuple[Servers, str],
) -> None:
    found, url = ground
    async with bus_at(found.hub, "hub") as hub, client_at(url) as client:
        await hub.publish(order("west", job={"said": SECRET}))
        await work_of(found.direct["west"])
        before = await sequences(hub)
        for what, (request, body) in ASKS.items():
            stream = request.split(".")[2] if request.startswith("CONSUMER.CREATE") else None
            full = {**body, "stream_name": stream} if stream else body
            answer = await asked(client, request, full)
            assert answer is None or "error" in answer, f"{what}: {answer}"
            assert SECRET not in json.dumps(answer), what
        assert await sequences(hub) == before
        for log in load().logs:
            for name in (log, view_of(log)):
                answer = await asked(client, f"STREAM.INFO.{name}", None)
                assert answer is not None
                assert "error" not in answer, "how they are declared"


async def asked(client: Client, request: str, body: Json | None) -> Json | None:
    """The answer, or None where nobody is there to give one."""
    payload = b"" if not body else json.dumps(body).encode()
    try:
        reply = await client.request(f"$JS.API.{request}", payload, timeout=PATIENCE_SECONDS)
    except NoRespondersError:
        return None
    if reply.headers and reply.headers.get("Status"):
        return {"error": reply.headers}
    answer: Json = json.loads(reply.data)
    return answer


async def work_of(url: str) -> None:
    """West's patcher was there, and left its consumer."""
    west = NatsBus(url=url, instance="patcher-west", now=now)

    async def put_off(entry: Entry) -> None:
        await asyncio.sleep(3600)

    west.work("DISPATCHES", "patcher-west-dispatch", put_off, filters=("sluice.dispatch.west.>",))
    await west.start()
    client = await nats.connect(url)
    info = await asked(client, "CONSUMER.INFO.DISPATCHES_NOW.patcher-west-dispatch", None)
    assert info is not None
    assert info["config"]["durable_name"] == "patcher-west-dispatch"
    await client.close()
    await west._worker.stop(seconds=0)  # It leaves the order to whoever comes next.
    await west.stop()


async def test_where_a_view_ends_is_told_without_what_stands_there(
    ground: tuple[Servers, str],
) -> None:
    found, url = ground
    async with bus_at(found.hub, "hub") as hub, client_at(url) as client:
        await hub.publish(order("west", job={"said": SECRET}))
        answer = await asked(client, "STREAM.MSG.GET.DISPATCHES_NOW", {"last_by_subj": ">"})
        assert answer is not None
        message = answer["message"]
        assert (message["seq"], message["data"]) == (1, "")
        said = base64.b64decode(message["hdrs"]).decode()
        assert "Nats-Stream-Source: DISPATCHES 1\r\n" in said
        assert "west" not in said + str(answer)


async def test_the_server_says_nothing_to_the_hub_for_a_spoke(ground: tuple[Servers, str]) -> None:
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


async def test_a_spoke_hears_nothing_that_is_said_to_others(ground: tuple[Servers, str]) -> None:
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
        await west.publish(Beat(spoke="west", instance="patcher-west", number=1, at=NOON))
        assert await west.latest("DISPATCHES", "sluice.dispatch.west.a.w") is not None
        await client.flush()
        await asyncio.sleep(0.5)
        assert [one for one in heard if one.startswith(("sluice.", "_INBOX", "$JS"))] == []


async def test_a_spoke_acknowledges_nothing_of_another(ground: tuple[Servers, str]) -> None:
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
def test_a_name_that_would_mean_more_than_one_cluster_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name of a cluster|is the cluster itself"):
        spoke_rights(name)
