"""The page while its connection to the console is cut for a minute, and afterwards."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.faults.proxy import Proxy
from tests.integration.browser import Page
from tests.integration.console_stage import Place
from tests.integration.page.reading import NAMES, go, says, sign_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROWS = 300
"""More than one event of a snapshot holds."""

CLOCK = """
(() => {
  const [now, later] = [Date.now.bind(Date), setTimeout.bind(window)], timers = new Map();
  let [ahead, last] = [0, 0];
  const due = () => {
    for (const [id, { run, at }] of [...timers]) if (at <= Date.now() && timers.delete(id)) run();
  };
  Date.now = () => now() + ahead;
  window.setTimeout = (run, ms = 0) => {
    timers.set(++last, { run, at: Date.now() + ms });
    later(due, ms + 1);
    return last;
  };
  window.clearTimeout = (id) => timers.delete(id);
  window.pass = (ms) => { ahead += ms; due(); };
})()
"""
"""The page's own clock: `pass` sets it forward, and what is due then happens."""

STATE = "document.getElementById('connection').dataset.state"
BOX = "document.getElementById('table')"
STEP_SECONDS = 5


@dataclass(kw_only=True)
class Cut:
    begin: Callable[[Proxy], Awaitable[None]]
    end: Callable[[Proxy, int], Awaitable[object]]


async def stop(proxy: Proxy) -> None:
    await proxy.stop()


async def swallow(proxy: Proxy) -> None:
    proxy.cut("everything")


async def start_again(proxy: Proxy, port: int) -> None:
    await proxy.start(port)


async def reset(proxy: Proxy, _port: int) -> None:
    proxy.heal()


async def forget(proxy: Proxy, _port: int) -> None:
    proxy.renew()


CUTS = {
    "the console is away": Cut(begin=stop, end=start_again),
    "the network swallows everything": Cut(begin=swallow, end=reset),
    "the network forgets the connections": Cut(begin=swallow, end=forget),
}


@pytest_asyncio.fixture(loop_scope="module")
async def line(tab: Page, place: Place) -> AsyncIterator[tuple[Proxy, int]]:
    """A page that is signed in and reaches the console by a proxy."""
    await asyncio.gather(*(place.site.workload(f"w{number:03}") for number in range(ROWS)))
    at = urlsplit(place.url)
    assert at.hostname
    assert at.port
    proxy = Proxy(at.hostname, at.port)
    port = await proxy.start()
    script = await tab.call("Page.addScriptToEvaluateOnNewDocument", source=CLOCK)
    tab.forget()
    await tab.open(f"http://127.0.0.1:{port}/workloads")
    await tab.until("!document.getElementById('signin').hidden")
    await sign_in(tab, "token-of-dana")
    await says(tab, "#count", "303 of 303")
    await says(tab, "#totals", "302 waiting · 1 running")
    yield proxy, port
    await tab.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    await tab.open("about:blank")
    await proxy.stop()


async def minute_passes(page: Page) -> None:
    for _ in range(60 // STEP_SECONDS):
        await page.value(f"pass({STEP_SECONDS * 1000})")
        # What the page tries again meanwhile has the time to fail.
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("cut", CUTS.values(), ids=list(CUTS))
async def test_page_survives_a_minute_without_its_events(
    tab: Page, place: Place, line: tuple[Proxy, int], cut: Cut
) -> None:
    proxy, port = line
    await tab.value(f"{BOX}.scrollTop = 9000")
    await tab.until(f"{NAMES}.includes('w150')")
    await cut.begin(proxy)
    await place.site.workload("fresh", cpu="1", priority=9)
    await place.site.workload("w150", phase="gone")
    await minute_passes(tab)
    await tab.until(f"{STATE} === 'lost' || {STATE} === 'connecting'")

    # It shows what it knew, also on pages that nobody has opened before.
    assert "303 of 303" in await tab.text("#count")
    await go(tab, "/workloads/hub/team/first")
    await says(tab, ".title", "team/first")
    await go(tab, "/clusterqueues/hub/cq")
    await says(tab, "#view", "Waiting: 302")
    await tab.value("history.go(-2)")
    await tab.until(f"{BOX}?.scrollTop === 9000")

    await cut.end(proxy, port)
    # Its last try may hang, and the next one waits.
    await tab.until(f"(pass(1000), {STATE} === 'live')")
    await tab.until(f"!{NAMES}.includes('w150') && {NAMES}.includes('w155')")
    await says(tab, "#count", "303 of 303")
    # The new workload is above, and the browser keeps the place that somebody reads.
    assert await tab.value(f"[9000, 9060].includes({BOX}.scrollTop)")
    await go(tab, "/workloads?search=fresh")
    await tab.until(f"{NAMES}.join() === 'fresh'")
    await go(tab, "/workloads/hub/team/first")
    await says(tab, "#why", "cpu in flavor default: asked 2, free 0")
    await says(tab, "#why", "Ahead")
    unexpected = [each for each in tab.complaints if "net::ERR_" not in each and "401" not in each]
    assert unexpected == []
