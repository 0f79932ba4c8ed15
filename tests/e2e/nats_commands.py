"""What the stock `nats` command asks of the server, for the commands that our documents show.

The command itself is a Go program that no package of ours brings, so the requests are made here that its
source makes (natscli and jsm.go, 2026): the same subjects, the same bodies. Who reads a document still has
to trust that the command does so; that the server answers, with something in it, is shown.
"""

import asyncio
import base64
import json
import shlex
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nats.aio.client import Client

from shared.settings.access import Access

__all__ = ["run"]

ANSWER_SECONDS: Final = 300.0

Json = dict[str, Any]
Command = Callable[[Client, list[str]], Awaitable[None]]


async def _api(nc: Client, what: str, body: Json | None = None) -> Json:
    data = b"" if body is None else json.dumps(body).encode()
    answer: Json = json.loads(
        (await nc.request(f"$JS.API.{what}", data, timeout=ANSWER_SECONDS)).data
    )
    assert "error" not in answer, (what, answer)
    return answer


async def _account(nc: Client, _: list[str]) -> None:
    assert (await _api(nc, "INFO"))["streams"] > 0
    user = await nc.request("$SYS.REQ.USER.INFO", timeout=ANSWER_SECONDS)
    assert json.loads(user.data)["data"]["account"]


async def _stream_ls(nc: Client, _: list[str]) -> None:
    assert (await _api(nc, "STREAM.LIST", {"offset": 0}))["streams"]


async def _stream_info(nc: Client, arguments: list[str]) -> None:
    assert (await _api(nc, f"STREAM.INFO.{arguments[0]}"))["state"]["messages"] > 0


async def _stream_subjects(nc: Client, arguments: list[str]) -> None:
    stream, filter_ = (*arguments, ">")[:2]
    body = {"subjects_filter": filter_, "offset": 0}
    found = await _api(nc, f"STREAM.INFO.{stream}", body)
    assert found["state"].get("subjects"), f"{stream} holds nothing of {filter_}"


async def _stream_get(nc: Client, arguments: list[str]) -> None:
    stream, *rest = arguments
    which = {"last_by_subj": rest[1]} if rest[0] == "--last-for" else {"seq": int(rest[0])}
    found = await _api(nc, f"STREAM.MSG.GET.{stream}", which)
    assert json.loads(base64.b64decode(found["message"]["data"])), "a body that a person can read"


async def _consumer_ls(nc: Client, arguments: list[str]) -> None:
    await _api(nc, f"STREAM.INFO.{arguments[0]}")
    assert (await _api(nc, f"CONSUMER.NAMES.{arguments[0]}", {"offset": 0}))["consumers"]


async def _consumer_info(nc: Client, arguments: list[str]) -> None:
    stream, consumer = arguments
    found = await _api(nc, f"CONSUMER.INFO.{stream}.{consumer}")
    assert {"num_pending", "num_ack_pending"} <= found.keys()


async def _consumer_report(nc: Client, arguments: list[str]) -> None:
    await _api(nc, f"STREAM.INFO.{arguments[0]}")
    assert (await _api(nc, f"CONSUMER.LIST.{arguments[0]}", {"offset": 0}))["consumers"]


async def _sub(nc: Client, arguments: list[str]) -> None:
    """Hears nothing unless something happens: so what was on these subjects must be on a log."""
    await nc.subscribe(arguments[0])
    await nc.flush()
    held = 0
    for stream in (await _api(nc, "STREAM.NAMES", {"offset": 0}))["streams"]:
        body = {"subjects_filter": arguments[0], "offset": 0}
        found = await _api(nc, f"STREAM.INFO.{stream}", body)
        held += len(found["state"].get("subjects") or {})
    assert held, f"no stream ever held anything of {arguments[0]}"


async def _req(nc: Client, arguments: list[str]) -> None:
    reply = await nc.request(arguments[0], arguments[1].encode(), timeout=ANSWER_SECONDS)
    answer = json.loads(reply.data)
    assert "items" in answer, answer
    assert not answer.get("problem"), answer


async def _service(nc: Client, what: str, name: str = "") -> None:
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    await nc.publish(f"$SRV.{what}" + (f".{name}" if name else ""), b"", inbox)
    found = json.loads((await answers.next_msg(timeout=ANSWER_SECONDS)).data)
    assert found["type"] == f"io.nats.micro.v1.{what.lower()}_response"


async def _rtt(nc: Client, _: list[str]) -> None:
    await nc.flush()


COMMANDS: Final[dict[str, Command]] = {
    "rtt": _rtt,
    "account info": _account,
    "stream ls": _stream_ls,
    "stream info": _stream_info,
    "stream subjects": _stream_subjects,
    "stream get": _stream_get,
    "consumer ls": _consumer_ls,
    "consumer info": _consumer_info,
    "consumer report": _consumer_report,
    "sub": _sub,
    "req": _req,
    "micro ls": lambda nc, _: _service(nc, "PING"),
    "micro info": lambda nc, arguments: _service(nc, "INFO", arguments[0]),
    "micro stats": lambda nc, arguments: _service(nc, "STATS", arguments[0]),
}
"""Every form that a document may show."""


def run(line: str, url: str, access: Access) -> None:
    """Make the requests that this command makes. Raises where the server refuses or has nothing."""
    words = shlex.split(line)[1:]
    form = next((f for f in COMMANDS if words[: len(f.split())] == f.split()), None)
    assert form is not None, f"nobody has written here what `{line}` asks"
    arguments = words[len(form.split()) :]

    async def ask() -> None:
        refused: list[str] = []

        async def on_error(error: Exception) -> None:
            refused.append(str(error))

        nc = Client()
        await nc.connect(url, allow_reconnect=False, error_cb=on_error, **access.options())
        try:
            await COMMANDS[form](nc, arguments)
        finally:
            await nc.close()
            assert not refused, refused

    asyncio.run(ask())
