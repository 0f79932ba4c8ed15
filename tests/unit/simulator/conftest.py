"""Fixtures of this folder."""

import ssl
from collections.abc import AsyncIterator
from random import Random

import aiohttp
import pytest
from aiohttp import web

from services.simulator.app import Simulator
from services.simulator.cluster.api import Api
from services.simulator.http.webhooks import Webhooks
from tests.unit.simulator.builders import api
from tests.unit.simulator.http_client import Client
from tests.unit.simulator.webhooks import Reviewer


@pytest.fixture
async def reviewer() -> AsyncIterator[Reviewer]:
    found = Reviewer()
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    names = ("127.0.0.1", "hook.sluice.svc")
    found.authority.issue_cert(*names).configure_cert(trust)
    application = web.Application()
    application.router.add_post("/{tail:.*}", found.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
    await site.start()
    port = runner.addresses[0][1]
    found.url = f"https://127.0.0.1:{port}"
    yield found
    await runner.cleanup()


@pytest.fixture
async def cluster(reviewer: Reviewer) -> AsyncIterator[Api]:
    made = api()
    webhooks = Webhooks(made, random=Random(1), services={("sluice", "hook"): reviewer.url})
    webhooks.start()
    yield made
    await webhooks.stop()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    async with aiohttp.ClientSession() as session:
        yield Client(simulator, session)
    await simulator.stop()
