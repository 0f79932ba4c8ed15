"""Reads a stream without a consumer, by `$JS.API.DIRECT.GET`.

Who may make consumers can make one that pushes where its user may not send. Direct reads leave nothing at the
server, and are answered into the own inbox only.

A direct read has one filter. What matches several is first read for each of them and merged; what is stored
later is read by one filter that covers them all, because between two reads the stream goes on: an entry of
the first filter that comes meanwhile would be returned behind a later one of the second.
"""

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from shared.bus.filters import Selection, prune
from shared.contracts.kube.numbers import whole_number
from shared.settings.access import user_of

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

CALL_SECONDS: Final = 5.0
BATCH: Final = 2048
BATCH_BYTES: Final = 8 << 20
"""Of all filters together: what comes before the slowest of them waits here."""

BATCH_MIN: Final = 64
BATCH_BYTES_MIN: Final = 1 << 20
BEHIND_SECONDS: Final = 0.02
"""Pause after a replica answered that lacks what its leader has."""

SOURCE: Final = "Nats-Stream-Source"
"""Log and sequence that an entry of a view was sourced from."""

Json = dict[str, Any]
Denial = Callable[[str, str], Coroutine[Any, Any, str]]
"""Waits until the server says that a user may not send to a subject; returns the sentence."""


def source_sequence(headers: Mapping[str, str]) -> int | None:
    """The sequence in the log of an entry that was read from its view; None in the log itself.

    `Nats-Stream-Source` is a list: log, sequence, filter, destination, subject.
    """
    source = headers.get(SOURCE)
    if source is None:
        return None
    sequence = source.split(" ", 2)[1:2]
    # A publisher may have set a header of that name itself.
    return whole_number(sequence[0]) if sequence else None


class StreamReaderError(Exception):
    """Base of all errors that reading raises."""


class SilentError(StreamReaderError):
    """No answer: no server, no JetStream, or no service on a subject."""


class _Part:
    """What is read with one filter."""

    def __init__(self, subject: str, start: int) -> None:
        self.subject = subject
        self.through = start - 1
        """Everything up to here has been fetched."""

        self.begun = False
        self.rest = 0
        """How many follow what was fetched last."""

        self.waiting: deque[Msg] = deque()
        """Fetched, but something of another filter may come before."""


def parse_block(raw: bytes) -> dict[str, str]:
    """Headers from the bytes between the version line and the body.

    As nats-py's own parser for every name and value without blanks around the name, at a fifth of
    its time: ten headers come with each message. All messages share the names: who begins to lead
    keeps the headers of every message for a while.
    """
    headers: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon and name.isascii() and " " not in name and "\t" not in name:
            headers[sys.intern(name)] = value.strip()
    return headers


