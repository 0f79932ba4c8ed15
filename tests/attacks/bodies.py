"""What a reader makes of bodies that are kept apart, and of requests, which nobody can read (T2, T3)."""

import base64
import json
from collections.abc import Iterator
from typing import Any, Final

from nats.errors import TimeoutError as NatsTimeoutError

from shared.bus.nats.large_bodies import digest_of, reference
from shared.bus.nats.object_store import BODY_BYTES_MAX
from tests.attacks.attack import Attack
from tests.attacks.floods import answer
from tests.attacks.ground import BreachError, Ground

Json = dict[str, Any]

_NAME: Final = "hub/described"
_DATA: Final = b"{}"
_WRONG: Final[tuple[Json, ...]] = (
    {"chunks": "x"},
    {"chunks": []},
    {"chunks": None},
    {"chunks": 1 << 40},
    {"nuid": ">"},
    {"nuid": None},
    {"mtime": 7},
)


async def describes_what_nobody_can_read(ground: Ground) -> None:
    """Describe a body wrongly, and read it as a service does whose message names it."""
    watcher, reader = await ground.client("watcher"), await ground.bus("console")
    ref = reference(_NAME, _DATA)
    for wrong in _WRONG:
        await answer(watcher, _meta_subject(), json.dumps(_described(1) | wrong).encode())
        try:
            body = await reader.get_body(ref)
        except Exception as error:
            raise BreachError(f"{wrong}: its readers end: {error!r}") from error
        if body is not None:
            raise BreachError(f"{wrong}: {body!r} is read")


async def stores_more_than_a_reader_holds(ground: Ground) -> None:
    """Store chunks without end, and have them read as one body."""
    watcher, reader = await ground.client("watcher"), await ground.bus("console")
    chunk = b"x" * (900 << 10)
    number = 2 * BODY_BYTES_MAX // len(chunk)
    for _ in range(number):
        await answer(watcher, "$O.objects.C.large", chunk)
    whole = chunk * number
    described = _described(number) | {"nuid": "large", "digest": _digest(whole)}
    await answer(watcher, _meta_subject(), json.dumps(described).encode())
    if await reader.get_body(f"{_NAME}@{digest_of(whole)}") is not None:
        raise BreachError(f"{len(whole)} bytes are read into the memory of each reader")


async def asks_deeper_than_can_be_passed_on(ground: Ground) -> None:
    """Ask the gateway for a consumer whose configuration is nested as deep as it can be read."""
    await ground.spoke_is_served()
    east = await ground.client("spoke-east")
    name = "patcher-east-workload"
    deep = "[" * 995 + "]" * 995
    named = f'"name":"{name}","durable_name":"{name}","filter_subjects":["sluice.workload.east.>"]'
    config = f'{{{named},"ack_wait":{deep}}}'
    asked = f'{{"stream_name":"WORKLOADS_NOW","config":{config}}}'.encode()
    try:
        told = await answer(east, f"$JS.API.CONSUMER.CREATE.WORKLOADS_NOW.{name}", asked)
    except NatsTimeoutError as error:
        raise BreachError("it is neither taken nor refused: no answer") from error
    if "error" not in told:
        raise BreachError(f"it is taken: {told}")


def _described(chunks: int) -> Json:
    moment = "2026-01-01T00:00:00Z"
    named = {"name": _NAME, "bucket": "objects", "nuid": "n", "size": len(_DATA), "mtime": moment}
    return {**named, "chunks": chunks, "digest": _digest(_DATA)}


def _digest(data: bytes) -> str:
    return f"SHA-256={base64.urlsafe_b64encode(bytes.fromhex(digest_of(data))).decode()}"


def _meta_subject() -> str:
    return f"$O.objects.M.{base64.urlsafe_b64encode(_NAME.encode()).decode()}"


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T3",
        way="watcher describes a body so that its readers end",
        act=describes_what_nobody_can_read,
        own=("$O.objects.>",),
    )
    yield Attack(
        threat="T3",
        way="watcher has readers hold a body without end",
        act=stores_more_than_a_reader_holds,
        own=("$O.objects.>",),
    )
    yield Attack(
        threat="T2",
        way="spoke asks the gateway deeper than it can pass on",
        act=asks_deeper_than_can_be_passed_on,
    )
