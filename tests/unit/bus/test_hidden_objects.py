"""What garbage hides is looked for until the bus answers: without it an object would count as gone."""

import pytest

from shared.bus import follow
from shared.bus.headers import TYPE
from shared.bus.port import BusError, DeniedError, Entry, UnavailableError
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.testing.builders import observed
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer


class Silent(MemoryBus):
    """A bus that refuses so many requests for earlier messages, or all of them."""

    refusals: list[BusError]
    asked = 0

    async def at_or_after(
        self, stream: str, sequence: int, *, subject: str = ">", valid: bool = False
    ) -> Entry | None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop()
        return await super().at_or_after(stream, sequence, subject=subject, valid=valid)


@pytest.mark.parametrize(
    ("refusals", "found"),
    [
        pytest.param([UnavailableError("no answer")] * 9, ["7"], id="it answers at last"),
        pytest.param([DeniedError("no permission")], [], id="its user may never ask that"),
    ],
)
async def test_last_readable_state_is_asked_for_until_the_bus_answers(
    monkeypatch: pytest.MonkeyPatch, refusals: list[BusError], found: list[str]
) -> None:
    monkeypatch.setattr(follow, "RETRY_SECONDS", 0.001)
    server = MemoryServer()
    bus = Silent(server, instance="test")
    bus.refusals = refusals
    await bus.start()
    state = observed(kinds.JOB, "j", version=7)
    await bus.publish(state)
    server.publish(state.subject, b'{"what": "ever"', {TYPE: Observed.type})
    read: list[str] = []
    await follow.recall(bus, {Observed: lambda one, _entry: read.append(one.resource_version)})
    assert read == found
