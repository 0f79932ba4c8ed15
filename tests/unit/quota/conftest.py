"""Fixtures of the tests of quota."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.quota.service_setup import Setup


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    subject = Setup()
    await subject.bus.start()
    yield subject
    await subject.close()
