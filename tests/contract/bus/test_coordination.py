"""Leases and requests."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shared.bus.nats.lease import LEASE_SECONDS
from shared.bus.port import AnswerError, UnavailableError
from shared.testing.waiting import PATIENCE_SECONDS
from tests.contract.bus.stage import Stage


async def test_lease_has_one_holder(bus_factory: Stage) -> None:
    one, two = bus_factory.bus("one"), bus_factory.bus("two")
    await one.start()
    await two.start()

    lease = await one.lease("quota")
    assert lease.held
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.8):
            await two.lease("quota")

    other = await two.lease("another")
    assert other.held


async def test_released_lease_goes_to_the_next_at_once(
    bus_factory: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the release frees it while this test runs: it expires after ten minutes.
    monkeypatch.setattr("shared.bus.nats.lease.LEASE_SECONDS", 600)
    monkeypatch.setattr("shared.testing.world.memory_requests.LEASE_SECONDS", 600)
    one, two = bus_factory.bus("one"), bus_factory.bus("two")
    await one.start()
    await two.start()
    first = await one.lease("quota")
    waiting = asyncio.create_task(two.lease("quota"))
    await asyncio.sleep(0.1)

    await first.release()

    async with asyncio.timeout(PATIENCE_SECONDS):
        second = await waiting
        await first.lost()
    assert second.held
    assert not first.held


async def test_lease_is_renewed_beyond_its_lifetime(bus_factory: Stage) -> None:
    one, two = bus_factory.bus("one"), bus_factory.bus("two")
    await one.start()
    await two.start()
    lease = await one.lease("quota")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5 * LEASE_SECONDS):
            await two.lease("quota")

    assert lease.held


async def test_lease_of_a_dead_holder_goes_to_the_next(bus_factory: Stage) -> None:
    one, two = bus_factory.bus("one"), bus_factory.bus("two")
    await one.start()
    await two.start()
    await one.lease("quota")
    await bus_factory.crash(one)

    async with asyncio.timeout(PATIENCE_SECONDS):
        lease = await two.lease("quota")

    assert lease.held


async def test_request_is_answered(bus_factory: Stage) -> None:
    server, client = bus_factory.bus("server"), bus_factory.bus("client")
    await server.start()
    await client.start()

    async def answer(data: bytes) -> bytes:
        return data.upper()

    await server.respond("sluice.api.review", answer)

    answers = await asyncio.gather(
        *(
            client.request("sluice.api.review", word, timeout_seconds=PATIENCE_SECONDS)
            for word in (b"a", b"b", b"")
        )
    )
    assert answers == [b"A", b"B", b""]


async def test_withdrawn_responder_gets_no_request_and_another_answers(bus_factory: Stage) -> None:
    one, two, client = (bus_factory.bus(name) for name in ("one", "two", "client"))
    for bus in (one, two, client):
        await bus.start()

    def saying(word: bytes) -> Callable[[bytes], Awaitable[bytes]]:
        async def answer(_data: bytes) -> bytes:
            return word

        return answer

    withdraw = await one.respond("sluice.api.who", saying(b"one"))
    assert await client.request("sluice.api.who", b"", timeout_seconds=PATIENCE_SECONDS) == b"one"
    await withdraw()
    await two.respond("sluice.api.who", saying(b"two"))
    answers = [
        await client.request("sluice.api.who", b"", timeout_seconds=PATIENCE_SECONDS)
        for _ in range(4)
    ]
    assert answers == [b"two"] * 4


async def test_failed_request_carries_the_reason(bus_factory: Stage) -> None:
    server, client = bus_factory.bus("server"), bus_factory.bus("client")
    await server.start()
    await client.start()

    async def answer(_data: bytes) -> bytes:
        raise AnswerError("team-a may not be looked at", code=403)

    await server.respond("sluice.api.secret", answer)
    with pytest.raises(UnavailableError, match=r"sluice\.api\.secret: team-a may not be looked at"):
        await client.request("sluice.api.secret", b"", timeout_seconds=PATIENCE_SECONDS)


async def test_request_without_responder_raises(bus_factory: Stage) -> None:
    client = bus_factory.bus("client")
    await client.start()

    with pytest.raises(UnavailableError):
        await client.request("sluice.api.nobody", b"", timeout_seconds=0.5)


async def test_slow_request_times_out(bus_factory: Stage) -> None:
    server, client = bus_factory.bus("server"), bus_factory.bus("client")
    await server.start()
    await client.start()

    async def answer(_data: bytes) -> bytes:
        await asyncio.sleep(5)
        return b"too late"

    await server.respond("sluice.api.slow", answer)
    with pytest.raises(UnavailableError):
        await client.request("sluice.api.slow", b"", timeout_seconds=0.3)


async def test_bus_is_connected_from_start_to_stop(bus_factory: Stage) -> None:
    bus = bus_factory.bus()
    assert not bus.connected

    await bus.start()
    assert bus.connected
    assert bus.instance == "one"

    await bus.stop()
    assert not bus.connected
