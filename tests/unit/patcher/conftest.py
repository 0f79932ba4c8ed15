"""A patcher that runs on a bus and a cluster in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.patcher.stage import Setup


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    await subject.start_patcher()
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()
