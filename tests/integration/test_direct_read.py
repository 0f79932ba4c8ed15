"""Direct reads with several filters return each entry once and in order, whatever is written meanwhile.

Both stages write between any two requests of a reader: a real server, and one in memory whose replicas lag.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, cast

import nats
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus import direct_read
from shared.bus.direct_read import DirectRead, SilentError, common_filter, sequence_of
from shared.bus.filters import covers
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS

STREAM = "WORKLOADS"
TEAMS, NAMES = ("red", "blue"), ("a", "b", "c")
FILTERS = (
    *(f"sluice.workload.hub.{team}.{name}" for team in TEAMS for name in NAMES),
    *(f"sluice.workload.hub.{team}.*" for team in TEAMS),
    "sluice.workload.*.*.a", "sluice.workload.hub.>",
)  # fmt: skip
Written = list[str]
MOST = 40
"""What others write in the course of one reading, about."""


def subject_of(rng: Random) -> str:
    return f"sluice.workload.hub.{rng.choice(TEAMS)}.{rng.choice(NAMES)}"


class Memory:
    """Answers direct reads as a server does. Each of several replicas knows a part of what was written."""

    def __init__(self, rng: Random, *, replicas: int) -> None:
        self._rng, self._replicas = rng, replicas
        self._known = [0] * replicas
        self._listening: dict[str, Callable[[Msg], Awaitable[None]]] = {}
        self._inboxes = 0
        self.subscribed = 0
        self.written: Written = []
        self.most = MOST

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self._inboxes}"

    async def subscribe(self, subject: str, *, cb: Any, **_limits: int) -> "Memory":
        self.subscribed += 1
        self._listening[subject] = cb
        return self

    async def unsubscribe(self) -> None:
        self._listening.clear()

    async def request(self, subject: str, data: bytes, **_: float) -> Msg:
        self._write()
        if ".STREAM.INFO." in subject:
            config = {"num_replicas": self._replicas}
            state = {"last_seq": len(self.written)}
            found: dict[str, Any] = {"config": config, "created": "today", "state": state}
        else:
            asked = json.loads(data)
            [*after] = self._matching(asked, len(self.written))
            found = {"message": {"seq": after[0]}} if after else {"error": {"code": 404}}
        return _message("", json.dumps(found).encode(), {})

    async def publish(self, _subject: str, data: bytes, inbox: str) -> None:
        self._write()
        asked, replica = json.loads(data), self._rng.randrange(self._replicas)
        if replica:
            self._known[replica] = self._rng.randint(self._known[replica], len(self.written))
        known = self._known[replica] if replica else len(self.written)
        every = list(self._matching(asked, known))
        for sequence in every[: asked["batch"]]:
            headers = {"Nats-Sequence": str(sequence), "Nats-Subject": self.written[sequence - 1]}
            await self._answer(_message(inbox, b"", headers))
        rest = str(max(0, len(every) - asked["batch"]))
        end = {"Status": "204", "Nats-Num-Pending": rest} if every else {"Status": "404"}
        await self._answer(_message(inbox, b"", end))

    async def _answer(self, message: Msg) -> None:
        for subject, callback in self._listening.items():
            if covers(subject, message.subject):
                await callback(message)

    def _matching(self, asked: dict[str, Any], known: int) -> Iterator[int]:
        return (
            sequence
            for sequence in range(asked["seq"], known + 1)
            if covers(asked["next_by_subj"], self.written[sequence - 1])
        )

    def _write(self) -> None:
        if len(self.written) < self.most:
            self.written += (subject_of(self._rng) for _ in range(self._rng.randrange(4)))


class Busy:
    """A connection to a real server, on which others write before each request."""

    def __init__(self, nc: Client, rng: Random, written: Written) -> None:
        self._nc, self._rng = nc, rng
        self.written, self.most = written, len(written) + MOST

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nc, name)

    async def request(self, subject: str, data: bytes, **limits: Any) -> Msg:
        await self._write()
        return await self._nc.request(subject, data, **limits)

    async def publish(self, subject: str, data: bytes, inbox: str) -> None:
        await self._write()
        await self._nc.publish(subject, data, inbox)

    async def _write(self) -> None:
        for _ in range(self._rng.randrange(4) if len(self.written) < self.most else 0):
            subject = subject_of(self._rng)
            await self._nc.jetstream(timeout=PATIENCE_SECONDS).publish(subject, b"{}")
            self.written.append(subject)


class Lossy:
    """A connection to a real server, on which one message of the first answer does not arrive."""

    def __init__(self, nc: Client, lost: int) -> None:
        self._nc, self._lost = nc, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nc, name)

    async def subscribe(self, subject: str, *, cb: Any, **limits: Any) -> Any:
        async def arrives(message: Msg) -> None:
            self._lost -= 1
            if self._lost != -1:
                await cb(message)

        return await self._nc.subscribe(subject, cb=arrives, **limits)


def _message(subject: str, data: bytes, headers: dict[str, str]) -> Msg:
    return Msg(_client=cast("Any", None), subject=subject, data=data, headers=headers)


async def read_all(nc: Any, filters: tuple[str, ...], start: int) -> list[int]:
    """Everything that matches, once nothing more is written."""
    direct = DirectRead(nc, STREAM, filters, start=start)
    found: list[int] = []
    hinted = False
    while len(nc.written) < nc.most or direct.position < len(nc.written) or direct.pending:
        messages = await direct.more(hinted=hinted)
        hinted = bool(messages)
        found += [sequence_of(message) or 0 for message in messages]
    await direct.close()
    return found


def expected(written: Written, filters: tuple[str, ...], start: int) -> list[int]:
    return [
        number
        for number, subject in enumerate(written, 1)
        if number >= start and any(covers(one, subject) for one in filters)
    ]


@given(
    filters=st.lists(st.sampled_from(FILTERS), min_size=1, max_size=4),
    replicas=st.sampled_from([1, 3]),
    start=st.integers(1, 9),
    batch=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=200)
def test_nothing_is_dropped_or_out_of_order_beside_writers_and_lagging_replicas(
    filters: list[str], replicas: int, start: int, batch: int, seed: int
) -> None:
    chosen, server = tuple(filters), Memory(Random(seed), replicas=replicas)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_read, "BATCH", batch)
        patch.setattr(direct_read, "BEHIND_SECONDS", 0)
        found = asyncio.run(read_all(server, chosen, start))
    assert found == expected(server.written, chosen, start)
    assert server.subscribed <= 1, "all answers come into one inbox"


@pytest.mark.parametrize("batch", [1, 3])
async def test_real_server_is_read_in_order_beside_writers(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_read, "BATCH", batch)
    async with nats_server() as server:
        nc = await nats.connect(server.url)
        try:
            written: Written = []
            for seed in range(8):
                rng, start = Random(seed), len(written) + 1
                chosen = tuple(rng.sample(FILTERS, rng.randint(1, 4)))
                found = await read_all(Busy(nc, rng, written), chosen, start)
                assert found == expected(written, chosen, start), seed
        finally:
            await nc.close()


COMMON = {
    ("a.b.c",): "a.b.c",
    ("a.b.c", "a.b.d"): "a.b.*",
    ("a.b.>", "a.c.d"): "a.*.>",
    ("a.b", "a.b.c"): "a.>",
    ("a.*.c", "a.b.*"): "a.*.*",
    ("a", "b.c"): ">",
    (">", "a.b"): ">",
}  # fmt: skip


@pytest.mark.parametrize(("filters", "common"), COMMON.items(), ids=[str(one) for one in COMMON])
def test_common_filter_covers_each(filters: tuple[str, ...], common: str) -> None:
    assert common_filter(filters) == common
    assert all(covers(common, one) for one in filters)


async def test_answer_of_which_a_part_was_lost_is_not_believed() -> None:
    async with nats_server() as server:
        nc = await nats.connect(server.url)
        for name in ("a", "b", "a", "c", "a"):
            await nc.jetstream(timeout=PATIENCE_SECONDS).publish(
                f"sluice.workload.hub.team.{name}", b"{}"
            )
        for lost in (0, 2, 4):
            direct = DirectRead(cast("Any", Lossy(nc, lost)), STREAM, (">",))
            with pytest.raises(SilentError, match="a part of an answer was lost"):
                await direct.more()
            assert len(await direct.more()) == 5, "the same is read again"
        ended = DirectRead(nc, STREAM, (">",))
        await ended.more()
        await nc.close()
        with pytest.raises(SilentError, match="connection closed"):
            await ended._batch({"seq": 1, "next_by_subj": ">"})
