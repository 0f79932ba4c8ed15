"""What a spoke may not ask of JetStream on the hub."""

import base64
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from shared.bus.streams import load, view_of
from shared.contracts.messages.admissions import Term
from shared.testing.waiting import eventually
from tests.integration.spoke_bus import (
    EAST,
    SECRET,
    Json,
    asked,
    bus_at,
    client_at,
    order,
    sequences,
    watching,
    work_of,
)
from tests.integration.spoke_servers import Servers

WEST: Final = "sluice.dispatch.west.>"


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
    "create a push consumer that delivers to another subject": (
        "CONSUMER.CREATE.OBSERVED_NOW.reader-x",
        watching("sluice.observed.east.>", deliver_subject="sluice.admission.hub.a.w"),
    ),
    "read the log of all orders": ("CONSUMER.CREATE.DISPATCHES.reader-x", watching(EAST)),
    "read keys that are not delivered yet": (
        "CONSUMER.CREATE.KEYS_NOW.reader-x", watching("sluice.key.east.>"),
    ),
    "read answers of checks": ("CONSUMER.CREATE.OUTCOMES_NOW.reader-x", watching("sluice.>")),
    "read the object store": ("CONSUMER.CREATE.OBJ_objects.reader-x", watching("$O.>")),
    "change the filter of another's consumer": (
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
    "get another's order by its sequence": ("STREAM.MSG.GET.DISPATCHES", {"seq": 1}),
    "get the next order of any spoke": (
        "STREAM.MSG.GET.DISPATCHES",
        {"next_by_subj": "sluice.dispatch.>", "seq": 1},
    ),
    "get its own next order after a sequence": (
        "STREAM.MSG.GET.DISPATCHES",
        {"seq": 1, "next_by_subj": EAST},
    ),
    "get the decisions about others from the view": (
        "STREAM.MSG.GET.ADMISSIONS_NOW",
        {"seq": 1, "next_by_subj": "sluice.admission.>"},
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
    "read the holder of the decider's lease": (
        "STREAM.MSG.GET.LEASES",
        {"last_by_subj": "sluice.lease.quota"},
    ),
    "read the holder of any lease": ("STREAM.MSG.GET.LEASES", {"last_by_subj": ">"}),
    "list the names of all objects": ("STREAM.INFO.OBSERVED", {"subjects_filter": ">"}),
    "list the names of another's orders": (
        "STREAM.INFO.DISPATCHES_NOW",
        {"subjects_filter": "sluice.dispatch.west.>", "offset": 0},
    ),
    "list the names of all orders": (
        "STREAM.INFO.DISPATCHES_NOW",
        {"subjects_filter": "sluice.dispatch.>", "offset": 0},
    ),
    "list the names of its own orders and of deleted ones": (
        "STREAM.INFO.DISPATCHES_NOW",
        {"subjects_filter": EAST, "offset": 0, "deleted_details": True},
    ),
    "list streams": ("STREAM.LIST", {}),
    "delete a stream": ("STREAM.DELETE.ADMISSIONS", {}),
    "purge a stream": ("STREAM.PURGE.ADMISSIONS", {}),
    "delete one message": ("STREAM.MSG.DELETE.DISPATCHES", {"seq": 1}),
    "change a stream": ("STREAM.UPDATE.OBSERVED", {"name": "OBSERVED"}),
    "make a stream": (
        "STREAM.CREATE.MINE",
        {"name": "MINE", "sources": [{"name": "DISPATCHES"}]},
    ),
    "take a snapshot of a stream": ("STREAM.SNAPSHOT.DISPATCHES", {"deliver_subject": "x"}),
    "send a request that is no JSON object": ("STREAM.MSG.GET.DISPATCHES", {"seq": "1"}),
}  # fmt: skip


async def test_forbidden_request_of_a_spoke_is_refused_or_not_delivered(
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


async def test_last_sequence_of_a_view_is_returned_without_its_message(
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


async def test_spoke_is_told_which_of_its_own_orders_a_view_lists(
    ground: tuple[Servers, str],
) -> None:
    found, url = ground
    async with bus_at(found.hub, "hub") as hub, client_at(url) as client:
        await hub.publish(order("east"))
        await hub.publish(order("west"))
        await work_of(found.direct["west"])
        listing = {"subjects_filter": EAST, "offset": 0}
        answer = await asked(client, "STREAM.INFO.DISPATCHES_NOW", listing)
        assert answer is not None
        assert [*answer["state"]["subjects"]] == [order("east").subject]


async def test_spoke_may_read_the_terms_of_quota(ground: tuple[Servers, str]) -> None:
    found, url = ground
    async with bus_at(found.hub, "hub") as hub, client_at(url) as client:
        began = Term(term=7, holder="quota-1", began_at=datetime(2026, 1, 2, tzinfo=UTC))
        await hub.publish(began)
        for stream, subject in (("ADMISSIONS", "sluice.term.>"), ("ADMISSIONS_NOW", began.subject)):
            which = {"seq": 1, "next_by_subj": subject}
            get = partial(asked, client, f"STREAM.MSG.GET.{stream}", which)
            # The view has it a moment later.
            await eventually(partial(has_message, get), f"{stream} gives no Term")


async def has_message(get: Callable[[], Awaitable[Json | None]]) -> bool:
    return "message" in (await get() or {})
