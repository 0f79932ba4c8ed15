"""A console with a busy queue, and a browser that shows its page."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.browser import CHROMIUM, Page, browser
from tests.integration.console_stage import Place, console, furnish_places


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """One browser for a file."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: `make browser` says how to get one")
    folder: Path = tmp_path_factory.mktemp("browser")
    async with browser(folder) as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="module")
async def place() -> AsyncIterator[Place]:
    """All four CPUs are in use, and three wait: one of others, and one that never can.

    There are spokes and build machines, of which no workload needs any.
    """
    async with console(people=True) as place:
        site = place.site
        await site.queue(cpu=4, cohortName="shared")
        await site.workload("runs", cpu="4", age=99)
        await site.workload("first", cpu="2", age=40)
        await site.workload("theirs", cpu="2", age=30, namespace="others")
        await site.workload("odd", age=20, inadmissible="<b id=evil>bold</b>")
        await furnish_places(site)
        await site.synced()
        yield place


@pytest_asyncio.fixture(loop_scope="module")
async def page(tab: Page, place: Place) -> AsyncIterator[Page]:
    """The list of workloads, opened by its address, before anybody has signed in."""
    tab.forget()
    await tab.open(f"{place.url}/workloads")
    await tab.until("!document.getElementById('signin').hidden")
    yield tab
    # Its stream of events ends, so that the console need not wait for it.
    await tab.open("about:blank")
