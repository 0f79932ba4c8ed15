"""Attacks of a spoke whose agent is in somebody else's hands (T2)."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from nats.errors import Error as NatsError

from shared.contracts.kube.kinds import JOB
from shared.contracts.messages.dispatches import Dispatch
from shared.testing.builders import observed
from shared.testing.waiting import eventually
from tests.attacks.attack import Act, Attack
from tests.attacks.floods import OWN
from tests.attacks.ground import BreachError, Ground, ask, say

Json = dict[str, Any]


def order(spoke: str, name: str) -> Dispatch:
    """An order of the hub."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return Dispatch(
        spoke=spoke, cluster="hub", namespace="a", name=name, uid="u", state="offered", at=at
    )


async def swallows_orders(ground: Ground) -> None:
    """See the id of an order to oneself, and publish the next ids before the hub does."""
    hub = await ground.bus("dispatcher")
    await ground.spoke_is_served()
    mine = order("east", "mine")
    await hub.publish(mine)
    east = await ground.client("spoke-east")
    which = {"last_by_subj": mine.subject}
    stored = await ask(east, "$JS.API.STREAM.MSG.GET.DISPATCHES", which)
    assert stored is not None
    for identity in _next_ids(stored["message"].get("hdrs", "")):
        for subject in ("sluice.copy.east.a.w", "sluice.outcome.east.a.w", "sluice.beat.east._._"):
            await say(
                east, subject, b"{}", headers={"Nats-Msg-Id": identity}, reply=east.new_inbox()
            )
    theirs = order("west", "theirs")
    await hub.publish(theirs)
    if await hub.latest("DISPATCHES", theirs.subject) is None:
        raise BreachError("an order to west was taken for a duplicate")


async def swallows_observations(ground: Ground) -> None:
    """Publish the names that the hub's watcher will give to what it sees next: an object says them."""
    await ground.spoke_is_served()
    east = await ground.client("spoke-east")
    seen = observed(JOB, "j", namespace="a")
    for name in (str(seen.message_id), f"{seen.message_id}:gone"):
        headers = {"Nats-Msg-Id": name}
        await say(
            east,
            "sluice.observed.east.a.j.jobs_batch",
            b"{}",
            headers=headers,
            reply=east.new_inbox(),
        )
    watcher = await ground.bus("watcher")
    await watcher.publish(seen)
    if await watcher.latest("OBSERVED", seen.subject) is None:
        raise BreachError("what the hub's watcher saw was taken for a duplicate")


def _next_ids(headers: str) -> list[str]:
    from base64 import b64decode  # noqa: PLC0415

    lines = b64decode(headers).decode().split("\r\n")
    [identity] = [
        line.partition(":")[2].strip() for line in lines if line.startswith("Nats-Msg-Id")
    ]
    head, _, number = identity.rpartition(":")
    if not number.isdecimal():
        return [identity]
    return [f"{head}:{int(number) + ahead}" for ahead in range(1, 6)]


def saying(subject: str, body: bytes | Json = b"{}", *, reply: str | None = None) -> Act:
    """Publish as east."""

    async def act(ground: Ground) -> None:
        await ground.spoke_is_served()
        east = await ground.client("spoke-east")
        await say(east, subject, body, reply=reply or east.new_inbox())

    return act


def asking(request: str, body: Json, secret: str) -> Act:
    """Ask at the gateway for what is another's."""

    async def act(ground: Ground) -> None:
        await ground.spoke_is_served()
        east = await ground.client("spoke-east")
        for prefix in ("$JS.API", "$JS.hub.API"):
            answer = await ask(east, f"{prefix}.{request}", body)
            if answer is not None and secret in json.dumps(answer):
                raise BreachError(f"{request} is answered: {answer}")

    return act


async def drops_leases(ground: Ground) -> None:
    """Renew one's lease with a header that drops everything else in the stream."""
    await ground.spoke_is_served()
    east = await ground.client("spoke-east")
    headers = {"Nats-Rollup": "all"}
    await say(east, "sluice.lease.watcher-east", b"x", headers=headers, reply=east.new_inbox())


async def listens(ground: Ground) -> None:
    """Subscribe to everything, while the hub and the other spoke talk."""
    await ground.spoke_is_served()
    east, west = await ground.client("spoke-east"), await ground.client("spoke-west")
    messages = [
        await east.subscribe(each) for each in (">", "sluice.>", "_INBOX.>", "$JS.>", "_R_.>")
    ]
    await east.flush()
    await ask(west, "sluice.beat.west._._")
    await ask(west, "$JS.API.STREAM.INFO.OBSERVED")
    operator = await ground.client("operator")
    await ask(operator, "sluice.queue.hub._.main")
    await east.flush()
    for each in messages:
        try:
            message = await each.next_msg(timeout=0.2)
        except NatsError:
            continue
        raise BreachError(f"east hears {message.subject}")


