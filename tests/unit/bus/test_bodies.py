"""Reading a short form while the bus does not answer, or after what is newer was given."""

import base64
import json
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY

from shared.bus.nats.large_bodies import BodyReader, reference, whole_for_work
from shared.bus.nats.object_store import ObjectStore
from shared.bus.port import Bus, Entry, LaterError, UnavailableError
from shared.contracts.messages.base import BODY_REF

AT = datetime(2026, 1, 2, tzinfo=UTC)
REF = reference("a/1", b"whole")


def short(sequence: int, ref: str | None = REF) -> Entry:
    headers = {} if ref is None else {BODY_REF: ref}
    return Entry(subject="a", data=b"short", headers=headers, sequence=sequence, time=AT)


class Store:
    """As much of a bus as reading a body takes."""

    def __init__(self, *answers: bytes | UnavailableError | None) -> None:
        self.answers = list(answers)
        self.newest: Entry | None = None

    async def get_body(self, ref: str) -> bytes | None:
        assert ref == REF
        answer = self.answers.pop(0)
        if isinstance(answer, UnavailableError):
            raise answer
        return answer

    async def latest(self, _stream: str, _subject: str) -> Entry | None:
        return self.newest


def wholes(store: Store, *, latest: bool = True, over: bool = False) -> BodyReader:
    return BodyReader(cast("Bus", store), "OBSERVED", latest=latest, over=lambda: over)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.bus.nats.large_bodies.RETRY_SECONDS", 0.001)


async def test_reading_waits_for_a_bus_that_does_not_answer() -> None:
    away = UnavailableError("away")
    found = await wholes(Store(away, away, b"whole")).of(short(1))
    assert found is not None
    assert found.data == b"whole"


async def test_waiting_for_a_body_ends_with_the_reading() -> None:
    assert await wholes(Store(UnavailableError("away")), over=True).of(short(1)) is None


async def test_newer_message_is_delivered_once_and_no_older_one_after_it() -> None:
    store = Store(None)
    store.newest = short(9, ref=None)
    reading = wholes(store)
    assert await reading.of(short(3)) == store.newest
    for late in (4, 9):
        assert await reading.of(short(late, ref=None)) is None
    assert await reading.of(short(10, ref=None)) == short(10, ref=None)


@pytest.mark.parametrize("newest", [None, 3])
async def test_shortened_message_is_delivered_without_a_newer_one(newest: Any) -> None:
    store = Store(None)
    store.newest = None if newest is None else short(newest)
    assert await wholes(store).of(short(3)) == short(3)


async def test_replay_delivers_every_message() -> None:
    store = Store(None)
    store.newest = short(9, ref=None)
    assert await wholes(store, latest=False).of(short(3)) == short(3)


async def test_work_with_a_missing_body_is_redelivered_later() -> None:
    store = cast("Bus", Store(UnavailableError("away"), b"whole"))
    with pytest.raises(LaterError, match="away"):
        await whole_for_work(store, short(1))
    assert (await whole_for_work(store, short(1))).data == b"whole"


async def test_body_of_another_digest_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of a message may name any body, and each chunk of one costs a request."""
    meta = {"nuid": "n", "chunks": 100, "digest": "SHA-256=x", "mtime": AT.isoformat()}
    asked = []

    async def stored(_self: ObjectStore, which: dict[str, Any]) -> dict[str, Any]:
        asked.append(which)
        return {"data": base64.b64encode(json.dumps(meta).encode()).decode(), "seq": "1"}

    monkeypatch.setattr(ObjectStore, "_stored", stored)
    store = ObjectStore(cast("Any", None), "objects", now=lambda: AT)
    for digest in ("0" * 64, "zz", ""):
        assert await store.get(f"a/1@{digest}") is None
    assert len(asked) == 3


WHOLE = b"whole"
DIGEST = f"SHA-256={base64.urlsafe_b64encode(bytes.fromhex(REF.rpartition('@')[2])).decode()}"
RIGHT: dict[str, Any] = {"nuid": "n", "chunks": 1, "digest": DIGEST, "mtime": AT.isoformat()}


def counted() -> float:
    """How many bodies counted as gone."""
    return REGISTRY.get_sample_value("sluicegate_bus_unreadable_bodies_total") or 0.0


DESCRIBED: dict[str, tuple[object, bytes | None]] = {
    "as it is": (RIGHT, WHOLE),
    "a text for the number of chunks": ({**RIGHT, "chunks": "x"}, None),
    "a list of chunks": ({**RIGHT, "chunks": []}, None),
    "no number of chunks": ({**RIGHT, "chunks": None}, None),
    "fewer chunks than none": ({**RIGHT, "chunks": -1}, None),
    "more chunks than a body has": ({**RIGHT, "chunks": 1_000_000_000}, None),
    "chunks of everybody": ({**RIGHT, "nuid": ">"}, None),
    "chunks that are no text": ({**RIGHT, "nuid": 7}, None),
    "a digest that is no text": ({**RIGHT, "digest": 7}, None),
    "a time that is none": ({**RIGHT, "mtime": "soon"}, None),
    "a time without a zone": ({**RIGHT, "mtime": "2026-01-02T00:00:00"}, None),
    "no time": ({**RIGHT, "mtime": None}, None),
    "a list": ([RIGHT], None),
    "a number": (7, None),
}


def described(monkeypatch: pytest.MonkeyPatch, meta: object, chunk: bytes) -> ObjectStore:
    """A store in which each body is described so, and each chunk is the same."""

    async def stored(_self: ObjectStore, which: dict[str, Any]) -> dict[str, Any]:
        found = json.dumps(meta).encode() if "last_by_subj" in which else chunk
        return {"data": base64.b64encode(found).decode(), "seq": "1"}

    monkeypatch.setattr(ObjectStore, "_stored", stored)
    return ObjectStore(cast("Any", None), "objects", now=lambda: AT)


@pytest.mark.parametrize(("meta", "body"), DESCRIBED.values(), ids=DESCRIBED)
async def test_body_with_an_unreadable_description_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch, meta: object, body: bytes | None
) -> None:
    before = counted()
    store = described(monkeypatch, meta, WHOLE)
    assert [await store.get(REF) for _ in range(3)] == [body] * 3
    assert counted() - before == (0 if body else 3)


async def test_body_is_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.bus.nats.object_store.BODY_BYTES_MAX", 10 << 20)
    large, asked = b"x" * (1 << 20), []

    async def stored(_self: ObjectStore, which: dict[str, Any]) -> dict[str, Any]:
        asked.append(which)
        found = json.dumps({**RIGHT, "chunks": 50}).encode() if "last_by_subj" in which else large
        return {"data": base64.b64encode(found).decode(), "seq": "1"}

    monkeypatch.setattr(ObjectStore, "_stored", stored)
    store = ObjectStore(cast("Any", None), "objects", now=lambda: AT)
    assert await store.get(REF) is None
    assert len(asked) == 1 + 11, "the description, and the first chunk that is too much"
