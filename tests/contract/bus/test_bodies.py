"""Bodies that are too large for a message: kept apart, found by whoever reads the message."""

import asyncio

import pytest

from shared.bus.port import CaughtUp, Entry, StreamFullError, TooLargeError
from shared.contracts.kube.kinds import JOB, Kind
from shared.contracts.messages.observed import Observed
from shared.testing.waiting import eventually
from tests.contract.bus.stage import Readings, Stage, error_of

LARGE = 5 << 20
"""Above `max_payload` of our server, and above what an API server stores."""


def observed(version: int, *, size: int = 10, kind: Kind = JOB) -> Observed:
    return Observed(
        cluster="hub",
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespace="team-a",
        name="large",
        uid="uid",
        resource_version=str(version),
        object={"spec": {"filler": "x" * size}},
    )


def short(message: Observed, ref: str | None) -> Observed:
    return message.model_copy(update={"object": {"spec": {}}, "object_ref": ref})


def version_and_size(entry: Entry | CaughtUp) -> tuple[str, int]:
    assert isinstance(entry, Entry)
    message = Observed.decode(entry.data, entry.headers)
    assert message.object is not None
    return message.resource_version, len(message.object["spec"].get("filler", ""))


@pytest.mark.parametrize("size", [0, 1, 128 << 10, (128 << 10) + 1, LARGE])
async def test_body_is_read_as_it_was_stored(bus_factory: Stage, size: int) -> None:
    bus = bus_factory.bus()
    await bus.start()
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    ref = await bus.put_body("sluice.a/1", data)

    assert ref.startswith("sluice.a/1@")
    assert await bus.get_body(ref) == data
    assert await bus.put_body("sluice.a/1", data) == ref, "again, after an answer that was lost"
    assert await bus.get_body(ref) == data


async def test_reference_always_means_the_same_body(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    first = await bus.put_body("a", b"first")
    second = await bus.put_body("a", b"second")
    assert await bus.get_body(first) is None
    await bus.drop_body(first)
    assert await bus.get_body(second) == b"second"
    await bus.drop_body(second)
    assert await bus.get_body(second) is None
    await bus.drop_body(second)
    assert await bus.get_body("never@" + "0" * 64) is None


@pytest.mark.parametrize("name", ["", "a b", "a@b", "é", "a\nb"])
async def test_name_that_no_header_can_carry_is_refused(bus_factory: Stage, name: str) -> None:
    bus = bus_factory.bus()
    await bus.start()
    with pytest.raises(ValueError, match="printable ASCII"):
        await bus.put_body(name, b"")


async def test_reader_of_a_shortened_message_gets_the_whole_body(
    bus_factory: Stage, read: Readings
) -> None:
    bus = bus_factory.bus()
    handled: list[Entry] = []

    async def handle(entry: Entry) -> None:
        handled.append(entry)

    bus.work("OBSERVED", "d", handle)
    await bus.start()
    whole = observed(1, size=LARGE)
    assert isinstance(await error_of(bus.publish(whole)), TooLargeError)
    ref = await bus.put_body("large/1", whole.encode())
    sequence = await bus.publish(short(whole, ref))

    watched = await read(bus.watch("OBSERVED")).next()
    replayed = await read(bus.replay("OBSERVED")).next()
    latest = await bus.latest("OBSERVED", whole.subject)
    await eventually(lambda: bool(handled))

    assert latest is not None
    for entry in (watched, replayed, latest, handled[0]):
        assert isinstance(entry, Entry)
        assert version_and_size(entry) == ("1", LARGE)
        assert (entry.sequence, entry.body_ref) == (sequence, ref)


async def test_watch_continues_with_newer_messages_when_a_body_is_missing(
    bus_factory: Stage, read: Readings
) -> None:
    """A replay tells each state there was, as far as it still can."""
    bus = bus_factory.bus()
    await bus.start()
    gone = await bus.put_body("large/1", observed(1, size=LARGE).encode())
    watch, replay = read(bus.watch("OBSERVED")), read(bus.replay("OBSERVED"))
    assert isinstance(await watch.next(), CaughtUp)
    assert isinstance(await replay.next(), CaughtUp)
    await bus.drop_body(gone)
    kept = await bus.put_body("large/2", observed(2, size=LARGE).encode())
    for message in (short(observed(1), gone), short(observed(2), kept), observed(3)):
        bus.publish(message)
    await bus.flush()

    versions = []
    while "3" not in versions:
        versions.append(version_and_size(await watch.next())[0])
    assert versions == sorted(versions), "never an older one after a newer one"
    assert [version_and_size(entry) for entry in await replay.entries(3)] == [
        ("1", 0),
        ("2", LARGE),
        ("3", 10),
    ]


async def test_lost_body_leaves_the_shortened_message(bus_factory: Stage, read: Readings) -> None:
    bus = bus_factory.bus()
    await bus.start()
    ref = await bus.put_body("large/1", observed(1, size=LARGE).encode())
    await bus.publish(short(observed(1), ref))
    await bus.drop_body(ref)

    assert version_and_size(await read(bus.watch("OBSERVED")).next()) == ("1", 0)


async def test_old_unreferenced_body_is_deleted(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    kept = await bus.put_body("ours/kept", b"1")
    lost = await bus.put_body("ours/lost", b"2")
    others = await bus.put_body("theirs/lost", b"3")

    assert await bus.keep_bodies("ours/", {kept}, older_than_seconds=3600) == 0
    assert await bus.get_body(lost) == b"2"
    await asyncio.sleep(0.01)
    assert await bus.keep_bodies("ours/", {kept}, older_than_seconds=0) == 1

    assert [await bus.get_body(ref) for ref in (kept, lost, others)] == [b"1", None, b"3"]


async def test_full_store_refuses_and_keeps_its_bodies(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    await bus.start()
    ref = await bus.put_body("a", b"1")
    await bus_factory.fill_up("OBJ_objects")
    with pytest.raises(StreamFullError):
        await bus.put_body("b", b"2" * (1 << 20))
    await bus_factory.make_room("OBJ_objects")
    assert await bus.get_body(ref) == b"1"
