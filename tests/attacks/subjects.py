"""Attacks by publishing and subscribing where others do, with what a user of the hub has (T3)."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.contracts import subjects
from tests.attacks.attack import Act, Attack
from tests.attacks.consumers import saying
from tests.attacks.ground import THERE, BreachError, Ground, ask, look, say

EXPLAIN: Final = subjects.rpc_subject("quota", "explain")

Json = dict[str, Any]


def hearing(user: str, subject: str, *, queue: str = "") -> Act:
    """Subscribe, let others publish and ask, and look whether anything of theirs came."""

    async def act(ground: Ground) -> None:
        heard: list[str] = []

        async def on_message(message: Msg) -> None:
            heard.append(message.subject)

        thief = await ground.client(user)
        before = await ground.client("quota")
        await thief.subscribe(subject, queue=queue, cb=on_message)
        with_answer = await ground.client("viewer")
        await thief.flush()
        heard.clear()
        await before.request("sluice.queue.hub._.main", b"{}", timeout=30)
        await ask(before, "$JS.API.STREAM.MSG.GET.ADMISSIONS", {"seq": 1})
        await say(with_answer, EXPLAIN, b"{}", reply=with_answer.new_inbox())
        await thief.flush()
        await asyncio.sleep(0.2)
        if heard:
            raise BreachError(f"{user} hears {heard[0]}")

    return act


def reading(user: str, stream: str, subject: str) -> Act:
    """Ask for a message that is none of its business, in each of the ways there are."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        for request, body in (
            (f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}),
            (f"DIRECT.GET.{stream}", {"last_by_subj": subject}),
            (f"DIRECT.GET.{stream}.{subject}", b""),
            (f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": "x"}),
        ):
            reply = client.new_inbox()
            messages = await client.subscribe(reply)
            await say(client, f"$JS.API.{request}", body, reply=reply)
            try:
                message = await messages.next_msg(timeout=0.3)
            except NatsError:
                continue
            if message.data in {b"", THERE[subject]} or b'"message"' in message.data:
                raise BreachError(f"{request} answers {message.data[:80]!r} {message.headers}")

    return act


def answering_for_quota(user: str) -> Act:
    """Answer quota's questions in its place."""

    async def act(ground: Ground) -> None:
        async def answer(message: Msg) -> None:
            await message.respond(b'{"forged": true}')

        thief = await ground.client(user)
        for queue in ("", "q", "thieves"):
            await thief.subscribe(EXPLAIN, queue=queue, cb=answer)
        await thief.flush()
        viewer = await ground.client("viewer")
        if found := await ask(viewer, EXPLAIN, b"{}"):
            raise BreachError(f"{user} answers for quota: {found}")

    return act


