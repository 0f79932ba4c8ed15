"""The pages for everybody: screen readers, faint eyes, small screens, and long lists."""

import json

import pytest

from tests.integration.browser import Page
from tests.integration.console_stage import Place, answer_check, evicted, lose_spoke, reserved
from tests.integration.page.reading import (
    AXE,
    LIVE,
    NAMES,
    PAGES,
    SHIFTS,
    VIOLATIONS,
    WHOLE,
    faint,
    go,
    says,
    sign_in,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def sign_in_and_fill(page: Page, place: Place) -> None:
    """Root is signed in, and every page has something to show: each status, spokes and machines."""
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await reserved(place.site, "away")
    await page.until(f"{SHOWN_STATUSES}.includes('quota reserved')")
    await answer_check(place.site, "away", "Ready", "The workload got reservation", spoke="east")
    await page.until(f"{SHOWN_STATUSES}.includes('on east')")
    await lose_spoke(place.site, "west")
    await reserved(place.site, "reserved")
    await evicted(place.site)
    for status in ("quota reserved", "evicted"):
        await page.until(f"{SHOWN_STATUSES}.includes({status!r})")


SHOWN_STATUSES = "document.getElementById('table').innerText"
MISSING = "document.getElementById('view').innerText.includes('There is no such')"


async def test_every_page_that_is_looked_at_has_something_to_show(page: Page, place: Place) -> None:
    await sign_in_and_fill(page, place)
    for path in sorted({*PAGES} - {"/nowhere"}):
        await go(page, path)
        await page.until(WHOLE)
        assert not await page.value(MISSING), path
    await go(page, "/spokes/hub/west")
    await says(page, "[data-at='west']", "not connected")
    await says(page, "[data-at='west']", "ClientConnectionFailed: no heartbeat for 45 s")
    await go(page, "/spokes/hub/east")
    await says(page, "#view", "Runs here: 1")
    await says(page, "[data-at='east']", "3 cpu, 12Gi memory")
    await go(page, "/machines/hub/linux%2Farm64")
    await says(page, "[data-at='arm-1']", "all builds of the pool")
    await says(page, "[data-at='slot-2']", "others/build-2")


@pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: `make browser` installs it")
async def test_pages_have_no_violations_of_axe(page: Page, place: Place) -> None:
    await page.value(AXE.read_text())
    found = {"sign in": await page.value(VIOLATIONS)}
    await sign_in_and_fill(page, place)
    for path in PAGES:
        await go(page, path)
        await page.until(WHOLE)
        found[path] = await page.value(VIOLATIONS)
    assert {path: each for path, each in found.items() if each} == {}


async def test_texts_have_contrast_in_light_and_dark_and_fit_a_phone(
    page: Page, place: Place
) -> None:
    assert await faint(page) == []
    await sign_in_and_fill(page, place)
    narrow = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    await page.call("Emulation.setDeviceMetricsOverride", **narrow)
    for path in PAGES:
        await go(page, path)
        await page.until(WHOLE)
        assert await faint(page) == [], path
        assert await page.value("document.documentElement.scrollWidth <= 360"), path
        assert await page.value(CUT) == [], path
    await page.call("Emulation.clearDeviceMetricsOverride")


async def test_pages_open_without_errors_and_without_layout_shifts(
    page: Page, place: Place
) -> None:
    await sign_in_and_fill(page, place)
    page.forget()
    for path in sorted({*PAGES} - {"/nowhere"}):  # The server does not know that address.
        await page.open(place.url + path)
        await page.until(f"location.pathname + location.search === {path!r} && {LIVE} && {WHOLE}")
        assert await page.value(SHIFTS) < 0.1, path
    assert page.complaints == []


CUT = """
[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth > each.clientWidth + 1).concat(
  [...document.querySelectorAll('.tall tbody td.why')].filter((each) => each.clientWidth < 90)
).map((each) => `${each.ariaLabel || each.innerText}: ${each.scrollWidth} of ${each.clientWidth}`)
"""
"""Tables of which one sees only a part, and reasons that nobody can read."""

ROWS = 10_000
DRAWN = "document.querySelectorAll('#rows tr:not(.space)').length"
BOX = "document.getElementById('table')"


async def test_ten_thousand_rows_scroll_and_only_those_in_sight_are_drawn(page: Page) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    row = {
        "cluster": "hub", "namespace": "team", "queue": "main", "clusterQueue": "cq", "priority": 0,
        "reason": "", "message": "", "asks": {}, "status": "PENDING", "createdAt": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    await page.value(
        "import('/state.js').then(({apply}) => { "
        f"const row = {json.dumps(row)}; const workloads = [];"
        f"for (let at = 0; at < {ROWS}; at++) "
        "workloads.push({...row, name: `w${String(at).padStart(5, '0')}`});"
        "apply('change', {queues: [], workloads}); document.dispatchEvent(new Event('redraw')); })"
    )
    await page.until(f"{NAMES}.includes('w00000')")
    assert await page.value(DRAWN) < 100
    assert await page.value(f"{BOX}.scrollHeight") >= ROWS * 60
    await page.value(f"{BOX}.scrollTop = {BOX}.scrollHeight")
    await page.until(f"{NAMES}.includes('w0{ROWS - 1}')")
    assert await page.value(DRAWN) < 100
    top = await page.value(f"{BOX}.scrollTop")
    # Whoever comes back finds the same place; another filter begins at the top.
    await go(page, "/namespaces")
    await page.value("history.back()")
    await page.until(f"{BOX}?.scrollTop === {top}")
    await go(page, "/workloads?search=w00007")
    await page.until(f"{NAMES}.join() === 'w00007'")
    assert "1 of " in await page.text("#count")


async def test_filters_are_in_the_address(page: Page) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await page.value("document.getElementById('search').focus()")
    await page.type("evil")
    await page.until(f"{NAMES}.join() === 'odd'")
    assert await page.value("location.search") == "?search=evil"
    await go(page, "/workloads?namespace=others&status=PENDING")
    await page.until(f"{NAMES}.join() === 'theirs'")
    assert await page.value("document.getElementById('filter-namespace').value") == "others"
    await go(page, "/workloads?stuck=1")
    await page.until(f"{NAMES}.join() === 'odd'")