class DirectRead:
    """Reads a stream from a sequence on. `more` returns each entry once, in the order of the stream."""

    def __init__(
        self,
        nc: "Client",
        stream: str,
        filters: Iterable[str],
        *,
        start: int = 1,
        since: datetime | None = None,
        denial: Denial | None = None,
    ) -> None:
        """`since`: begin with what was stored then. `denial`: tells why there is no answer."""
        self._nc = nc
        self._stream = stream
        self._since = since
        self._denial = denial
        self._filters = prune(tuple(filters)) or (">",)
        self._selection = Selection(self._filters)
        self._parts = [_Part(subject, start) for subject in self._filters]
        self._subscription: Subscription | None = None
        """To all answers of this reader: one for each would cost the server as much as the answer."""

        self._inbox = ""
        self._asked = 0
        self._answer: _Batch | None = None
        """What comes in for the last request."""

        self._created: str | None = None
        self._replicated = True
        self._end = 0
        """The last sequence of the stream that is known."""

        self.position = start - 1
        """Everything that matches has been returned up to here."""

        self.pending = False
        """Whether there is more to return already."""

    async def more(self, *, hinted: bool = False) -> list["Msg"]:
        """What comes next, in order; nothing if there is nothing new. `sequence_of` tells where it is.

        `hinted`: something new is known to be there; then the end is not asked for first.

        Raises `SilentError`.
        """
        alone = len(self._parts) == 1 and not self._replicated
        if self.position >= self._end and not (alone and hinted):
            await self._ask_for_end()
        for part in self._parts:
            # `rest` counts a damaged message, too, which never comes: who asks behind the end is told 0.
            if not part.waiting and (part.through < self._end or part.rest or (alone and hinted)):
                await self._fetch(part)
        reached = min(part.through for part in self._parts)
        found = [message for part in self._parts for message in _taken(part, reached)]
        self.position = reached
        self.pending = reached < self._end or any(part.waiting or part.rest for part in self._parts)
        if len(self._parts) > 1:
            # Filters may overlap: what several of them select is returned once.
            found = [each for _, each in sorted({_place(each): each for each in found}.items())]
            if not self.pending:
                self._parts = [_Part(common_filter(self._filters), reached + 1)]
                self._parts[0].begun = True
        elif self._parts[0].subject not in self._filters:
            selects = self._selection.matches
            found = [one for one in found if selects((one.headers or {})["Nats-Subject"])]
        return found

    async def close(self) -> None:
        """Listen to no more answers. May be repeated."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            from nats.errors import Error as NatsError  # noqa: PLC0415

            with suppress(NatsError):  # Without a connection the server has forgotten it.
                await subscription.unsubscribe()

    async def _ask_for_end(self) -> None:
        """Ask how far the stream is. Raises `SilentError` where it is another one by now."""
        info = await self._ask(f"STREAM.INFO.{self._stream}")
        end, created = int(info["state"]["last_seq"]), str(info["created"])
        self._replicated = int(info["config"]["num_replicas"]) > 1
        # Of several servers the leader may be a moment behind the one that answered before.
        set_back = end < self._end and not self._replicated
        if set_back or self._created not in {None, created}:
            raise SilentError(f"{self._stream}: it was made anew, or set back")
        self._created, self._end = created, max(end, self._end)

    async def _fetch(self, part: _Part) -> None:
        """Read one batch, and note how far it reaches."""
        many = len(self._parts)
        body: Json = {
            "next_by_subj": part.subject,
            "batch": max(min(BATCH, BATCH_MIN), BATCH // many),
            "max_bytes": max(BATCH_BYTES_MIN, BATCH_BYTES // many),
        }
        if self._since is not None and not part.begun:
            body["start_time"] = self._since.isoformat()
        else:
            body["seq"] = part.through + 1
        messages, part.rest = await self._batch(body)
        if messages:
            part.begun = True
            part.waiting.extend(messages)
            part.through = _place(messages[-1])
            self._end = max(self._end, part.through)
        # The end was asked for before: what is stored up to there has been sent, if nothing follows.
        if not part.rest and part.through < self._end and not await self._is_behind(part):
            part.begun = True
            part.through = self._end

    async def _is_behind(self, part: _Part) -> bool:
        """Whether the replica that answered lacks something up to the end, says the leader."""
        if not self._replicated or (self._since is not None and not part.begun):
            return False
        which: Json = {"seq": part.through + 1, "next_by_subj": part.subject}
        answer = await self._ask(f"STREAM.MSG.GET.{self._stream}", which)
        if "error" in answer or int(answer["message"]["seq"]) > self._end:
            return False
        await asyncio.sleep(BEHIND_SECONDS)
        return True

    async def _batch(self, body: Json) -> "tuple[list[Msg], int]":
        """What the server sends, and how many follow. Raises `SilentError` unless all of it came."""
        from nats.errors import Error as NatsError  # noqa: PLC0415

        try:
            batch = await self._answered(json.dumps(body).encode())
        except NatsError as error:
            raise SilentError(f"{self._stream}: reading stopped: {error}") from error
        headers = batch.end.result().headers or {}
        if headers.get("Status") not in {"204", "404"}:
            raise SilentError(f"{self._stream}: reading stopped: {headers.get('Description')}")
        if not batch.is_whole:
            raise SilentError(f"{self._stream}: reading stopped: a part of an answer was lost")
        return batch.messages, int(headers.get("Nats-Num-Pending", 0))

    async def _answered(self, body: bytes) -> "_Batch":
        subject, reply = f"$JS.API.DIRECT.GET.{self._stream}", await self._reply()
        batch = self._answer = _Batch(reply)
        try:
            await self._nc.publish(subject, body, reply)
            await self._until_answered(batch, subject)
        finally:
            self._answer = None
        return batch

    async def _reply(self) -> str:
        """Where the next answer is to go."""
        if self._subscription is None:
            self._inbox = self._nc.new_inbox()
            # Nothing is thrown away: the server sends no more than was asked for.
            self._subscription = await self._nc.subscribe(
                f"{self._inbox}.*",
                cb=self._on_message,
                pending_msgs_limit=-1,
                pending_bytes_limit=-1,
            )
        self._asked += 1
        return f"{self._inbox}.{self._asked}"

    async def _on_message(self, message: "Msg") -> None:
        # Of an answer that was given up, the rest may still come.
        if self._answer is not None and message.subject == self._answer.reply:
            self._answer.observe(message)

    async def _until_answered(self, batch: "_Batch", subject: str) -> None:
        """Wait for the whole answer, or at once raise the sentence that this user may not ask."""
        waited: set[asyncio.Future[Any]] = {batch.end}
        denied: asyncio.Task[str] | None = None
        if self._denial is not None:
            user = user_of(self._nc.new_inbox())
            denied = asyncio.create_task(self._denial(subject, user))
            waited.add(denied)
        try:
            while not batch.end.done():
                before = len(batch.messages)
                await asyncio.wait(
                    waited, timeout=CALL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if batch.end.done():
                    return
                if denied is not None and denied.done():
                    raise SilentError(denied.result())
                if len(batch.messages) == before:
                    raise SilentError(f"{self._stream}: reading stopped: nats: timeout")
        finally:
            if denied is not None:
                denied.cancel()
                await asyncio.gather(denied, return_exceptions=True)

    async def _ask(self, what: str, body: Json | None = None) -> Json:
        from nats.errors import Error as NatsError  # noqa: PLC0415

        data = b"" if body is None else json.dumps(body).encode()
        asking = self._nc.request(f"$JS.API.{what}", data, timeout=CALL_SECONDS)
        # In a task of its own: nats-py loses a cancellation that comes with the answer (gh-86296).
        asked = asyncio.create_task(asking)
        try:
            await asyncio.wait({asked})
            reply = asked.result()
        except (NatsError, TimeoutError) as error:
            raise SilentError(f"{self._stream}: reading stopped: {error}") from error
        finally:
            asked.cancel()
            asked.add_done_callback(_retrieve)
        answer: Json = json.loads(reply.data)
        if "error" in answer and what.startswith("STREAM.INFO."):
            raise SilentError(f"{self._stream}: {answer['error'].get('description')}")
        return answer


def _retrieve(asked: "asyncio.Task[Msg]") -> None:
    """Look at the error of a request that failed as who asked was cancelled: asyncio complains otherwise."""
    if not asked.cancelled():
        asked.exception()


class _Batch:
    """The answer to one request while it comes in."""

    def __init__(self, reply: str) -> None:
        self.reply = reply
        """The subject of its messages."""

        self.messages: list[Msg] = []
        self.end: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        """Has no sequence: it says what there is besides."""

        self.is_whole = True
        """False if something did not arrive: the connection was lost, and came again before the end."""

        self._last = 0

    def observe(self, message: "Msg") -> None:
        """Take up one message of the answer."""
        sequence = sequence_of(message)
        before = (message.headers or {}).get("Nats-Last-Sequence")
        self.is_whole &= before is None or int(before) == self._last
        self._last = sequence or self._last
        if sequence is not None:
            self.messages.append(message)
        elif not self.end.done():
            self.end.set_result(message)


def sequence_of(message: "Msg") -> int | None:
    """The sequence of a message that was read directly, in the stream that was read; None at the end.

    The server sets this header over whatever the message had.
    """
    sequence = (message.headers or {}).get("Nats-Sequence")
    return None if sequence is None else int(sequence)


def common_filter(filters: tuple[str, ...]) -> str:
    """The narrowest filter that covers all of these."""
    if len(filters) == 1:
        return filters[0]
    tokens: list[str] = []
    each = [one.split(".") for one in filters]
    for together in zip(*each, strict=False):
        if ">" in together:
            return ".".join((*tokens, ">"))
        tokens.append(together[0] if len(set(together)) == 1 else "*")
    longest = max(map(len, each))
    return ".".join(tokens if longest == len(tokens) else (*tokens[:-1], ">"))


def _taken(part: _Part, reached: int) -> "list[Msg]":
    taken = []
    while part.waiting and _place(part.waiting[0]) <= reached:
        taken.append(part.waiting.popleft())
    return taken


def _place(message: "Msg") -> int:
    return sequence_of(message) or 0
