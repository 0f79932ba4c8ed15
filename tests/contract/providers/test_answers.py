"""What a proxy or a wrong address answers in a cloud's place: a failed call, never a fact about machines."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from services.provisioner.config.credentials import Secrets
from services.provisioner.machines.controller import call_provider
from services.provisioner.providers.aws import AwsProvider
from services.provisioner.providers.ibm_power import PowerProvider
from services.provisioner.providers.ibm_vpc import VpcProvider
from services.provisioner.providers.port import (
    ANSWER_BYTES_MAX,
    Order,
    Provider,
    ProviderError,
)
from shared.testing.waiting import PATIENCE_SECONDS
from tests.contract.providers.ibm_double import CRN

TAKEN: Final[web.AppKey[list[int]]] = web.AppKey("taken", list)
"""Bytes that were taken of an answer."""

HTML: Final = "<!DOCTYPE html><html><head><title>Sign in</title><br></head>"
XHTML: Final = "<html><body><p>Sign in</p></body></html>"
ANSWERS: Final = {
    "a page of HTML": (200, "text/html", HTML),
    "a page of XHTML": (200, "text/html", XHTML),
    "a refusal in HTML": (403, "text/html", HTML),
    "a missing page in HTML": (404, "text/html", HTML),
    "an outage in HTML": (503, "text/html", XHTML),
    "nothing": (200, "text/plain", ""),
    "an object of others": (200, "application/json", '{"message": "sign in"}'),
    "a list": (200, "application/json", "[]"),
    "a number": (200, "application/json", "7"),
    "bytes": (200, "application/octet-stream", "\x00\x7f\x01"),
}
CALLS: Final[dict[str, Callable[[Provider], Awaitable[Any]]]] = {
    "launch": lambda provider: provider.launch(order()),
    "find": lambda provider: provider.find("world-0123456789abcdef"),
    "list": lambda provider: provider.list_owned("hub"),
    "terminate": lambda provider: provider.terminate("world-0123456789abcdef"),
}


def order() -> Order:
    parameters = {
        "ami": "ami-1", "instance-type": "m6g.large", "region": "us-east-1", "key": "k",
        "subnet": "s", "vpc": "v", "image-id": "i", "profile": "bz2-1x4", "system": "s922",
        "image": "i", "network": "n", "cores": "0.25", "memory": "2", "disk": "50",
    }  # fmt: skip
    return Order(
        name="world-0123456789abcdef",
        owner="hub",
        platform="linux/arm64",
        tag="world",
        tags={},
        parameters=parameters,
    )


@pytest.fixture(params=list(ANSWERS.values()), ids=list(ANSWERS))
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A server that signs everybody in, and gives the same answer to everything else."""
    status, content_type, text = request.param

    async def answer(asked: web.Request) -> web.Response:
        if asked.path == "/identity/token":
            return web.json_response({"access_token": "t", "expires_in": 3600})
        return web.Response(status=status, content_type=content_type, text=text)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def clients(folder: Path, url: str) -> dict[str, Provider]:
    (folder / "keys").mkdir()
    for key in ("access-key-id", "secret-access-key", "api-key"):
        (folder / "keys" / key).write_text("canary")
    secrets = Secrets(folder)
    account = {
        "region": "us-east-1",
        "aws-secret": "keys",
        "secret": "keys",
        "url": url,
        "crn": CRN,
    }
    iam = f"{url}/identity/token"
    return {
        "aws": AwsProvider(account, secrets, endpoint_url=url),
        "vpc": VpcProvider(account, secrets, iam_url=iam),
        "power": PowerProvider(account, secrets, iam_url=iam),
    }


async def serve_without_end(asked: web.Request) -> web.StreamResponse:
    """Answer with a list that is too long, and count what was taken."""
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(asked)
    block = b'{"instances": [' + b" " * 65_536
    # Not for ever: the test ends also where nothing bounds it.
    for _ in range(4 * ANSWER_BYTES_MAX // len(block)):
        await answer.write(block)
        asked.app[TAKEN].append(len(block))
    return answer


async def serve_packed(asked: web.Request) -> web.Response:
    """Answer with few bytes that unpack to many."""
    packed = gzip.compress(b" " * (2 * ANSWER_BYTES_MAX))
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    asked.app[TAKEN].append(len(packed))
    return web.Response(body=packed, headers=headers)


@pytest.mark.parametrize("signs_in", [True, False])
@pytest.mark.parametrize("cloud", ["aws", "vpc", "power"])
@pytest.mark.parametrize("serve", [serve_without_end, serve_packed])
async def test_answer_without_end_is_failed_call_at_the_bound(
    tmp_path: Path,
    cloud: str,
    signs_in: bool,
    serve: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> None:
    async def answer(asked: web.Request) -> web.StreamResponse:
        if signs_in and asked.path == "/identity/token":
            return web.json_response({"access_token": "t", "expires_in": 3600})
        return await serve(asked)

    app = web.Application()
    app[TAKEN] = []
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    opened = clients(tmp_path, f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        with capture_logs() as logs, pytest.raises(ProviderError) as failed:
            await call_provider(opened[cloud].list_owned("hub"), PATIENCE_SECONDS)
        if serve is serve_packed:
            assert str(ANSWER_BYTES_MAX) not in str(failed.value), "it is read as it comes, packed"
        assert [entry["event"] for entry in logs if "exc_info" in entry] == []
        taken: list[int] = app[TAKEN]
        # What is on its way when it is refused counts as well: a busy machine has much of that.
        assert sum(taken) < 3 * ANSWER_BYTES_MAX
    finally:
        for provider in opened.values():
            await provider.close()
        await runner.cleanup()


@pytest.mark.parametrize("cloud", ["aws", "vpc", "power"])
@pytest.mark.parametrize("call", CALLS)
async def test_answer_of_another_server_is_failed_call_and_no_defect(
    tmp_path: Path, url: str, cloud: str, call: str
) -> None:
    opened = clients(tmp_path, url)
    try:
        with capture_logs() as logs, pytest.raises(ProviderError):
            await call_provider(CALLS[call](opened[cloud]), 10)
        assert [entry["event"] for entry in logs if "exc_info" in entry] == []
    finally:
        for provider in opened.values():
            await provider.close()
