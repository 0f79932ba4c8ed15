"""One suite, two stages; what reads also plays on the real one without making a consumer: ``direct``."""

from collections.abc import AsyncIterator

import pytest

from shared.bus.nats.work.declared import ACK_WAIT_SECONDS
from shared.testing.nats_server import nats_server
from tests.contract.bus.stage import MemoryStage, NatsStage, Readings, Stage


@pytest.fixture
def ack_wait_seconds() -> float:
    """How long an entry that is not acknowledged is missed; `QUICK_ACK_WAIT` takes its place."""
    return ACK_WAIT_SECONDS


@pytest.fixture(params=["memory", "nats"])
async def bus_factory(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, ack_wait_seconds: float
) -> AsyncIterator[Stage]:
    """A fresh server; `bus_factory.bus(instance)` gives buses on it."""
    if request.param in {"nats", "direct"}:
        async with nats_server() as server:
            real = NatsStage(
                server, ack_wait_seconds=ack_wait_seconds, consumers=request.param == "nats"
            )
            yield real
            await real.close()
    else:
        monkeypatch.setattr("shared.testing.world.memory_server.ACK_WAIT_SECONDS", ack_wait_seconds)
        memory = MemoryStage()
        yield memory
        await memory.close()


READERS = ["memory", "nats", "direct"]


@pytest.fixture
async def read() -> AsyncIterator[Readings]:
    """``read(bus.watch(…))``: a reading that ends with the test."""
    readings = Readings()
    yield readings
    await readings.close()
