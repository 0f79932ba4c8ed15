"""Fixtures of the tests of the bus."""

from collections.abc import AsyncIterator

import pytest

from shared.bus.nats import publisher as module
from tests.unit.bus.publishing import Table


@pytest.fixture
async def table(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Table]:
    monkeypatch.setattr(module, "ACK_SECONDS", 0.3)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.02)
    table = Table()
    await table.publisher.start()
    yield table
    await table.publisher.stop()
