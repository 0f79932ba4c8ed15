"""Who answers for a stream says whether it has heard from the others."""

import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from shared.bus.nats.tails.compare import led_info
from shared.bus.port import UnavailableError

SECOND = 10**9


class Answering(Client):
    """A connection to a server that describes a stream so."""

    _error_cb: Any = None

    def __init__(self, info: dict[str, Any]) -> None:
        super().__init__()
        self._info = info

    async def request(self, subject: str, *_: Any, **__: Any) -> Msg:
        return Msg(_client=self, subject=subject, data=json.dumps(self._info).encode())


async def told_by(info: dict[str, Any]) -> dict[str, Any]:
    return await led_info(Answering(info), "WORKLOADS")


def others(*seconds: float, **more: Any) -> dict[str, Any]:
    replicas = [{"name": "s", "active": int(each * SECOND), **more} for each in seconds]
    return {"cluster": {"leader": "s0", "replicas": replicas}}


LED = {
    "one server": {},
    "one server of a cluster": {"cluster": {"leader": "s0"}},
    "three, both others were heard": others(0.2, 0.9),
    "three, one other was heard": others(0.2, 60.0),
    "five, two others were heard": others(0.2, 1.1, 60.0, 60.0),
}
CUT_OFF = {
    "three, none was heard": others(2.5, 7.0),
    "three, both are offline": others(0.1, 0.1, offline=True),
    "two, the other was not heard": others(60.0),
    "five, one other was heard": others(0.2, 7.0, 60.0, 60.0),
}


@pytest.mark.parametrize("info", LED.values(), ids=LED.keys())
async def test_leader_with_most_others_leads(info: dict[str, Any]) -> None:
    assert await told_by(info) == info


@pytest.mark.parametrize("info", CUT_OFF.values(), ids=CUT_OFF.keys())
async def test_leader_without_most_others_may_be_deposed(info: dict[str, Any]) -> None:
    with pytest.raises(UnavailableError, match=r"WORKLOADS: .* has not heard from the others"):
        await told_by(info)
