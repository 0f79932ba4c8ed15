"""Headers of messages: CloudEvents in binary mode, trace context, JetStream's own headers."""

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from shared.bus.direct_read import SOURCE, source_sequence
from shared.bus.port import TooLargeError
from shared.contracts.kube.moments import EARLIEST
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.base import BODY_REF, SCHEMA_VERSION, TRACEPARENT, Message
from shared.contracts.messages.observed import GONE
from shared.contracts.subjects import RULING
from shared.telemetry.traceparent import parse_traceparent

MESSAGE_ID: Final = "Nats-Msg-Id"
"""By this the server tells duplicates. Nobody but the writer can make it: see `Access.message_ids`."""

EXPECT_LAST: Final = "Nats-Expected-Last-Sequence"
EXPECT_SUBJECT: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECT_SUBJECT_OF: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
"""Subject whose last sequence is compared, if it is not the subject of the message."""

EXPECT_ID: Final = "Nats-Expected-Last-Msg-Id"
"""`Nats-Msg-Id` that the last message of the log must have."""

EVENT_ID: Final = "ce-id"
"""Of the message itself: the same when it is published again because a log lost it."""

TYPE: Final = "ce-type"
"""`Message.type` of the body."""

WRITER: Final = "ce-source"
"""Instance that published the message."""

BODY_SIZE: Final = "Nats-Msg-Size"
MARKER: Final = "Nats-Marker-Reason"
TTL: Final = "Nats-TTL"

PAYLOAD_BYTES_DEFAULT: Final = 1 << 20
"""Default `max_payload` of nats-server; used until the server has told its own."""

HEADER_BYTES_MAX: Final = 16 << 10
"""A quarter of the limit of nats-server; headers of Sluicegate are about 400 bytes."""

SUBJECT_BYTES_MAX: Final = 3 << 10
"""At about 4,080 bytes the server closes the connection."""

_PLAIN: Final = re.compile(r"[!#$&-~]*")
"""Printable ASCII without blank, double quote and percent, which CloudEvents does not encode."""

_SAFE: Final = "!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"


def build(
    message: Message,
    *,
    message_id: str,
    source: str,
    now: datetime,
    server_id: str | None = None,
) -> dict[str, str]:
    """Return the headers of `message`, with values percent-encoded as CloudEvents requires.

    `server_id`: what tells duplicates; None: `message_id`.
    """
    identity = _encoded(message_id)
    headers = {
        MESSAGE_ID: identity if server_id is None else server_id,
        "content-type": "application/json",
        "ce-specversion": "1.0",
        EVENT_ID: identity,
        WRITER: _encoded(source),
        TYPE: message.type,
        SCHEMA_VERSION: str(message.schema_version),
        "ce-time": now.isoformat(),
        "ce-datacontenttype": "application/json",
    }
    if message.body_ref is not None:
        headers[BODY_REF] = message.body_ref
    if message.ruling is not None:
        headers[RULING] = f"{message.ruling[0]}.{message.ruling[1]}"
    # It comes from an annotation, into which a user may write anything: with a header that is too large the
    # message would not be stored.
    if message.traceparent is not None and parse_traceparent(message.traceparent) is not None:
        headers[TRACEPARENT] = _encoded(message.traceparent)
    return headers


def is_tombstone(headers: Mapping[str, str]) -> bool:
    """Whether the message says that an observed object is gone, by its id: the body need not be read."""
    return headers.get(MESSAGE_ID, "").endswith(GONE)


def check_size(subject: str, data: bytes, headers: Mapping[str, str], *, max_payload: int) -> None:
    """Raise `TooLargeError` for a message for which the server would close the connection."""
    if (size := len(subject.encode())) > SUBJECT_BYTES_MAX:
        raise TooLargeError(f"subject {subject[:80]}… has {size} bytes, above {SUBJECT_BYTES_MAX}")
    size = sum(len(name) + len(value) + 4 for name, value in headers.items())
    if size > HEADER_BYTES_MAX:
        raise TooLargeError(f"{subject}: headers have {size} bytes, above {HEADER_BYTES_MAX}")
    # `max_payload` is for headers and body together; 16 for the version line.
    if size + len(data) + 16 > max_payload:
        raise TooLargeError(
            f"{subject}: body has {len(data)} bytes; the server takes {max_payload}"
        )


def stored_size(subject: str, headers: Mapping[str, str]) -> int:
    """Bytes of a message of which only the headers were delivered; the server says how long the body is."""
    body = whole_number(headers.get(BODY_SIZE, "")) or 0
    return len(subject) + body + sum(len(name) + len(value) + 4 for name, value in headers.items())


def log_sequence(stored: Mapping[str, Any]) -> int:
    """The sequence in the log of a message as `STREAM.MSG.GET` gives it, from view or log."""
    return source_sequence(stored_headers(stored)) or int(stored["seq"])


def stored_headers(stored: Mapping[str, Any]) -> dict[str, str]:
    """Headers of a message as `STREAM.MSG.GET` gives it. Its writer may have sent any bytes."""
    return parse(base64.b64decode(stored.get("hdrs", "")).decode("utf-8", "replace"))


def parse(raw: str) -> dict[str, str]:
    """Headers from their wire form, without the version line."""
    pairs = (line.partition(":") for line in raw.split("\r\n")[1:])
    return {name: value.strip() for name, colon, value in pairs if colon}


def taken_at(headers: Mapping[str, str], stored: datetime) -> datetime:
    """Return when the log stored an entry. A view stores it later, for example when it is rebuilt.

    The writer says when it published. What lies behind `stored`, or before all clocks, is not believed:
    readers add to this time, and no time is behind the year 9999.
    """
    if SOURCE not in headers:
        return stored
    try:
        published = datetime.fromisoformat(headers["ce-time"])
    except (KeyError, ValueError):
        return stored
    if published.tzinfo is None:
        published = published.replace(tzinfo=UTC)
    return published if EARLIEST <= published <= stored else stored


def _encoded(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else quote(value, safe=_SAFE)
