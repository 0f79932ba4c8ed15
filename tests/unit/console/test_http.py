"""What the console makes of a request before anybody is asked about it, and of a failure after."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.applications import Starlette

from services.console.access.reviews import User
from services.console.documents import SimulateRequest
from services.console.http.handlers import PAGES, SECURITY_HEADERS, console_app
from services.console.pages.service import PageService
from services.console.query_service import QueryService
from services.console.status_error import ConsoleRule, StatusError
from tests.unit.console.people import People
from tests.unit.console.stage import Stage, play

STREAMS_MAX = 2
DANA = {"authorization": "Bearer dana"}

Headers = dict[str, str]


@dataclass
class Handler:
    code: int = 0
    headers: Headers = field(default_factory=dict)
    body: bytes = b""

    @property
    def message(self) -> str:
        return str(json.loads(self.body)["message"])


async def ask(app: Starlette, path: str, headers: Headers, *, stays: bool = False) -> Handler:
    """As a server asks the application; a stream is left after its first event."""
    answer, left = Handler(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.code = message["status"]
            answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        answer.body += message.get("body", b"")
        if not stays:
            left.set()

    pairs = [(k.encode(), v.encode()) for k, v in headers.items()]
    path, _, query = path.partition("?")
    await app(
        {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": pairs},
        receive,
        send,
    )  # fmt: skip
    return answer


class Site:
    def __init__(self, stage: Stage, *, local_only: bool) -> None:
        self.stage = stage
        self.people = People(dana=("list workloads",))
        self.queries = QueryService(view=stage.view, access=self.people)
        pages = PageService(queries=self.queries, bus=stage.bus)
        self._app = console_app(self.queries, pages, streams_max=STREAMS_MAX, local_only=local_only)

    async def ask(self, path: str, headers: Headers = DANA) -> Handler:
        return await ask(self._app, path, headers)

    async def open(self) -> None:
        """Follow until cancelled."""
        await ask(self._app, "/api/v1/events", DANA, stays=True)


def site(
    scene: Callable[[Site], Awaitable[None]], *, local_only: bool = False, follows: bool = True
) -> None:
    async def run(stage: Stage) -> None:
        await stage.basics()
        if follows:
            await stage.start()
        await scene(Site(stage, local_only=local_only))

    play(run, idle_seconds=600.0)


TOKENS: list[Any] = [
    pytest.param({"authorization": "Bearer dana"}, 200, id="as RFC 6750 has it"),
    pytest.param({"authorization": "bearer  dana "}, 200, id="in small letters, with blanks"),
    pytest.param({}, 401, id="none"),
    pytest.param({"authorization": "Bearer"}, 401, id="no token"),
    pytest.param({"authorization": "Basic dana"}, 401, id="of another scheme"),
    pytest.param({"authorization": "dana"}, 401, id="without a scheme"),
    pytest.param({"cookie": "token=dana"}, 401, id="as a cookie, which other pages could send"),
]


@pytest.mark.parametrize(("headers", "code"), TOKENS)
def test_token_is_read_from_authorization_header_only(headers: Headers, code: int) -> None:
    async def scene(here: Site) -> None:
        assert (await here.ask("/api/v1/queues", headers)).code == code
        assert (await here.ask("/api/v1/queues?token=dana&access_token=dana", {})).code == 401

    site(scene)


HOSTS: list[Any] = [
    pytest.param("localhost:8080", 200, id="the name of this machine"),
    pytest.param("127.0.0.1:1", 200, id="its address"),
    pytest.param("[::1]:8080", 200, id="its other address"),
    pytest.param("localhost", 200, id="no port"),
    pytest.param("evil.example:8080", 403, id="a name of somebody's that leads here"),
    pytest.param("localhost.evil.example", 403, id="one that begins alike"),
    pytest.param("", 403, id="none"),
]


@pytest.mark.parametrize(("host", "code"), HOSTS)
def test_without_authorisation_only_local_host_names_are_answered(host: str, code: int) -> None:
    async def scene(here: Site) -> None:
        for path in ("/api/v1/queues", "/", "/openapi.json"):
            assert (await here.ask(path, {**DANA, "host": host})).code == code, path

    site(scene, local_only=True)


PATHS = ("/api/v1/queues", "/api/v1/events", "/nowhere", "/openapi.json", *PAGES)


@pytest.mark.parametrize("path", PATHS)
def test_every_response_has_security_headers(path: str) -> None:
    async def scene(here: Site) -> None:
        for headers in (DANA, {}):
            told = (await here.ask(path, headers)).headers
            assert {name: told.get(name.lower()) for name in SECURITY_HEADERS} == SECURITY_HEADERS

    site(scene)


def test_only_an_authenticated_question_starts_reading() -> None:
    async def scene(here: Site) -> None:
        for path in PATHS:
            await here.ask(path, {})
            await here.ask(path, {"authorization": "Bearer made-up"})
        assert not here.stage.reading
        assert (await here.ask("/api/v1/queues")).code == 200
        assert here.stage.reading

    site(scene)


def test_question_before_streams_are_read_gets_retry_after() -> None:
    async def scene(here: Site) -> None:
        answer = await here.ask("/api/v1/queues")
        assert (answer.code, answer.headers["retry-after"]) == (503, "2")
        assert "not read yet all that NATS holds" in answer.message

    site(scene, follows=False)


def test_open_event_stream_keeps_reading_and_holds_a_slot() -> None:
    async def scene(here: Site) -> None:
        open_ones = [asyncio.create_task(here.open()) for _ in range(STREAMS_MAX)]
        await asyncio.sleep(1.0)
        full = await here.ask("/api/v1/events")
        assert (full.code, full.headers["retry-after"]) == (503, "30")
        await asyncio.sleep(6000.0)
        assert here.stage.reading
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)
        assert (await here.ask("/api/v1/events")).code == 200
        await asyncio.sleep(601.0)
        assert not here.stage.reading

    site(scene)


def test_refused_event_stream_frees_its_slot() -> None:
    async def scene(here: Site) -> None:
        for _ in range(STREAMS_MAX + 1):
            assert (await here.ask("/api/v1/events", {})).code == 401
        assert (await here.ask("/api/v1/events")).code == 200

    site(scene)


def test_internal_error_answers_500_without_details() -> None:
    async def scene(here: Site) -> None:
        del here.queries.authorizer
        answer = await here.ask("/api/v1/queues")
        assert (answer.code, answer.message) == (500, "the console failed; its log says why")

    site(scene)


async def test_simulation_whose_files_do_not_fit_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the program is replaced below a console that runs: what simulates is imported late."""
    queries = QueryService(view=Stage().view, access=People(dana=("list workloads",)))
    with monkeypatch.context() as replaced:
        replaced.setitem(sys.modules, "services.console.whatif", None)
        with pytest.raises(StatusError) as refused:
            await queries.simulate(User(name="dana"), SimulateRequest())
    assert (refused.value.code, str(refused.value)) == (500, ConsoleRule.NOT_LOADED.text)

    answer = await queries.simulate(User(name="dana"), SimulateRequest())
    assert answer.changes == []