def rolling_up(user: str, subject: str) -> Act:
    """Publish where it may, with a header that drops everything else in the stream."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        await say(client, subject, b"x", headers={"Nats-Rollup": "all"}, reply=client.new_inbox())

    return act


def forged_origin(user: str, subject: str) -> Act:
    """Say by a header that a message has a sequence far ahead: readers would drop what follows."""

    async def act(ground: Ground) -> None:
        client, operator = await ground.client(user), await ground.client("operator")
        where = "$JS.API.STREAM.MSG.GET.SPOKES", {"last_by_subj": subject}
        before = await look(operator, *where)
        headers = {"Nats-Stream-Source": "SPOKES 999999999 > > sluice.beat.hub._._"}
        await say(client, subject, b"{}", headers=headers, reply=client.new_inbox())
        if await look(operator, *where) != before:
            raise BreachError("the header was stored")

    return act


def attacks() -> Iterator[Attack]:
    """The rows."""
    for user, what, subject in (
        ("viewer", "writes a decision", "sluice.admission.hub.team.w"),
        ("patcher", "writes a term", "sluice.term.quota"),
        ("classifier", "writes a body", "$O.objects.C.chunk"),
        ("watcher", "takes quota's lease", "sluice.lease.quota"),
        ("watcher", "writes what another cluster's watcher says", "sluice.observed.west.a.b.pods"),
        ("provisioner", "orders work for a spoke", "sluice.dispatch.west.a.w"),
        ("console", "writes to a key-value bucket", "$KV.config.key"),
        ("console", "speaks as a spoke", "sluice.door.west.STREAM.INFO.OBSERVED"),
        ("tracer", "advises of what did not happen", "$JS.EVENT.ADVISORY.CONSUMER.DELETED.A.B"),
        ("viewer", "answers a request of whom it does not know", "_R_.abcdef.12345"),
        ("viewer", "writes by a wildcard", "sluice.*.hub.team.w"),
    ):
        yield Attack(threat="T3", way=f"{user} {what}", act=saying(user, subject, b"{}"))
    yield from _by_requests_to_jetstream()


def _by_requests_to_jetstream() -> Iterator[Attack]:
    """What a user asks JetStream to do to a log."""
    thing: Json = {"name": "EVIL", "subjects": ["evil.>"], "storage": "memory"}
    for user, what, subject, body in (
        ("viewer", "creates a stream", "$JS.API.STREAM.CREATE.EVIL", thing),
        ("classifier", "creates a stream that sources keys", "$JS.API.STREAM.CREATE.EVIL",
         {**thing, "sources": [{"name": "KEYS"}]}),
        ("classifier", "creates a stream that writes decisions", "$JS.API.STREAM.CREATE.EVIL",
         {**thing, "republish": {"src": "evil.>", "dest": "sluice.admission.>"}}),
        ("dispatcher", "purges a log", "$JS.API.STREAM.PURGE.ADMISSIONS", {}),
        ("quota", "purges a log that it only reads", "$JS.API.STREAM.PURGE.CHECKS", {}),
        ("quota", "deletes a message", "$JS.API.STREAM.MSG.DELETE.ADMISSIONS", {"seq": 1}),
        ("viewer", "shortens a log", "$JS.API.STREAM.UPDATE.QUEUES",
         {"name": "QUEUES", "subjects": ["sluice.queue.>"], "max_msgs": 1}),
        ("watcher", "deletes the bucket of bodies", "$JS.API.STREAM.DELETE.OBJ_objects", {}),
        ("viewer", "moves a leader", "$JS.API.STREAM.LEADER.STEPDOWN.ADMISSIONS", {}),
        ("quota", "moves the leader of a log", "$JS.API.STREAM.LEADER.STEPDOWN.ADMISSIONS", {}),
        ("patcher", "moves the leader of a view", "$JS.API.STREAM.LEADER.STEPDOWN.ADMISSIONS_NOW", {}),
        ("viewer", "removes a peer", "$JS.API.STREAM.PEER.REMOVE.ADMISSIONS", {"peer": "n"}),
        ("viewer", "purges the account", "$JS.API.ACCOUNT.PURGE.HUB", {}),
        ("viewer", "restores over a log", "$JS.API.STREAM.RESTORE.QUEUES", {"config": thing}),
    ):  # fmt: skip
        yield Attack(threat="T3", way=f"{user} {what}", act=saying(user, subject, body))
    yield from _by_listening()


def _by_listening() -> Iterator[Attack]:
    """What a user hears or reads that is not for it."""
    for user, subject in (
        ("classifier", ">"), ("classifier", "_INBOX.>"), ("viewer", "_INBOX.>"),
        ("viewer", "_R_.>"), ("viewer", "$JS.>"), ("console", "sluice.>"),
        ("patcher", "sluice.rpc.>"), ("viewer", EXPLAIN), ("tracer", "$SYS.>"),
        ("classifier", "live.>"), ("provisioner", "live.sluice.>"), ("quota", "live.sluice.queue.>"),
        ("watcher", "live.sluice.queue.>"), ("tracer", "live.sluice.queue.hub.>"),
    ):  # fmt: skip
        yield Attack(
            threat="T3",
            way=f"{user} listens to {subject}",
            act=hearing(user, subject),
            own=("sluice.queue.hub.>",),
        )
    for user, stream, subject in (
        ("viewer", "KEYS", "sluice.key.hub.a.b"),
        ("dispatcher", "KEYS", "sluice.key.hub.a.b"),
        ("dispatcher", "KEYS_NOW", "sluice.key.hub.a.b"),
        ("console", "DISPATCHES", "sluice.dispatch.west.a.w"),
        ("classifier", "CHECKS", "sluice.check.hub.team.w.machines"),
    ):
        yield Attack(threat="T3", way=f"{user} reads {stream}", act=reading(user, stream, subject))
    for user in ("viewer", "console", "patcher"):
        yield Attack(threat="T3", way=f"{user} answers for quota", act=answering_for_quota(user))
    yield from _by_headers()


def _by_headers() -> Iterator[Attack]:
    """What a user does by headers of its own, or asks of the server."""
    yield Attack(
        threat="T3",
        way="tracer drops everybody's leases by a header of its own",
        act=rolling_up("tracer", "sluice.lease.tracer"),
        own=("sluice.lease.tracer",),
    )
    yield Attack(
        threat="T3",
        way="patcher drops a log by a header of its own",
        act=rolling_up("patcher", "sluice.beat.hub._._"),
        own=("sluice.beat.hub.>",),
    )
    yield Attack(
        threat="T3",
        way="patcher claims a sequence far ahead by a header",
        act=forged_origin("patcher", "sluice.beat.hub._._"),
    )
    yield Attack(
        threat="T3",
        way="viewer asks the server about its connections",
        act=asking_the_system("viewer"),
    )


def asking_the_system(user: str) -> Act:
    """Ask the system account, which tells everybody's addresses and subjects."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        for what in ("SERVER.PING.CONNZ", "ACCOUNT.HUB.CONNZ", "ACCOUNT.HUB.SUBSZ", "SERVER.PING"):
            if await ask(client, f"$SYS.REQ.{what}") is not None:
                raise BreachError(f"{what} was answered")

    return act
