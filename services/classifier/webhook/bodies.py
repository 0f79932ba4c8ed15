"""Reads request bodies within one byte budget for all, and a deadline for each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from services.classifier.refusal import UNAVAILABLE, WebhookRule


class UnreadableBodyError(Exception):
    """The body is not taken. The connection has to be closed, because the rest of it may still come."""

    def __init__(self, rule: WebhookRule | None, **values: object) -> None:
        """`rule`: None if the client has gone, and reads no answer."""
        super().__init__("the client disconnected" if rule is None else rule.says(**values))
        self.status = UNAVAILABLE if rule is None else rule.code
        self.cause = "" if rule is None else rule.label


class _Body:
    """A body that is read, or that waits for its answer."""

    def __init__(self, address: str, deadline: asyncio.Timeout) -> None:
        self.address = address
        self.deadline = deadline
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False
        self.gave_way = False

    def give_way(self) -> None:
        """Stop reading: another body needs the bytes."""
        self.gave_way = True
        self.deadline.reschedule(asyncio.get_running_loop().time())


class BodyBudget:
    """The bytes of all bodies that are not answered yet.

    Where they are used up, the oldest unfinished body of the address with the most unfinished bytes gives
    way: an API server sends a body in milliseconds, so what is unfinished for long is none of its own.
    """

    def __init__(self, *, bytes_max: int, seconds: float) -> None:
        self._bytes_max = bytes_max
        self._seconds = seconds
        self._bodies: dict[_Body, None] = {}
        self.size = 0
        """Bytes in use. Never more than the limit."""

    @asynccontextmanager
    async def read(self, request: Request, bytes_max: int) -> AsyncIterator[bytes]:
        """Yield the body. Its bytes count until the block ends. Raises `UnreadableBodyError`."""
        _check_headers(request, bytes_max)
        address = request.client.host if request.client else ""
        deadline = asyncio.timeout(self._seconds)
        body = _Body(address, deadline)
        self._bodies[body] = None
        try:
            try:
                async with deadline:
                    await self._fill(body, request, bytes_max)
                    # What comes between the last byte and the end of the block cuts nobody off.
                    deadline.reschedule(None)
            except TimeoutError:
                raise self._cut_off(body) from None
            except ClientDisconnect:
                raise UnreadableBodyError(None) from None
            body.complete = True
            whole = b"".join(body.parts)
            body.parts.clear()
            yield whole
        finally:
            self._bodies.pop(body, None)
            self.size -= body.size

    async def _fill(self, body: _Body, request: Request, bytes_max: int) -> None:
        async for part in request.stream():
            if body.size + len(part) > bytes_max:
                raise _too_large(bytes_max)
            if not self._make_room(body, len(part)):
                raise UnreadableBodyError(
                    WebhookRule.IN_FLIGHT, size=self.size, most=self._bytes_max
                )
            body.size += len(part)
            self.size += len(part)
            body.parts.append(part)

    def _make_room(self, body: _Body, wanted: int) -> bool:
        """Return whether `wanted` more bytes fit, after others gave way for them."""
        while self.size + wanted > self._bytes_max:
            victim = self._victim()
            if victim is None or victim is body:
                return False
            del self._bodies[victim]
            self.size -= victim.size
            victim.size = 0
            victim.parts.clear()
            victim.give_way()
        return True

    def _victim(self) -> _Body | None:
        unfinished = [each for each in self._bodies if not each.complete and each.size]
        held: Counter[str] = Counter()
        for each in unfinished:
            held[each.address] += each.size
        # `max` returns the first of equals, and the oldest body is the first.
        return max(unfinished, key=lambda each: held[each.address], default=None)

    def _cut_off(self, body: _Body) -> UnreadableBodyError:
        if body.gave_way:
            return UnreadableBodyError(WebhookRule.GAVE_WAY, most=self._bytes_max)
        return UnreadableBodyError(WebhookRule.BODY_DEADLINE, seconds=self._seconds)


def _check_headers(request: Request, bytes_max: int) -> None:
    """Refuse by the headers what could not be read: before a byte of the body is taken."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnreadableBodyError(WebhookRule.ENCODING, given=encoding[:40])
    length = request.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > bytes_max:
        raise _too_large(bytes_max)


def _too_large(bytes_max: int) -> UnreadableBodyError:
    return UnreadableBodyError(WebhookRule.BYTES, most=bytes_max)
