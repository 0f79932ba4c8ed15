"""Who is cancelled in the moment of an answer ends: nats-py on Python 3.11 goes on (gh-86296)."""

import asyncio
import gc
import json
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from shared.bus.direct_read import DirectRead
from shared.bus.nats.jetstream_api import call

EMPTY = {
    "state": {"last_seq": 0},
    "created": "2026-01-01T00:00:00Z",
    "config": {"num_replicas": 1},
}


class Client:
    """Waits for its answers as nats-py does."""

    def __init__(self) -> None:
        self._error_cb = None
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()

    def new_inbox(self) -> str:
        return "_INBOX.x"

    async def request(self, _subject: str, _data: bytes, timeout: float) -> Msg:  # noqa: ASYNC109
        self.asked.set()
        return await asyncio.wait_for(self.answer, timeout)


async def test_look_cancelled_in_the_moment_of_its_answer_ends() -> None:
    client = Client()
    looking = asyncio.create_task(DirectRead(cast("Any", client), "HOSTS", (">",)).more())
    await client.asked.wait()
    client.answer.set_result(Msg(cast("Any", client), data=json.dumps(EMPTY).encode()))
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking


async def look(client: Client) -> None:
    await DirectRead(cast("Any", client), "HOSTS", (">",)).more()


async def call_api(client: Client) -> None:
    await call(cast("Any", client), "STREAM.INFO.HOSTS")


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("request_by", [look, call_api])
async def test_error_at_the_time_of_a_cancellation_reaches_no_exception_handler(
    request_by: Callable[[Client], Coroutine[Any, Any, None]], turns: int
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    client = Client()
    asking = asyncio.create_task(request_by(client))
    await client.asked.wait()
    client.answer.set_exception(NoRespondersError)
    for _ in range(turns):  # Of the event loop, in which the error comes nearer.
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.sleep(0)  # The request ends after who asked.
    gc.collect()
    assert not complaints
