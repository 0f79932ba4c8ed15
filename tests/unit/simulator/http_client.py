"""A client of the simulated API over HTTP."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
import orjson

from services.simulator.app import Simulator

MAPS = "/api/v1/namespaces/default/configmaps"


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: int
    body: Any
    headers: Mapping[str, str]


class Client:
    """Sends JSON and reads JSON."""

    def __init__(self, simulator: Simulator, session: aiohttp.ClientSession) -> None:
        self.simulator = simulator
        self.session = session

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type_: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        data = None if body is None else BytesIO(raw)
        headers = {"Accept": accept} | ({"Content-Type": type_} if data is not None else {})
        url = self.simulator.url + path
        async with self.session.request(method, url, data=data, headers=headers) as answer:
            said = await answer.read()
            is_json = answer.content_type == "application/json"
            found = orjson.loads(said) if is_json else said
            return Answer(code=answer.status, body=found, headers=answer.headers)

    async def watch(self, path: str) -> AsyncGenerator[dict[str, Any]]:
        async with self.session.get(self.simulator.url + path) as answer:
            assert answer.status == 200
            async for line in answer.content:
                yield orjson.loads(line)

    async def lines(self, path: str) -> list[tuple[str, str]]:
        """Type and name of every event until the server ends the watch."""
        return [event_of(line) async for line in self.watch(path)]


def event_of(line: dict[str, Any]) -> tuple[str, str]:
    """Type and name of one event."""
    return line["type"], line["object"]["metadata"].get("name", "")
