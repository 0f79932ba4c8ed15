"""What `sluice bus` does while nobody answers."""

import asyncio
from collections.abc import Callable

import pytest
from nats.errors import NoRespondersError

from shared.bus.admin.election_retry import RETRY_SECONDS, ElectionRetry
from shared.bus.nats.jetstream_api import STREAM_NOT_FOUND, ApiError
from shared.bus.port import BusError, DeniedError, UnavailableError
from shared.testing.world.loop import run_virtual

SILENCE = UnavailableError("STREAM.INFO.SPOKES: no answer within 5 s")
NO_LEADER = ApiError("STREAM.INFO.SPOKES", 10008, "JetStream system temporarily unavailable")


def nobody_listens() -> BusError:
    error = UnavailableError("STREAM.INFO.SPOKES: no JetStream answers")
    error.__cause__ = NoRespondersError()
    return error


class Server:
    """Fails so many times, then answers."""

    def __init__(self, error: BusError, *, times: int) -> None:
        self.error = error
        self.times = times
        self.asked = 0

    async def answer(self) -> str:
        self.asked += 1
        if self.asked <= self.times:
            raise self.error
        return "the answer"


@pytest.mark.parametrize("error", [SILENCE, NO_LEADER], ids=["silence", "no leader"])
def test_servers_that_elect_a_leader_are_asked_again_and_one_notice_is_given(
    error: BusError,
) -> None:
    told: list[str] = []
    server = Server(error, times=3)
    assert run_virtual(ElectionRetry(told.append).ask(server.answer)) == "the answer"
    assert told == [f"{error}: asking again, servers may be electing a leader"]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(lambda: DeniedError("the user may not ask that"), id="denied"),
        pytest.param(lambda: ApiError("STREAM.INFO.X", STREAM_NOT_FOUND, "none"), id="refused"),
        pytest.param(nobody_listens, id="nobody listens"),
    ],
)
def test_error_that_no_election_mends_is_asked_once(error: Callable[[], BusError]) -> None:
    told: list[str] = []
    server = Server(error(), times=1)
    with pytest.raises(BusError):
        run_virtual(ElectionRetry(told.append).ask(server.answer))
    assert (server.asked, told) == (1, [])


def test_patience_is_for_all_questions_of_a_command_together() -> None:
    async def ask() -> tuple[int, int]:
        retry, servers = ElectionRetry(), [Server(SILENCE, times=10**6) for _ in range(2)]
        for server in servers:
            with pytest.raises(UnavailableError):
                async with asyncio.timeout(2 * RETRY_SECONDS):
                    await retry.ask(server.answer)
        return servers[0].asked, servers[1].asked

    first, second = run_virtual(ask())
    assert first > 1
    assert second == 1
