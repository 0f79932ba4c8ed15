"""Who answers requests on a real server, also after an outage."""

import pytest

from shared.bus.embedded import EmbeddedServer
from shared.bus.port import UnavailableError
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.integration.buses import make


async def test_responder_that_was_withdrawn_during_an_outage_does_not_come_back(
    server: EmbeddedServer,
) -> None:
    async def answer(data: bytes) -> bytes:
        return data

    bus, other = make(server, "bus"), make(server, "other")
    await bus.start()
    await other.start()
    withdraw = await bus.respond("sluice.test.first", answer)
    await bus.respond("sluice.test.second", answer)
    await server.kill()
    await eventually(lambda: not bus.connected)
    await withdraw()
    await server.start()
    await eventually(lambda: bus.connected and other.connected)

    async def asked() -> bytes:
        return await other.request("sluice.test.second", b"x", timeout_seconds=PATIENCE_SECONDS)

    # The server hears of both again in the order in which they were, a moment after the connection.
    assert await first_value(asked) == b"x"
    with pytest.raises(UnavailableError, match="nobody answers"):
        await other.request("sluice.test.first", b"x", timeout_seconds=PATIENCE_SECONDS)
    await bus.stop()
    await other.stop()
