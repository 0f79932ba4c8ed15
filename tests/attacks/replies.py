"""Attacks by naming somebody else's subject as the place for an answer (T3)."""

from collections.abc import Iterator
from typing import Any, Final

from shared.bus.port import AnswerError
from shared.contracts import subjects
from tests.attacks.attack import Act, Attack
from tests.attacks.ground import HOSTS_DURABLE, Ground, ask, say, stolen_name

TERM: Final = "sluice.term.quota"
DECISION: Final = "sluice.admission.hub.team.w"
EXPLAIN: Final = subjects.rpc_subject("quota", "explain")

Json = dict[str, Any]


GOALS: Final = {
    "begins a term of quota": TERM,
    "stores a decision": DECISION,
    "takes the decider's lease": "sluice.lease.quota",
    "purges the log of decisions": "$JS.API.STREAM.PURGE.ADMISSIONS",
    "deletes a log": "$JS.API.STREAM.DELETE.QUEUES",
    "deletes the patcher's durable": f"$JS.API.CONSUMER.DELETE.HOSTS_NOW.{HOSTS_DURABLE}",
    "starts the patcher's durable again": f"$JS.API.CONSUMER.RESET.HOSTS_NOW.{HOSTS_DURABLE}",
    "pulls the patcher's work": f"$JS.API.CONSUMER.MSG.NEXT.HOSTS_NOW.{HOSTS_DURABLE}",
    "acknowledges the patcher's work": f"$JS.ACK.HOSTS_NOW.{HOSTS_DURABLE}.1.1.1.1.0",
    "writes part of a body": "$O.objects.C.chunk",
    "speaks as a spoke at the gateway": "sluice.door.west.CONSUMER.DELETE.OBSERVED_NOW.reader-west-0",
}
"""What somebody wants to the subject that an answer should go to."""


def by_answer_of(user: str, request: str, body: Json, goal: str) -> Act:
    """Ask JetStream, and name `goal` as the inbox."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        await say(client, request, body, reply=goal)

    return act


def by_own_words(goal: str, words: bytes) -> Act:
    """Store `words` where one may, then pull them with `goal` as the inbox: the body is one's own choice."""

    async def act(ground: Ground) -> None:
        client = await ground.client("patcher")
        await ask(client, "sluice.beat.hub._._", words)
        name = stolen_name()
        config = {"name": name, "ack_policy": "none", "filter_subjects": ["sluice.beat.hub.>"]}
        create = {"stream_name": "SPOKES_NOW", "config": config, "action": "create"}
        made = await ask(client, f"$JS.API.CONSUMER.CREATE.SPOKES_NOW.{name}", create)
        name = name if made is None else made["name"]
        await say(client, f"$JS.API.CONSUMER.MSG.NEXT.SPOKES_NOW.{name}", b"1", reply=goal)

    return act


def by_answer_of_quota(goal: str) -> Act:
    """Ask quota a question as viewer, and name `goal` as the inbox: quota publishes there for the viewer."""

    async def act(ground: Ground) -> None:
        async def explain(_: bytes) -> bytes:
            raise AnswerError("there is no such workload", code=404)

        quota = await ground.bus("quota")
        await quota.respond(EXPLAIN, explain)
        viewer = await ground.client("viewer")
        await say(viewer, EXPLAIN, b"{}", reply=goal)

    return act


def by_discovery(goal: str) -> Act:
    """Look for services as viewer, and name `goal` as the inbox: the console publishes there."""

    async def act(ground: Ground) -> None:
        async def ping(_: bytes) -> bytes:
            return b"{}"

        console = await ground.bus("console")
        await console.respond("$SRV.PING", ping, alone=False)
        viewer = await ground.client("viewer")
        await say(viewer, "$SRV.PING", b"", reply=goal)

    return act


