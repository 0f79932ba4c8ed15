"""Fixtures of the tests of the bus."""

from collections.abc import AsyncIterator

import pytest

from shared.bus.nats import publisher as module
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.bus.publishing import Table


@pytest.fixture
def ack_seconds() -> float:
    """Longer than anybody is interrupted; a test in which an answer is missing has its own."""
    return PATIENCE_SECONDS


@pytest.fixture
async def table(monkeypatch: pytest.MonkeyPatch, ack_seconds: float) -> AsyncIterator[Table]:
    monkeypatch.setattr(module, "ACK_SECONDS", ack_seconds)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.02)
    table = Table()
    await table.publisher.start()
    yield table
    await table.publisher.stop()
