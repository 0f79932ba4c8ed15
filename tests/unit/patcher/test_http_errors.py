"""Errors of an API server over HTTP: real status codes, headers and broken responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import pytest

from services.simulator.http.application import Application
from services.simulator.http.server import Server
from shared.kube.client import HttpKube
from shared.testing.waiting import eventually
from tests.unit.patcher.stage import NOON, Setup

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RELEASE = ("PATCH", "/jobs/train")
STATUS = ("PATCH", "/status")
CREATE = ("POST", "/workloads")
STEPS = {"create": CREATE, "status": STATUS, "release": RELEASE}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What goes over the wire instead of the truth."""

    status: int = 200
    reason: str = ""
    message: str = "no"
    headers: tuple[tuple[bytes, bytes], ...] = ()
    raw: bytes | None = None
    """A body that is no Status, for instance some proxy's page."""

    does_it: bool = False
    """The request is carried out nevertheless."""

    breaks_off: bool = False
    """The connection ends in the middle of the answer."""

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.status}
        return json.dumps({**status, "reason": self.reason, "message": self.message}).encode()


class FaultyServer(Application):
    """An API server that answers the requests of one step as it was told to, one after the other."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.kube._api, now=lambda: NOON)
        self.setup = setup
        self.step = RELEASE
        self.answers: list[Answer] = []
        self.times: list[float] = []
        """When the requests of the step came, in loop time."""

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        method, end = self.step
        if scope["type"] != "http" or scope["method"] != method or not scope["path"].endswith(end):
            await super().__call__(scope, receive, send)
            return
        self.times.append(asyncio.get_running_loop().time())
        if not self.answers:
            await super().__call__(scope, receive, send)
            return
        answer = self.answers.pop(0)
        if answer.does_it:
            await super().__call__(scope, receive, _nowhere)
        await self._send(answer, send)

    async def _send(self, answer: Answer, send: Send) -> None:
        body = answer.body()
        promised = len(body) + (100 if answer.breaks_off else 0)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(promised).encode()),
            *answer.headers,
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": answer.breaks_off})


async def _nowhere(_message: MutableMapping[str, Any]) -> None:
    return


@pytest.fixture
async def faulty() -> AsyncIterator[FaultyServer]:
    setup = Setup()
    application = FaultyServer(setup)
    server = Server(application)
    await server.start()
    kube = HttpKube.at(server.url)
    setup.patchers_kube = kube
    await setup.bus.start()
    await setup.start_patcher()
    await setup.flavor()
    yield application
    await setup.kill_patcher()
    await setup.bus.stop()
    await kube.close()
    await server.stop()


PASSING = {
    "429 with Retry-After": Answer(
        status=429, reason="TooManyRequests", headers=((b"retry-after", b"1"),)
    ),
    "429 that does not say when": Answer(status=429, raw=b"slow down"),
    "500 of a store that is away": Answer(status=500, reason="InternalError", message="etcd"),
    "502 with the page of a proxy": Answer(status=502, raw=b"<html>bad gateway</html>"),
    "503 while it starts": Answer(status=503, reason="ServiceUnavailable"),
    "504, done nevertheless": Answer(status=504, reason="Timeout", does_it=True),
    "a success that is no JSON": Answer(raw=b"<html>welcome</html>"),
    "a connection that breaks": Answer(breaks_off=True),
    "a connection that breaks after it was done": Answer(breaks_off=True, does_it=True),
    "409, changed meanwhile": Answer(status=409, reason="Conflict"),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING.keys())
async def test_write_is_retried_until_it_succeeds_once(
    faulty: FaultyServer, step: tuple[str, str], answer: Answer
) -> None:
    if step == CREATE and answer.status == 409:
        pytest.skip("a create conflicts only with what is there")
    faulty.step, faulty.answers = step, [answer]
    setup = faulty.setup
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def released() -> bool:
        return not (await setup.job())["spec"]["suspend"]

    await eventually(released)
    assert (await setup.conditions(state))["Admitted"] == "True"
    assert not faulty.answers
    if answer.status == 429:
        assert faulty.times[1] - faulty.times[0] >= 0.99, "no sooner than it was told"

    async def told() -> bool:
        return [(o.action, o.result) for o in await setup.outcomes()] == [("release", "applied")]

    if not answer.does_it or step != RELEASE:
        await eventually(told)


FOR_GOOD = {
    "422 of a field": Answer(status=422, reason="Invalid", message="spec.tasks: Invalid value"),
    "400 of a webhook": Answer(
        status=400,
        reason="BadRequest",
        message='admission webhook "validation.webhook.pipeline.tekton.dev" denied the request: bad',
    ),
    "403 of a policy": Answer(
        status=403,
        reason="Forbidden",
        message='admission webhook "policy" denied the request: no images from there',
    ),
}


@pytest.mark.parametrize("answer", FOR_GOOD.values(), ids=FOR_GOOD.keys())
async def test_refused_release_is_reported_with_the_reason(
    faulty: FaultyServer, answer: Answer
) -> None:
    faulty.answers = [answer] * 5
    setup = faulty.setup
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def told() -> bool:
        return bool(await setup.outcomes())

    await eventually(told)
    await asyncio.sleep(0.3)
    [outcome] = await setup.outcomes()
    assert (outcome.action, outcome.result) == ("release", "refused")
    assert answer.message in outcome.message
    assert len(faulty.times) == 2, "asked once, and then marked"
    assert (await setup.job())["spec"]["suspend"] is True


async def test_gone_job_is_not_reported(faulty: FaultyServer) -> None:
    faulty.answers = [Answer(status=404, reason="NotFound")] * 5
    setup = faulty.setup
    state = await setup.submit()
    await setup.decide(state, "admitted")

    async def asked() -> bool:
        return bool(faulty.times)

    await eventually(asked)
    await asyncio.sleep(0.3)
    assert len(faulty.times) == 1
    assert await setup.outcomes() == []