def asking_too_much(requests: int, filters: int) -> Act:
    """Keep the gateway busy, while the other spoke asks for little."""

    async def act(ground: Ground) -> None:
        await ground.spoke_is_served()
        east, west = await ground.client("spoke-east"), await ground.client("spoke-west")
        many = [f"sluice.dispatch.east.a.w{number}" for number in range(filters)]
        config = {"name": "x", "ack_policy": "none", "filter_subjects": many}
        body = json.dumps({"stream_name": "DISPATCHES_NOW", "config": config}).encode()
        for _ in range(requests):
            await east.publish("$JS.API.CONSUMER.CREATE.DISPATCHES_NOW.x", body, east.new_inbox())
        await east.flush(timeout=60)
        await eventually(lambda: ask(west, "$JS.API.STREAM.INFO.OBSERVED"), "west is not answered")

    return act


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T2",
        way="spoke makes an order to another vanish by its next message id",
        act=swallows_orders,
        own=(*OWN, "sluice.dispatch.>"),
    )
    yield Attack(
        threat="T2",
        way="spoke makes what the hub sees vanish by the name that it will have",
        act=swallows_observations,
        own=(*OWN, "sluice.observed.hub.a.j.>"),
    )
    yield Attack(
        threat="T2",
        way="spoke drops everybody's leases by a header of its own",
        act=drops_leases,
        own=("sluice.lease.watcher-east",),
    )
    yield Attack(
        threat="T2",
        way="spoke hears the hub and another spoke",
        act=listens,
        own=("sluice.beat.west.>", "sluice.queue.>"),
    )
    yield Attack(
        threat="T2",
        way="spoke keeps another from the gateway by many requests",
        act=asking_too_much(requests=2_000, filters=300),
    )
    yield Attack(
        threat="T2",
        way="spoke keeps another from the gateway by large requests",
        act=asking_too_much(requests=100, filters=30_000),
    )
    yield from _by_words()


def _by_words() -> Iterator[Attack]:
    """What a spoke says under names that are not its own."""
    for what, subject in (
        ("orders work as the hub", "sluice.dispatch.west.a.w"),
        ("decides about its own work", "sluice.admission.east.a.w"),
        ("begins a term of quota", "sluice.term.quota"),
        ("says what another observes", "sluice.observed.west.a.b.pods"),
        ("says what another observes by a wildcard", "sluice.observed.*.a.b.pods"),
        ("reports for another", "sluice.outcome.west.a.w"),
        ("answers a check", "sluice.check.hub.a.w.x"),
        ("takes another's lease", "sluice.lease.watcher-west"),
        ("beats under ever new names, each of which the view keeps", "sluice.beat.east.a.w"),
        ("shows keys under ever new names", "sluice.seal.east.a.w"),
        ("speaks as another at the gateway", "sluice.door.west.STREAM.INFO.OBSERVED"),
        ("asks quota", "sluice.rpc.quota.explain"),
        ("writes a body", "$O.objects.C.chunk"),
        ("purges a log", "$JS.API.STREAM.PURGE.OBSERVED"),
        ("purges a log past the mapping", "$JS.hub.API.STREAM.PURGE.OBSERVED"),
        ("deletes another's durable", "$JS.API.CONSUMER.DELETE.HOSTS_NOW.patcher-hub-host"),
        ("pulls another's work", "$JS.API.CONSUMER.MSG.NEXT.HOSTS_NOW.patcher-hub-host"),
        ("acknowledges another's work", "$JS.ACK.HOSTS_NOW.patcher-hub-host.1.1.1.1.0"),
        ("deletes another's reader", "$JS.API.CONSUMER.DELETE.OBSERVED_NOW.reader-west-0"),
    ):
        yield Attack(threat="T2", way=f"spoke {what}", act=saying(subject))
    yield Attack(
        threat="T2",
        way="spoke begins a term of quota by an acknowledgement",
        act=saying("sluice.beat.east._._", reply="sluice.term.quota"),
        own=OWN,
    )
    yield from _by_questions()


def _by_questions() -> Iterator[Attack]:
    """What a spoke asks of the gateway about others."""
    pushing = {
        "name": "x", "ack_policy": "none", "deliver_subject": "sluice.term.quota",
        "filter_subjects": ["sluice.dispatch.east.>"],
    }  # fmt: skip
    all_of_it = {"name": "x", "ack_policy": "none", "filter_subjects": ["sluice.dispatch.>"]}
    west = "sluice.dispatch.west.a.w"
    for what, request, body in (
        ("makes a consumer that pushes", "CONSUMER.CREATE.DISPATCHES_NOW.x",
         {"stream_name": "DISPATCHES_NOW", "config": pushing}),
        ("makes a consumer of everybody's orders", "CONSUMER.CREATE.DISPATCHES_NOW.x",
         {"stream_name": "DISPATCHES_NOW", "config": all_of_it}),
        ("reads another's order", "STREAM.MSG.GET.DISPATCHES", {"last_by_subj": west}),
        ("reads another's order by its place", "STREAM.MSG.GET.DISPATCHES", {"seq": 1}),
        ("reads the next order of anybody", "STREAM.MSG.GET.DISPATCHES",
         {"next_by_subj": ">", "seq": 1}),
        ("reads names of others", "STREAM.INFO.DISPATCHES", {"subjects_filter": ">"}),
        ("reads directly", "DIRECT.GET.DISPATCHES", {"last_by_subj": west}),
    ):  # fmt: skip
        yield Attack(threat="T2", way=f"spoke {what}", act=asking(request, body, "west"))
