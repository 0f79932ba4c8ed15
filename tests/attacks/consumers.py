"""Attacks by consumers: of others, or that deliver where they must not (T3)."""

from collections.abc import Iterator
from typing import Any, Final

from nats.aio.msg import Msg

from shared.bus.admin.permissions import rights_of
from shared.bus.streams import load
from tests.attacks.attack import Act, Attack
from tests.attacks.ground import (
    HOSTS_DURABLE,
    SPOKES_DURABLES,
    BreachError,
    Ground,
    ask,
    look,
    say,
    stolen_name,
)

DURABLE: Final = f"HOSTS_NOW.{HOSTS_DURABLE}"

Json = dict[str, Any]


def pushing(user: str, stream: str, goal: str, *, listens: bool = False) -> Act:
    """Make a consumer that pushes what is in `stream` to `goal`."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        if listens:
            # The server begins to push when it sees a subscription to just that subject.
            await client.subscribe(goal)
            await client.flush()
        name = stolen_name()
        config = {
            "name": name,
            "deliver_policy": "all",
            "ack_policy": "none",
            "deliver_subject": goal,
            "mem_storage": True,
            "num_replicas": 1,
        }
        body = {"stream_name": stream, "config": config, "action": "create"}
        await ask(client, f"$JS.API.CONSUMER.CREATE.{stream}.{name}", body)
        await client.flush()

    return act


def making(user: str, stream: str) -> Act:
    """Make a consumer at all, in each of the ways there are."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        for form in ("CREATE.{stream}.{name}", "CREATE.{stream}.{name}.sluice.>", "CREATE.{stream}",
                     "DURABLE.CREATE.{stream}.{name}"):  # fmt: skip
            name = stolen_name()
            body = {"stream_name": stream, "config": {"name": name, "ack_policy": "none"}}
            request = form.format(stream=stream, name=name)
            if await ask(client, f"$JS.API.CONSUMER.{request}", body) is not None:
                raise BreachError(f"{request} was answered")

    return act


