"""Reads request bodies within one byte budget for all, and a deadline for each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from services.classifier.evaluation.fair_queue import Source
from services.classifier.refusal import UNAVAILABLE, WebhookRule
from services.classifier.webhook.review import namespace_in


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
        self.source = Source(address, "")
        self.deadline = deadline
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False
        self.gave_way = False

    def give_way(self) -> None:
        """Stop reading it, or waiting for its answer: another body needs the bytes."""
        self.gave_way = True
        if not self.deadline.expired():
            self.deadline.reschedule(asyncio.get_running_loop().time())


class BodyBudget:
    """The bytes of all bodies that are not answered yet.

    Where they are used up, a body of the address with the most bytes gives way: its oldest unfinished one,
    since an API server sends a body in milliseconds; or the oldest of the namespace with the most bytes.
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
            async with deadline:
                whole = await self._fill(body, request, bytes_max)
                # From here on only another body that needs the bytes cuts it off.
                deadline.reschedule(None)
                yield whole
        except TimeoutError:
            if not deadline.expired():
                raise
            raise self._cut_off(body) from None
        except ClientDisconnect:
            raise UnreadableBodyError(None) from None
        finally:
            self._bodies.pop(body, None)
            self.size -= body.size

    async def _fill(self, body: _Body, request: Request, bytes_max: int) -> bytes:
        async for part in request.stream():
            if body.gave_way:
                raise self._cut_off(body)
            if body.size + len(part) > bytes_max:
                raise _too_large(bytes_max)
            if not body.size:
                body.source = body.source._replace(namespace=namespace_in(part))
            if not self._make_room(body, len(part)):
                raise UnreadableBodyError(
                    WebhookRule.IN_FLIGHT, size=self.size, most=self._bytes_max
                )
            body.size += len(part)
            self.size += len(part)
            body.parts.append(part)
        if body.gave_way:
            raise self._cut_off(body)
        body.complete = True
        whole = b"".join(body.parts)
        body.parts.clear()
        return whole

    def _make_room(self, body: _Body, wanted: int) -> bool:
        """Return whether `wanted` more bytes fit, after others gave way for them."""
        while self.size + wanted > self._bytes_max:
            victim = self._victim(body)
            if victim is None:
                return False
            del self._bodies[victim]
            self.size -= victim.size
            victim.size = 0
            victim.parts.clear()
            victim.give_way()
        return True

    def _victim(self, wants: _Body) -> _Body | None:
        """Return the body that gives way for one that wants bytes; None: that one does."""
        held = Counter[str | Source]()
        for each in self._bodies:
            held[each.source.address] += each.size
            held[each.source] += each.size
        address = max(held, key=lambda key: 0 if isinstance(key, Source) else held[key])
        others = [
            each
            for each in self._bodies
            if each is not wants and each.size and each.source.address == address
        ]
        if unfinished := [each for each in others if not each.complete]:
            return unfinished[0]
        heaviest = max(others, key=lambda each: held[each.source], default=None)
        if heaviest is None or heaviest.source == wants.source:
            return None
        return heaviest

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
