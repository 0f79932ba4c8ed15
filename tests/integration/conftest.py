"""Fixtures of this folder."""

import sys
from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from shared.bus.embedded import EmbeddedServer
from shared.testing.nats_server import nats_server
from tests.integration.explain_stage import Site
from tests.integration.spoke_servers import Servers, servers


@pytest.fixture(autouse=True)
def logs_to_a_file_that_stays() -> Iterator[None]:
    """What services of this process log goes to this test's stderr.

    A command that runs in a thread beside them replaces stdout for all, and closes it at its end: a
    worker that logged just then died of it.
    """
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    yield
    structlog.configure(**before)


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    async with nats_server() as running:
        yield running


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.bus.start()
    await site.basics()
    await site.start_quota()
    await site.look()
    yield site
    await site.close()


@pytest.fixture(params=["with a user of its own", "behind a leaf node"])
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Servers, str]]:
    """The servers, and where the spoke `east` connects."""
    async with servers("east", "west") as found:
        yield found, found.direct["east"] if request.param.startswith("with") else found.leaf
