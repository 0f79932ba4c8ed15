"""Whose quota is where, on the overview and the pages below it, and what a workload asks and gets."""

import json

import pytest
import pytest_asyncio

from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import PodSet
from tests.integration.browser import Page
from tests.integration.console_stage import Place, evicted
from tests.integration.page.reading import NAMES, go, says, sign_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

BORROWS = "cpu in default: 6 of 2 used · 4 borrowed"
LENDS = "cpu in default: 0 of 4 used · 4 lent"
TOGETHER = "cpu in default: 6 of 6 used · 4 borrowed"


@pytest_asyncio.fixture(loop_scope="module")
async def borrowing(page: Page, place: Place) -> Page:
    """Queue `cq` has two CPUs of its own, and `lender` four, all of which `cq` borrows."""
    await place.site.queue(cpu=2, cohortName="shared")
    await place.site.queue("lender", cpu=4, cohortName="shared")
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    return page


async def bar_of(page: Page, node: str, label: str, *parts: str) -> None:
    """The bar of a queue or cohort has this text and these parts, and the text stands beside it, too."""
    bar = f'document.querySelector("{node} svg[role=img]")'
    await page.until(f"{bar}?.ariaLabel === {label!r}")
    drawn = await page.value(f"[...new Set([...{bar}.children].map((each) => each.classList[0]))]")
    assert drawn == list(parts), node
    for text in label.split(": "):
        await page.until(f"{bar}.parentElement.innerText.includes({text!r})")


async def test_overview_tells_borrowed_lent_reserved_and_used_apart(borrowing: Page) -> None:
    page = borrowing
    await go(page, "/")
    await bar_of(page, "[data-queue='hub//cq']", BORROWS, "room", "used", "borrowed", "mark")
    await page.value("document.getElementById('idle-queues').open = true")
    await bar_of(page, "[data-queue='hub//lender']", LENDS, "room", "lent")
    await bar_of(page, "[data-cohort='shared']", TOGETHER, "room", "used", "borrowed")
    named = "[...document.querySelectorAll('.legend li')].map((each) => each.innerText.split(/[:, ]/)[0])"
    assert await page.value(named) == [
        "used", "reserved", "borrowed", "lent", "free", "its",
    ]  # fmt: skip


async def test_cohort_and_queue_say_who_borrows_from_whom(borrowing: Page) -> None:
    page, whom = borrowing, "Borrowed by cq 4. Lent by lender 4."
    for path in ("/cohorts/hub/shared", "/clusterqueues/hub/cq", "/clusterqueues/hub/lender"):
        await go(page, path)
        await says(page, ".flows", whom)
    await go(page, "/cohorts/hub/shared")
    cells = "[...document.querySelectorAll(\"[data-queue='hub//lender'] td\")].map((each) => each.innerText)"
    await page.until(f"{cells}.join() === '4,0,0,0,4,0,0'")


async def test_flavor_says_cohort_by_cohort_who_borrows_from_whom(
    borrowing: Page, place: Place
) -> None:
    """Queues of other cohorts have the same flavor, and lend nothing to these."""
    for name, cpu in (("debtor", 1), ("donor", 2)):
        await place.site.queue(name, cpu=cpu, cohortName="apart")
    await place.site.local("apart", "debtor")
    await place.site.workload("far", cpu="3", queue="apart")
    await go(borrowing, "/flavors/hub/default")
    told = "[...document.querySelectorAll('.flows')].map((each) => each.innerText).join(' | ')"
    apart = "Cohort apart: borrowed by debtor 2. Lent by donor 2."
    shared = "Cohort shared: borrowed by cq 4. Lent by lender 4."
    await borrowing.until(f"{told} === '{apart} | {shared}'")


async def test_overview_shows_what_changes(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await go(page, "/")
    await says(page, ".changes", "admitted")
    await place.site.workload("runs", cpu="4", active=False, phase="running")
    await says(page, ".changes", "evicted")
    assert await page.value("document.querySelector('.changes a').innerText") == "team/runs"


async def test_overview_tells_of_an_eviction_before_it_was_opened(page: Page, place: Place) -> None:
    await evicted(place.site)
    await sign_in(page, "token-of-root")
    await go(page, "/")
    await says(page, ".changes", "evicted")
    await page.call("Page.reload")
    await says(page, ".changes", "evicted")


async def test_changes_of_one_second_are_in_the_order_of_a_life(page: Page) -> None:
    """Times of objects are whole seconds, those of decisions have a fraction."""
    second, later = "2030-01-01T00:00:07", "2030-01-01T00:00:07.25"
    rows = [
        {"name": "a", "createdAt": f"{second}Z", "admittedAt": f"{later}Z"},
        {"name": "b", "createdAt": f"{second}Z", "finishedAt": f"{second}Z", "succeeded": True},
    ]
    told = await page.value(
        "import('/state.js').then(({apply, latest}) => {"
        f"apply('change', {{queues: [], workloads: {json.dumps(rows)}}});"
        "return latest(4).map((each) => `${each.row.name} ${each.what}`); })"
    )
    assert told == ["a admitted", "b succeeded", "a came", "b came"]


async def test_workload_shows_what_it_asks_beside_what_it_is_given(
    page: Page, place: Place
) -> None:
    site = place.site
    await site.observe(kinds.RESOURCE_FLAVOR, "default", {"nodeLabels": {"pool": "large"}})
    pods = [PodSet(name="workers", count=4, min_count=1, requests={"cpu": "1"})]
    await site.workload("part", pod_sets=pods, priority=9)
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.includes('part')")
    await go(page, "/workloads/hub/team/part")
    await says(page, "#view", "It holds no quota.")
    await site.queue(cpu=7, cohortName="shared")
    await says(
        page, "[data-at='partly workers']", "quota for 3 of its 4 pods; it may start with 1."
    )
    await says(page, "[data-at='flavor default']", "Flavor default is on nodes with pool=large.")
    cells = "[...document.querySelectorAll(\"[data-at='workers/cpu'] > *\")].map((each) => each.innerText)"
    assert await page.value(cells) == ["workers", "3 of 4", "cpu", "1", "4", "3", "default"]


async def test_history_shows_quota_in_use_of_the_chosen_queue(borrowing: Page) -> None:
    page = borrowing
    await go(page, "/history?span=1h&queue=hub%2F%2Fcq")
    await says(page, "#view", "cpu in default: 300 % of 2 at most")
    await go(page, "/history?span=1h&queue=hub%2F%2Flender")
    await says(page, "#view", "Nothing was reserved.")
    chosen = "document.getElementById('history-queue').value"
    assert await page.value(chosen) == "hub//lender"


async def test_answers_that_come_together_are_drawn_once(page: Page) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    at_once = await page.value(
        "window.drawn = 0; Object.defineProperty(document, 'title', {set() { window.drawn += 1; }});"
        "for (let at = 0; at < 20; at++) document.dispatchEvent(new Event('changed')); window.drawn"
    )
    assert at_once == 0
    await page.until("window.drawn > 0")