def making_any(user: str) -> Act:
    """Make a consumer that pushes, of any stream, under any name and in each of the ways there are."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        answers: list[bytes] = []

        async def on_answer(message: Msg) -> None:
            answers.append(message.data)

        inbox = client.new_inbox()
        await client.subscribe(f"{inbox}.*", cb=on_answer)
        forms = ("CREATE.{stream}.{name}", "CREATE.{stream}.{name}.>", "CREATE.{stream}",
                 "DURABLE.CREATE.{stream}.{name}")  # fmt: skip
        for stream in load().configs():
            for form in forms:
                name = stolen_name()
                goal = f"$JS.API.CONSUMER.RESET.{DURABLE}"
                config = {"name": name, "ack_policy": "none", "deliver_subject": goal}
                body = {"stream_name": stream, "config": config, "action": "create"}
                request = f"$JS.API.CONSUMER.{form.format(stream=stream, name=name)}"
                await say(client, request, body, reply=f"{inbox}.{name}")
        await client.flush()
        for answer in answers:
            if b'"error"' not in answer and b'"created"' in answer:
                raise BreachError(f"a consumer was made: {answer[:100]!r}")

    return act


def telling(user: str, subject: str, listener: str) -> Act:
    """Say below `live.` that a log stored something, and look whether another believes to have heard it."""

    async def act(ground: Ground) -> None:
        heard: list[str] = []

        async def on_message(message: Msg) -> None:
            heard.append(message.subject)

        other, thief = await ground.client(listener), await ground.client(user)
        await other.subscribe(subject, cb=on_message)
        await other.flush()
        await say(thief, subject, b"{}", headers={"Nats-Sequence": "9999999"})
        await other.flush()
        if heard:
            raise BreachError(f"{listener} heard {heard[0]}")

    return act


def saying(user: str, subject: str, body: bytes | Json = b"") -> Act:
    """Send one request."""

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        await say(client, subject, body, reply=client.new_inbox())

    return act


def disguised(user: str, own: str, theirs: str) -> Act:
    """Ask for the next work of `theirs` by an acknowledgement that looks like one of `own`.

    Both are `<view>.<name>`. In the long form domain and account stand before the view; the server takes it
    for the short form of `theirs`.
    """

    async def act(ground: Ground) -> None:
        client = await ground.client(user)
        for body in (b"+NXT", b'+NXT {"batch": 9}', b"+TERM", b"-NAK", b""):
            for rest in ("1.1.0", "1.1.1.0", "1.1.1.1.0", "1.1.1.1.0.x"):
                subject = f"$JS.ACK.{theirs}.{own}.{rest}"
                await say(client, subject, body, reply=client.new_inbox())

    return act


def anothers_reader(verb: str) -> Act:
    """Find the names of the readers of others, and use them."""

    async def act(ground: Ground) -> None:
        quota = await ground.bus("quota")
        reading = quota.watch("OBSERVED")
        await anext(reading)
        viewer = await ground.client("viewer")
        names = await ask(viewer, "$JS.API.CONSUMER.NAMES.OBSERVED_NOW", {"offset": 0}) or {}
        theirs = [name for name in names.get("consumers") or () if name.startswith("reader-")]
        operator = await ground.client("operator")
        known = await look(operator, "$JS.API.CONSUMER.NAMES.OBSERVED_NOW", {"offset": 0}) or {}
        theirs += [name for name in known["consumers"] if name.startswith("reader-")]
        before = [await look(operator, f"$JS.API.CONSUMER.INFO.OBSERVED_NOW.{n}") for n in theirs]
        for name in theirs:
            await say(
                viewer, f"$JS.API.CONSUMER.{verb}.OBSERVED_NOW.{name}", reply=viewer.new_inbox()
            )
        after = [await look(operator, f"$JS.API.CONSUMER.INFO.OBSERVED_NOW.{n}") for n in theirs]
        await reading.aclose()
        if [_place(one) for one in before] != [_place(one) for one in after]:
            raise BreachError("the reader of quota is not where it was")

    return act


def _place(info: Json | None) -> Any:
    return None if info is None else (info["delivered"]["consumer_seq"], info["num_waiting"])


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T3",
        way="viewer stores a decision by a consumer that pushes to its subject",
        act=pushing("viewer", "HOSTS_NOW", "sluice.admission.hub.team.w", listens=True),
    )
    yield Attack(
        threat="T3",
        way="watcher takes another's lease by a consumer that pushes to its subject",
        act=pushing("watcher", "OBSERVED_NOW", "sluice.lease.quota", listens=True),
    )
    yield Attack(
        threat="T3",
        way="viewer pulls the patcher's work by a consumer that pushes requests",
        act=pushing("viewer", "HOSTS_NOW", f"$JS.API.CONSUMER.MSG.NEXT.{DURABLE}"),
    )
    yield Attack(
        threat="T3",
        way="console starts the patcher's durable again by a consumer that pushes requests",
        act=pushing("console", "QUEUES_NOW", f"$JS.API.CONSUMER.RESET.{DURABLE}"),
    )
    yield Attack(
        threat="T3",
        way="console pulls the patcher's work by a consumer that pushes requests",
        act=pushing("console", "QUEUES_NOW", f"$JS.API.CONSUMER.MSG.NEXT.{DURABLE}"),
    )
    yield Attack(
        threat="T3",
        way="patcher purges the log of decisions by a consumer that pushes requests",
        act=pushing("patcher", "SPOKES_NOW", "$JS.API.STREAM.PURGE.ADMISSIONS"),
    )
    yield Attack(
        threat="T3",
        way="viewer acknowledges the patcher's work by a consumer that pushes",
        act=pushing("viewer", "HOSTS_NOW", f"$JS.ACK.{DURABLE}.1.1.1.1.0"),
    )
    for user, stream in (
        ("viewer", "OBSERVED_NOW"), ("viewer", "HOSTS_NOW"), ("viewer", "ADMISSIONS"),
        ("console", "QUEUES_NOW"), ("console", "OBSERVED_NOW"), ("dispatcher", "KEYS_NOW"),
        ("dispatcher", "TRACES_NOW"),
    ):  # fmt: skip
        yield Attack(
            threat="T3", way=f"{user} makes a consumer of {stream}", act=making(user, stream)
        )
    for verb in ("DELETE", "MSG.NEXT", "RESET"):
        yield Attack(
            threat="T3",
            way=f"viewer uses quota's reader for {verb}",
            act=anothers_reader(verb),
        )
    yield from _on_durables()
    yield from _of_spokes()
    yield from _without_consumers()


def _on_durables() -> Iterator[Attack]:
    """What users and spokes do to a durable that is not theirs."""
    plain = {"name": HOSTS_DURABLE, "durable_name": HOSTS_DURABLE, "ack_policy": "none"}
    changed = {"stream_name": "HOSTS_NOW", "config": plain, "action": "update"}
    for user, what, subject, body in (
        ("viewer", "deletes", f"$JS.API.CONSUMER.DELETE.{DURABLE}", b""),
        ("dispatcher", "deletes", f"$JS.API.CONSUMER.DELETE.{DURABLE}", b""),
        ("provisioner", "pulls from", f"$JS.API.CONSUMER.MSG.NEXT.{DURABLE}", b"9"),
        ("classifier", "acknowledges for", f"$JS.ACK.{DURABLE}.1.1.1.1.0", b"+ACK"),
        ("classifier", "acknowledges by the long name for",
         f"$JS.ACK._._.{DURABLE}.1.1.1.1.0.x", b"+TERM"),
        ("viewer", "changes", f"$JS.API.CONSUMER.CREATE.{DURABLE}", changed),
        ("viewer", "changes by its filter",
         f"$JS.API.CONSUMER.CREATE.{DURABLE}.sluice.host.hub.>", changed),
        ("viewer", "changes by the older request",
         f"$JS.API.CONSUMER.DURABLE.CREATE.{DURABLE}", changed),
        ("viewer", "changes by a request without name", "$JS.API.CONSUMER.CREATE.HOSTS_NOW", changed),
        ("viewer", "pauses", f"$JS.API.CONSUMER.PAUSE.{DURABLE}",
         {"pause_until": "2100-01-01T00:00:00Z"}),
        ("viewer", "resets", f"$JS.API.CONSUMER.RESET.{DURABLE}", b""),
        ("viewer", "unpins", f"$JS.API.CONSUMER.UNPIN.{DURABLE}", {"group": "a"}),
    ):  # fmt: skip
        yield Attack(
            threat="T3", way=f"{user} {what} the patcher's durable", act=saying(user, subject, body)
        )
    east = f"HOSTS_NOW.{SPOKES_DURABLES['HOSTS_NOW']}"
    for threat, user, own, theirs in (
        ("T2", "spoke-east", east, DURABLE),
        ("T3", "quota", "DEAD_NOW.quota-retry", DURABLE),
        ("T3", "quota", "DEAD_NOW.quota-retry", east),
        ("T3", "patcher", DURABLE, east),
    ):
        way = f"{user} pulls from {theirs} by an acknowledgement that looks like its own"
        yield Attack(threat=threat, way=way, act=disguised(user, own, theirs))


def _without_consumers() -> Iterator[Attack]:
    """What users try that read without consumers, and whose durables others make."""
    for user, rights in rights_of().items():
        if not (rights.consumers or rights.lives_with_streams):
            way = f"{user} makes a consumer of any stream that pushes requests"
            yield Attack(threat="T3", way=way, act=making_any(user))
    forgotten = {"name": HOSTS_DURABLE, "durable_name": HOSTS_DURABLE, "ack_policy": "explicit",
                 "inactive_threshold": 10**9}  # fmt: skip
    for what, verb, body in (
        ("has its own durable forgotten", "CREATE", {"stream_name": "HOSTS_NOW", "config": forgotten}),
        ("has its own durable forgotten by the older request", "DURABLE.CREATE",
         {"stream_name": "HOSTS_NOW", "config": forgotten}),
        ("deletes its own durable", "DELETE", b""),
        ("begins its own durable again", "RESET", b'{"seq": 1}'),
        ("pauses its own durable", "PAUSE", {"pause_until": "2100-01-01T00:00:00Z"}),
    ):  # fmt: skip
        act = saying("patcher", f"$JS.API.CONSUMER.{verb}.{DURABLE}", body)
        yield Attack(threat="T3", way=f"patcher {what}", act=act)
    for user in ("classifier", "watcher", "viewer", "quota"):
        way = f"{user} tells the patcher that there is something new"
        act = telling(user, "live.sluice.host.hub.team.b", "patcher")
        yield Attack(threat="T3", way=way, act=act)


def _of_spokes() -> Iterator[Attack]:
    """Uses of the durables of a spoke's patcher by users of the hub that read the same view."""
    for user, view in (
        ("classifier", "HOSTS_NOW"), ("provisioner", "HOSTS_NOW"), ("patcher", "HOSTS_NOW"),
        ("patcher", "DISPATCHES_NOW"), ("tracer", "DISPATCHES_NOW"), ("dispatcher", "HOSTS_NOW"),
    ):  # fmt: skip
        way = f"{user} uses a spoke's durable on {view.removesuffix('_NOW')}"
        yield Attack(threat="T3", way=way, act=of_a_spoke(user, view))


def of_a_spoke(user: str, view: str) -> Act:
    """Pull from it, acknowledge for it, change it and delete it."""

    async def act(ground: Ground) -> None:
        client, name = await ground.client(user), SPOKES_DURABLES[view]
        plain = {"name": name, "durable_name": name, "ack_policy": "explicit"}
        tried: dict[str, bytes | Json] = {
            f"$JS.API.CONSUMER.MSG.NEXT.{view}.{name}": b"9",
            f"$JS.ACK.{view}.{name}.1.1.1.1.0": b"+TERM",
        }
        if user != "dispatcher":  # It makes and deletes them, because it asks for spokes.
            change: Json = {"stream_name": view, "config": plain, "action": ""}
            tried[f"$JS.API.CONSUMER.CREATE.{view}.{name}"] = change
            tried[f"$JS.API.CONSUMER.DELETE.{view}.{name}"] = b""
        for subject, body in tried.items():
            await say(client, subject, body, reply=client.new_inbox())

    return act
