"""Bodies in JetStream's object store, laid out as every client of it lays them out.

nats-py has such a client too; it waits forever where a chunk was deleted meanwhile, and keeps a
marker of each deleted object for good.
"""

import base64
import json
import re
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final
from uuid import uuid4

import orjson
import structlog
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from shared.bus.nats.broker import Connection
from shared.bus.nats.cancellation import cancellable
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, ApiError, Json, call
from shared.bus.nats.large_bodies import digest_of, reference, split
from shared.bus.nats.publisher import FULL
from shared.bus.port import BusError, StreamFullError, UnavailableError
from shared.telemetry.metrics import BODIES

log = structlog.get_logger(__name__)

CHUNK_BYTES: Final = 128 << 10
"""The custom of the object store."""

PUBLISH_SECONDS: Final = 5.0

BODY_BYTES_MAX: Final = 16 << 20
"""No more is read of a body: an object of an API server has a tenth of it."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What chunks are called by: it becomes a part of a subject."""

_TOLD_MAX: Final = 64
"""Bodies with a wrong description that are logged."""


class ObjectStore:
    """One bucket. Every call raises a `BusError`, nothing else, besides cancellation."""

    def __init__(self, connection: Connection, bucket: str, *, now: Callable[[], datetime]) -> None:
        self._connection = connection
        self._bucket = bucket
        self._stream = f"OBJ_{bucket}"
        self._chunks = f"$O.{bucket}.C"
        self._metas = f"$O.{bucket}.M"
        self._now = now
        self._told: set[str] = set()
        """Names of bodies that were logged."""

    async def put(self, name: str, data: bytes) -> str:
        """Store `data`, replacing an object of the same name; return its reference."""
        ref = reference(name, data)
        before = await self._meta(name)
        if before is not None and before["digest"] == _digest(data):
            return ref
        token = uuid4().hex[:22]
        chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
        try:
            for chunk in chunks:
                await self._publish(f"{self._chunks}.{token}", chunk)
            meta = {
                "name": name,
                "bucket": self._bucket,
                "nuid": token,
                "size": len(data),
                "mtime": self._now().isoformat(),
                "chunks": len(chunks),
                "digest": _digest(data),
                "options": {"max_chunk_size": CHUNK_BYTES},
            }
            body = json.dumps(meta).encode()
            await self._publish(self._subject(name), body, {"Nats-Rollup": "sub"})
        except BusError:
            await self._purge_quietly(f"{self._chunks}.{token}")
            raise
        if before is not None:
            await self._purge_quietly(f"{self._chunks}.{before['nuid']}")
        return ref

    async def get(self, ref: str) -> bytes | None:
        """The body behind a reference; None where it is gone, or is another one now."""
        name, digest = split(ref)
        meta = await self._meta(name)
        if meta is None or not _has_digest(meta, digest):
            return None  # Before a chunk is read: a writer may name any body.
        subject = f"{self._chunks}.{meta['nuid']}"
        data, sequence = bytearray(), 0
        for _ in range(meta["chunks"]):
            chunk = await self._stored({"next_by_subj": subject, "seq": sequence + 1})
            if chunk is None:
                return None
            data += base64.b64decode(chunk.get("data", ""))
            if len(data) > BODY_BYTES_MAX:
                self._tell(name, f"it has more than {BODY_BYTES_MAX} bytes")
                return None
            sequence = int(chunk["seq"])
        return bytes(data) if digest_of(bytes(data)) == digest else None

    async def drop(self, ref: str) -> None:
        """Delete the body behind a reference, unless its name has another one now."""
        name, digest = split(ref)
        meta = await self._meta(name)
        if meta is not None and _has_digest(meta, digest):
            await self._purge(self._subject(name))
            await self._purge(f"{self._chunks}.{meta['nuid']}")

    async def keep(self, prefix: str, refs: Collection[str], *, before: datetime) -> int:
        """Delete objects named `prefix…` that are not in `refs` and were stored before that time.

        And the chunks of bodies that were never finished. Return how many were deleted.
        """
        kept = {split(ref)[0] for ref in refs}
        tokens: set[str] = set()
        deleted = 0
        for subject in await self._subjects(f"{self._metas}.>"):
            name = _decoded(subject.rpartition(".")[2])
            meta = await self._meta(name)
            if meta is None:
                continue
            stored = datetime.fromisoformat(meta["mtime"])
            if name.startswith(prefix) and name not in kept and stored < before:
                await self._purge(subject)
                deleted += 1
            else:
                tokens.add(meta["nuid"])
        for subject in await self._subjects(f"{self._chunks}.>"):
            if subject.rpartition(".")[2] in tokens:
                continue
            last = await self._stored({"last_by_subj": subject})
            if last is not None and datetime.fromisoformat(last["time"]) < before:
                await self._purge(subject)
        return deleted

    def _subject(self, name: str) -> str:
        return f"{self._metas}.{base64.urlsafe_b64encode(name.encode()).decode()}"

    async def _meta(self, name: str) -> Json | None:
        stored = await self._stored({"last_by_subj": self._subject(name)})
        if stored is None:
            return None
        try:
            meta: Json = orjson.loads(base64.b64decode(stored.get("data", "")))
            # Other clients may write into the bucket; their deletions leave a marker.
            if meta.get("deleted"):
                return None
            problem = _problem_of(meta)
        except (ValueError, AttributeError) as error:
            problem = f"it is no description: {error}"
        if problem:
            self._tell(name, problem)
        return None if problem else meta

    def _tell(self, name: str, problem: str) -> None:
        """Count a body that counts as gone, and log it once: its writer may write anything."""
        BODIES.inc()
        if name not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(name)
            log.warning("a body counts as gone", name=name[:200], why=problem[:200])

    async def _stored(self, which: Json) -> Json | None:
        try:
            answer = await call(self._connection.nc, f"STREAM.MSG.GET.{self._stream}", which)
        except ApiError as error:
            if error.code == MESSAGE_NOT_FOUND:
                return None
            raise
        message: Json = answer["message"]
        return message

    async def _subjects(self, filter_: str) -> list[str]:
        body = {"subjects_filter": filter_}
        info = await call(self._connection.nc, f"STREAM.INFO.{self._stream}", body)
        return sorted((info["state"].get("subjects") or {}).keys())

    async def _publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> None:
        try:
            with cancellable():
                reply = await self._connection.nc.request(
                    subject, data, timeout=PUBLISH_SECONDS, headers=headers
                )
        except NoRespondersError as error:
            raise UnavailableError(f"{self._stream}: no stream takes it") from error
        except (NatsTimeoutError, ConnectionClosedError, NatsError) as error:
            raise UnavailableError(f"{self._stream}: {error!r}") from error
        if (problem := json.loads(reply.data).get("error")) is not None:
            code, text = int(problem.get("err_code", 0)), str(problem.get("description", "refused"))
            kind = StreamFullError if code in FULL else BusError
            raise kind(f"{self._stream}: {text} ({code})")

    async def _purge(self, subject: str) -> None:
        await call(self._connection.nc, f"STREAM.PURGE.{self._stream}", {"filter": subject})

    async def _purge_quietly(self, subject: str) -> None:
        try:
            await self._purge(subject)
        except BusError as error:
            # `keep` finds them.
            log.info("cannot delete chunks of a body", subject=subject, error=str(error))


