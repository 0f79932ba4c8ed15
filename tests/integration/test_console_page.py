"""The console's page in a real browser, as somebody uses it: signs in, looks, asks why, watches.

Skipped where there is no Chromium; what the page asks for is tested without one in `console/`.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.browser import CHROMIUM, Page, browser
from tests.integration.console_stage import Json, Place, console

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

ENTER, TAB, ESCAPE = ("Enter", 13), ("Tab", 9), ("Escape", 27)
NAMES = "[...document.querySelectorAll('#rows .name')].map((each) => each.innerText)"
OPEN = "document.getElementById('why').open"
FOCUS = "document.activeElement"

FAINT = """
(() => {
  const channels = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, number) => sum + each * [0.2126, 0.7152, 0.0722][number], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return light(colour);
    }
    return 1;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    const both = [light(channels(getComputedStyle(element).color)), ground(element)].sort((a, b) => b - a);
    const contrast = (both[0] + 0.05) / (both[1] + 0.05);
    if (contrast < 4.5) found.push([walker.currentNode.data.trim(), contrast]);
  }
  return found;
})()
"""
"""Texts with less contrast than WCAG's AA asks for."""


async def busy(place: Place) -> None:
    """All four CPUs are in use, and three wait: one of others, and one that never can."""
    site = place.site
    await site.queue(cpu=4, cohortName="shared")
    await site.workload("runs", cpu="4", age=99)
    await site.workload("first", cpu="2", age=40)
    await site.workload("theirs", cpu="2", age=30, namespace="others")
    await site.workload("odd", age=20, inadmissible="<b id=evil>bold</b>")
    await site.synced()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with console(people=True) as place:
        await busy(place)
        yield place


@pytest.fixture
async def page(place: Place, tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path) as page:
        await page.open(place.url)
        await page.until("!document.getElementById('signin').hidden")
        yield page


async def sign_in(page: Page, token: str) -> None:
    """The focus is where the token belongs."""
    await page.until(f"{FOCUS}.id === 'token'")
    await page.type(token)
    await page.press(*ENTER)


async def says(page: Page, selector: str, text: str) -> None:
    await page.until(f"document.querySelector({selector!r})?.innerText.includes({text!r})")


async def test_signed_in_user_sees_allowed_queues_and_workloads(page: Page) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.includes('runs')")
    assert sorted(await page.value(NAMES)) == ["first", "odd", "runs"]
    await says(page, "[data-queue='hub//cq']", "cohort shared")
    await says(page, "[data-queue='hub//cq']", "4 of 4")
    await says(page, "[data-queue='hub/team/main']", "4 cpu in default")
    assert await page.value("document.querySelector(\"[data-queue='hub/others/main']\")") is None
    await says(page, "[data-key='hub/team/first']", "WaitingForQuota")
    await says(page, "#connection", "live")


async def test_refused_user_may_try_another_token(page: Page) -> None:
    await sign_in(page, "made-up")
    await says(page, "#signin-why", "the cluster does not know this token")
    await sign_in(page, "token-of-bob")
    await says(page, "#signin-why", 'User "system:serviceaccount:team:bob" cannot list')
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.length === 3")
    await page.value("document.getElementById('sign').click()")
    await page.until("!document.getElementById('signin').hidden")
    assert await page.value("sessionStorage.length === 1 && localStorage.length === 0")
    assert await page.value(NAMES) == []


COUNTS = (
    "[...document.querySelectorAll(\"[data-queue='hub//cq'] dd\")].map((each) => each.innerText)"
)


async def counts(page: Page, place: Place, *expected: int) -> None:
    """How many are pending, reserving and admitted: the page shows what the console tells."""
    wanted = dict(zip(("pending", "reserving", "admitted"), expected, strict=True))

    def told(body: Json) -> bool:
        [queue] = [each for each in body["items"] if each["name"] == "cq"]
        return all(queue.get(name) == number for name, number in wanted.items())

    await place.until("/api/v1/queues", 200, told, token="token-of-root")
    await page.until(f"{COUNTS}.join() === {','.join(map(str, expected))!r}")


async def test_page_shows_changes_without_reload(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await counts(page, place, 3, 1, 1)
    await place.site.workload("fresh", cpu="1")
    await page.until(f"{NAMES}.includes('fresh')")
    await counts(page, place, 4, 1, 1)
    await place.site.workload("fresh", cpu="1", phase="gone")
    await page.until(f"!{NAMES}.includes('fresh')")
    await counts(page, place, 3, 1, 1)


async def test_page_explains_a_workload_and_updates_it(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.length === 3")
    await page.value("document.querySelector(\"[data-key='hub/team/first'] .name\").click()")
    await says(page, "#why-body", "cpu in flavor default: asked 2, free 0")
    await says(page, "#why-body", "runs (4)")
    await says(page, "#why-body", "unknown: no workload has ended")
    await place.site.queue(cpu=8, cohortName="shared")
    await says(page, "#why-body", "Admitted")
    assert await page.value(OPEN)


async def test_page_works_with_the_keyboard(page: Page) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.length === 3")
    for _ in range(12):
        await page.press(*TAB)
        if await page.value(f"{FOCUS}.className === 'name'"):
            break
    chosen = await page.value(f"{FOCUS}.innerText")
    await page.press(*ENTER)
    await page.until(OPEN)
    assert chosen in await page.text("#why-title")
    await page.press(*ESCAPE)
    await page.until(f"!{OPEN}")
    assert await page.value(f"{FOCUS}.innerText") == chosen


SCHEMES = ("light", "dark")


async def test_page_has_enough_contrast_in_light_and_dark(page: Page, tmp_path: Path) -> None:
    async def faint() -> list[Any]:
        found: list[Any] = []
        for scheme in SCHEMES:
            wanted = {"name": "prefers-color-scheme", "value": scheme}
            await page.call("Emulation.setEmulatedMedia", features=[wanted])
            found += [[scheme, *each] for each in await page.value(FAINT)]
        return found

    assert await faint() == []
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    assert await faint() == []
    narrow = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    await page.call("Emulation.setDeviceMetricsOverride", **narrow)
    assert await page.value("document.documentElement.scrollWidth <= 360")


async def test_page_loads_nothing_foreign_and_runs_no_shown_text(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await says(page, "[data-key='hub/team/odd']", "<b id=evil>bold</b>")
    assert await page.value("document.getElementById('evil')") is None
    assert page.requested
    assert all(url.startswith(place.url) for url in page.requested)
    unasked = [each for each in page.complaints if "401" not in each]
    assert unasked == []
    run = "document.head.append(Object.assign(document.createElement('script'), {text: 'ran = 1'}))"
    await page.value(run)
    assert await page.value("typeof ran") == "undefined"
