"""Dead letters: messages that a service gave up on, and the requests to handle one of them again.

1. A handler gives up. The worker publishes an open `DeadLetter`.
2. An operator mends the cause and publishes a `RetryRequest` (`sluice dead retry`).
3. The service handles the newest message of the original subject. The letter becomes `handled`, or
   open again with the new reason.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import structlog

from shared.bus.port import Bus, BusError, Entry, Handler, LaterError, NeverError
from shared.contracts import subjects
from shared.contracts.messages.base import NewerSchemaError, UndecodableError
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.contracts.subjects import Stream

log = structlog.get_logger(__name__)

DEAD_BODY_MAX: Final = 64 << 10
"""A dead letter quotes this much of the body; the log has the rest."""

REASON_MAX: Final = 2000
PREFIX_TOKENS: Final = 4
"""``sluice.retry.<cluster>.<service>`` stands before the original subject."""

KIND_TOKEN: Final = 1
"""Place of the token that says what a subject is about, as `admission`."""


def dead_letter(
    service: str, entry: Entry, reason: str, now: datetime, *, tries: int = 1
) -> DeadLetter:
    """Build the dead letter of an entry that no handler can process."""
    body = entry.data[:DEAD_BODY_MAX]
    cut = "" if len(body) == len(entry.data) else f" (body cut at {DEAD_BODY_MAX} bytes)"
    try:
        text, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(body).decode(), "base64"
    return DeadLetter.model_validate(
        {
            "service": service,
            "original_subject": entry.subject,
            "original_sequence": entry.sequence,
            "reason": reason[:REASON_MAX] + cut,
            "body": text,
            "encoding": encoding,
            "tries": tries,
            "at": now,
        }
    )


def _original_of(subject: str) -> str:
    """The subject that a retry request with this subject is about."""
    return ".".join(subject.split(".")[PREFIX_TOKENS:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """How a service handles the messages of one sort."""

    stream: str
    handler: Handler
    key: Callable[[Entry], str] | None = None


class RetryHandler:
    """Handles the requests to one service in one cluster."""

    def __init__(
        self, *, bus: Bus, now: Callable[[], datetime], handled: Mapping[str, Retried]
    ) -> None:
        """`handled`: by the second token of a subject, as `admission`."""
        self._bus = bus
        self._now = now
        self._handled = handled

    def register(self, service: str, cluster: str | None, durable: str) -> None:
        """Subscribe to the requests to `service`, about one cluster or (None) about any.

        A request is never handled at the same time as its object's messages.
        """
        filters = (subjects.retry_filter(service, cluster),)
        self._bus.work(Stream.DEAD, durable, self.on_request, filters=filters, key=self._key)

    def _key(self, entry: Entry) -> str:
        original = replace(entry, subject=_original_of(entry.subject))
        known = self._handled.get(_sort_of(original.subject))
        return original.subject if known is None or known.key is None else known.key(original)

    async def on_request(self, entry: Entry) -> None:
        """Handle the newest message of the original subject; publish what became of its letter.

        Raises `LaterError` and `NewerSchemaError` as the message's own handler does.
        """
        request = entry.read(RetryRequest)
        known = self._handled.get(_sort_of(request.original_subject))
        if known is None:
            raise NeverError(f"{request.service} handles no {request.original_subject}")
        try:
            original = await self._bus.latest(known.stream, request.original_subject)
        except BusError as error:
            raise LaterError(f"cannot read {request.original_subject}: {error}") from error
        if original is None:
            # Its object has ended, and history was purged: there is nothing to be done any more.
            original = replace(entry, subject=request.original_subject, sequence=0, data=b"")
            why = None
        else:
            why = await self._give_up_reason(known, replace(original, deliveries=entry.deliveries))
        tries = request.tries + (why is not None)
        letter = dead_letter(request.service, original, why or "", self._now(), tries=tries)
        log.info("tried a dead letter again", subject=request.original_subject, failed=why)
        if why is None:
            letter = letter.closed("handled", self._now())
        try:
            await self._bus.publish(letter)
        except BusError as error:
            raise LaterError(f"the dead letter was not stored: {error}") from error

    async def _give_up_reason(self, known: Retried, original: Entry) -> str | None:
        """Why the handler gives up once more; None: it is done."""
        try:
            await known.handler(original)
        except NewerSchemaError:
            raise
        except (NeverError, UndecodableError) as error:
            return str(error)
        return None


def _sort_of(subject: str) -> str:
    tokens = subject.split(".")
    return tokens[KIND_TOKEN] if len(tokens) > KIND_TOKEN else ""
