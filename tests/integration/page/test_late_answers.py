"""The page while a question is not answered: it says how old its answer is, and goes on asking."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.browser import Page
from tests.integration.console_stage import Place
from tests.integration.page.reading import NAMES, go, says, sign_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

BALANCES = "What is used, borrowed and lent"
PAGES = ("/", "/cohorts/hub/shared", "/flavors/hub/default", "/clusterqueues/hub/cq")


async def unanswered(page: Page, *paths: str) -> None:
    """From now on these get no answer, and all others do."""
    await page.call("Network.setBlockedURLs", urls=[f"*{path}*" for path in paths])


async def says_no_more(page: Page, text: str) -> None:
    await page.until(f"!document.getElementById('view').innerText.includes({text!r})")


@pytest_asyncio.fixture(loop_scope="module")
async def root(page: Page) -> AsyncIterator[Page]:
    """The page of somebody who may see everything."""
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    yield page
    await unanswered(page)


async def test_bars_say_since_when_they_are_old(root: Page, place: Place) -> None:
    await go(root, "/")
    await says(root, "[data-queue='hub//cq']", "4 of 4 used")
    await unanswered(root, "/api/v1/quota")
    await says(root, "#view", f"{BALANCES} is shown as it was")
    for path in PAGES:
        await go(root, path)
        await says(root, "#view", f"{BALANCES} is shown as it was")
        await says(root, "#view", "ago: the console does not answer")
    await place.site.queue("lender", cpu=4, cohortName="shared")
    await unanswered(root)
    await says_no_more(root, BALANCES)
    await go(root, "/cohorts/hub/shared")
    await says(root, "#view", "8 of 8 used · 4 borrowed")


async def test_figures_that_are_not_known_are_no_zeros(root: Page) -> None:
    await root.call("Page.reload")
    await unanswered(root, "/api/v1/quota")
    await root.until(f"{NAMES}.length === 4")
    await go(root, "/cohorts/hub/shared")
    await says(root, "#view", f"{BALANCES} is not known: the console does not answer")
    await says(root, ".use", "4 of 4 reserved")
    assert "0 used" not in await root.text("#view")
    cells = (
        "[...document.querySelectorAll(\"[data-queue='hub//cq'] td\")]"
        ".map((each) => each.innerText.replace(/^\\W$/, '?')).join()"
    )
    assert await root.value(cells) == "4,4,?,0,?,?,3"
    await unanswered(root)
    await root.until(f"{cells} === '4,4,4,0,0,0,3'")
    await says_no_more(root, BALANCES)


async def test_alerts_and_positions_say_since_when_they_are_old(root: Page) -> None:
    await go(root, "/")
    await says(root, "#view", "No alert rings.")
    await unanswered(root, "/api/v1/alerts", "/pendingworkloads")
    await says(root, "#view", "Which alerts ring is shown as it was")
    await go(root, "/clusterqueues/hub/cq")
    await says(root, "#view", "The order is not known: the console does not answer")
    await unanswered(root)
    await says_no_more(root, "The order")


async def test_why_is_asked_again_of_a_workload_that_does_not_change(root: Page) -> None:
    await unanswered(root, "/explain")
    await go(root, "/workloads/hub/team/runs")
    await says(root, "#why", "the console does not answer")
    await unanswered(root)
    await says(root, "#why", "Admitted")


async def test_workload_that_is_nowhere_is_not_asked_for_without_end(root: Page) -> None:
    await go(root, "/workloads/hub/team/nobody")
    await says(root, "#view", "It has left the queues, or you may not see it.")
    await says(root, "#view", "What the logs hold is not known: ")
    await says_no_more(root, "asking…")


async def test_timeline_tells_the_end_soon_after_the_workload_has_gone(
    root: Page, place: Place
) -> None:
    await go(root, "/workloads/hub/team/first")
    await says(root, ".timeline", "waits in LocalQueue main")
    # The page's clock stands still but for two steps: no question becomes due by its age.
    for _ in range(2):
        await root.value("(() => { const at = Date.now() + 2000; Date.now = () => at; })()")
        await root.value("document.dispatchEvent(new Event('redraw'))")
    await place.site.workload("first", phase="gone")
    await says(root, "#view", "It has left the queues.")
    await says(root, ".timeline", "is deleted")