def attacks() -> Iterator[Attack]:
    """The rows."""
    for what, goal in GOALS.items():
        yield Attack(
            threat="T3",
            way=f"viewer {what} by the answer to a look at a message",
            act=by_answer_of("viewer", "$JS.API.STREAM.MSG.GET.HOSTS", {"seq": 1}, goal),
        )
    whole = {"seq": 1, "next_by_subj": ">", "batch": 9}
    for what in ("begins a term of quota", "stores a decision", "purges the log of decisions"):
        yield Attack(
            threat="T3",
            way=f"viewer {what} by the answers to a direct read",
            act=by_answer_of("viewer", "$JS.API.DIRECT.GET.HOSTS", whole, GOALS[what]),
        )
    for what in ("begins a term of quota", "purges the log of decisions", "deletes a log"):
        yield Attack(
            threat="T3",
            way=f"viewer {what} by the answer of quota",
            act=by_answer_of_quota(GOALS[what]),
        )
    for what in ("stores a decision", "deletes the patcher's durable"):
        yield Attack(
            threat="T3",
            way=f"viewer {what} by the answer of the console's discovery",
            act=by_discovery(GOALS[what]),
        )
    yield from _by_own_requests()


def _by_own_requests() -> Iterator[Attack]:
    """The answers to what a user may ask, or to what it may publish."""
    for user, request, body in (
        ("watcher", "$JS.API.STREAM.INFO.OBSERVED", {}),
        ("classifier", "$JS.API.STREAM.MSG.GET.WORKLOADS", {"last_by_subj": "sluice.workload.a.b.c"}),
        ("console", "$JS.API.CONSUMER.INFO.QUEUES_NOW.nobody", {}),
        ("tracer", "$JS.API.STREAM.MSG.GET.LEASES", {"last_by_subj": "sluice.lease.tracer"}),
        ("provisioner", "$JS.API.CONSUMER.CREATE.HOSTS_NOW.x", {"stream_name": "CHECKS_NOW"}),
        ("pairs", "$JS.API.CONSUMER.DELETE.OBSERVED_NOW.nobody", {}),
    ):  # fmt: skip
        yield Attack(
            threat="T3",
            way=f"{user} begins a term of quota by the answer to {request.split('API.')[1]}",
            act=by_answer_of(user, request, body, TERM),
        )
    yield Attack(
        threat="T3",
        way="watcher begins a term of quota by the acknowledgement of what it publishes",
        act=by_answer_of("watcher", "sluice.observed.hub.a.b.pods", {}, TERM),
        own=("sluice.observed.hub.>",),
    )
    yield Attack(
        threat="T3",
        way="watcher purges the log of decisions by the acknowledgement of what it publishes",
        act=by_answer_of(
            "watcher", "sluice.observed.hub.a.b.pods", {}, GOALS["purges the log of decisions"]
        ),
        own=("sluice.observed.hub.>",),
    )
    yield from _by_own_words()


def _by_own_words() -> Iterator[Attack]:
    """What a user says itself, stored where it may write."""
    forged = b'{"state": "admitted", "by": "the patcher"}'
    stream = b'{"name": "EVIL", "subjects": ["evil.>"], "sources": [{"name": "KEYS"}]}'
    changed = (
        b'{"name": "ADMISSIONS", "subjects": ["sluice.admission.>", "sluice.term.>"], '
        b'"republish": {"src": ">", "dest": "evil.>"}}'
    )
    for what, goal, words in (
        ("stores a decision", DECISION, forged),
        ("begins a term of quota", TERM, b'{"number": 999}'),
        ("creates a stream that sources keys", "$JS.API.STREAM.CREATE.EVIL", stream),
        ("republishes decisions", "$JS.API.STREAM.UPDATE.ADMISSIONS", changed),
        ("deletes one message", "$JS.API.STREAM.MSG.DELETE.ADMISSIONS", b'{"seq": 1}'),
        ("orders work for a spoke", "sluice.dispatch.west.a.w", forged),
    ):
        yield Attack(
            threat="T3",
            way=f"patcher {what} in its own words, pulled into that subject",
            act=by_own_words(goal, words),
            own=("sluice.beat.hub.>",),
        )