def _problem_of(meta: Json) -> str:
    """Say what is wrong with a description; empty if nothing is."""
    token, chunks, mtime = (meta.get(field) for field in ("nuid", "chunks", "mtime"))
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        return f"nuid: {token!r} is no part of a subject"
    if type(chunks) is not int or not 0 <= chunks <= BODY_BYTES_MAX // CHUNK_BYTES:
        return f"chunks: {chunks!r} is no number from 0 to {BODY_BYTES_MAX // CHUNK_BYTES}"
    if not isinstance(meta.get("digest"), str):
        return "digest: it is no text"
    try:
        is_moment = datetime.fromisoformat(str(mtime)).tzinfo is not None
    except ValueError:
        is_moment = False
    return "" if is_moment else f"mtime: {mtime!r} is no time with a zone"


def _digest(data: bytes) -> str:
    return _digest_of_hex(digest_of(data))


def _digest_of_hex(digest: str) -> str:
    """As the object store writes it."""
    return f"SHA-256={base64.urlsafe_b64encode(bytes.fromhex(digest)).decode()}"


def _has_digest(meta: Json, digest: str) -> bool:
    try:
        return bool(meta["digest"] == _digest_of_hex(digest))
    except ValueError:
        return False  # It is no hexadecimal.


def _decoded(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token).decode()
    except ValueError:
        return ""
