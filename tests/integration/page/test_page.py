"""The console's page: somebody signs in, looks, asks why, watches, and plays what if."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from shared.contracts.kube.names import ORIGIN
from tests.integration.browser import Page
from tests.integration.console_stage import Json, Place, answer_check, evicted, reserved
from tests.integration.page.reading import ENTER, FOCUS, NAMES, TAB, go, says, sign_in

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_signed_in_user_sees_allowed_queues_and_workloads(page: Page) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.includes('runs')")
    assert sorted(await page.value(NAMES)) == ["first", "odd", "runs"]
    await says(page, "[data-key='hub/team/first']", "WaitingForQuota")
    await says(page, "#connection", "live")
    await go(page, "/")
    await says(page, "#view", "No alert rings.")
    await says(page, ".cohort", "Cohort shared")
    await says(page, "[data-queue='hub//cq']", "4 of 4")
    await says(page, ".attention", "odd")
    await go(page, "/namespaces")
    await says(page, "[data-namespace='team']", "1 WaitingForQuota")
    assert await page.value("document.querySelector(\"[data-namespace='others']\")") is None
    await go(page, "/namespaces/team")
    await says(page, "[data-queue='hub/team/main']", "4 cpu in default")
    for hidden in ("/localqueues/hub/others/main", "/workloads/hub/others/theirs"):
        await go(page, hidden)
        await says(page, "#view", "or you may not see it")


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


async def counts(page: Page, place: Place, pending: int, reserving: int, admitted: int) -> None:
    """The page shows what the console tells; what is admitted does not count as only reserved."""
    wanted = {"pending": pending, "reserving": reserving, "admitted": admitted}

    def told(body: Json) -> bool:
        [queue] = [each for each in body["items"] if each["name"] == "cq"]
        return all(queue.get(name) == number for name, number in wanted.items())

    await place.until("/api/v1/queues", 200, told, token="token-of-root")
    await page.until(f"{COUNTS}.join() === '{pending},{reserving - admitted},{admitted}'")


async def test_page_shows_changes_without_reload(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await place.site.workload("fresh", cpu="1")
    await page.until(f"{NAMES}.includes('fresh')")
    await go(page, "/")
    await counts(page, place, 4, 1, 1)
    await place.site.workload("fresh", cpu="1", phase="gone")
    await counts(page, place, 3, 1, 1)
    await page.value("history.back()")
    await page.until(f"{NAMES}.length === 4")


async def test_page_of_a_workload_explains_and_follows_it(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.length === 3")
    await page.value("document.querySelector(\"[data-key='hub/team/first'] .name\").click()")
    assert await page.value("location.pathname") == "/workloads/hub/team/first"
    await says(page, "#why", "cpu in flavor default: asked 2, free 0")
    await says(page, "#why", "runs (4)")
    await says(page, "#why", "unknown: no workload has ended")
    await says(page, "#view", "sluice explain team/first")
    await place.site.queue(cpu=8, cohortName="shared")
    await says(page, "#why", "Admitted")
    await says(page, ".title .status", "admitted")
    assert await page.value("document.title") == "team/first admitted · Sluicegate"


async def test_page_of_a_preempted_workload_says_not_now_and_by_whom(
    page: Page, place: Place
) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await go(page, "/workloads/hub/team/first")
    await says(page, ".steps", "not yet")
    await go(page, "/workloads/hub/team/runs")
    await page.until("document.querySelector('.steps')?.innerText.match(/after .*/)")
    await evicted(place.site)
    await says(page, ".title .status", "evicted")
    await says(page, ".steps", "not now, last ")
    await says(page, "[data-at='preemptor']", "Preempted last by team/urgent, ")
    await page.value("document.querySelector(\"[data-at='preemptor'] a\").click()")
    assert await page.value("location.pathname") == "/workloads/hub/team/urgent"


async def test_page_of_a_workload_on_a_spoke_links_to_the_spoke(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await go(page, "/workloads/hub/team/away")
    await reserved(place.site, "away")
    await says(page, ".title .status", "quota reserved")
    await answer_check(place.site, "away", "Ready", "The workload got reservation", spoke="east")
    await says(page, ".title", "on spoke east")
    await page.value("document.querySelector('.title p a').click()")
    assert await page.value("location.pathname") == "/spokes/hub/east"


async def test_page_of_a_queue_lists_who_waits_in_order(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await go(page, "/clusterqueues/hub/cq")
    await says(page, "[data-key='hub/team/first'] .number", "1")
    await says(page, "[data-key='hub/others/theirs'] .number", "2")
    await says(page, ".title", "ClusterQueue cohort shared")
    await says(page, "[data-queue='hub/others/main']", "others")
    await says(page, ".settings", "BestEffortFIFO")
    await says(page, ".attention", "spec.preemption.reclaimWithinCohort is Never")
    await says(
        page, "#view", "Expected starts are not known: no workload has ended in the last day"
    )


async def test_what_if_is_played_from_its_address(page: Page) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await go(page, "/what-if?change=quota&queue=hub%2F%2Fcq&place=default%2Fcpu&amount=8")
    assert await page.value("document.getElementById('what-if-amount').value") == "8"
    await page.value("document.querySelector('#what-if button').click()")
    await says(page, "#what-if-answer", "changed ClusterQueue cq")
    await go(page, "/what-if?change=quota&queue=hub%2F%2Fcq&place=default%2Fcpu")
    await page.value("document.querySelector('#what-if button').click()")
    await says(page, "#what-if-answer", "Say how much cpu cq shall have instead of ")
    await go(page, "/what-if?change=quota&queue=hub%2F%2Fcq&place=default%2Fcpu&amount=1+cpu")
    await page.value("document.querySelector('#what-if button').click()")
    await says(page, "#what-if-answer", "nominalQuota: '1 cpu'")
    await go(page, "/what-if?change=submit&queue=hub%2Fteam%2Fmain&asks=cpu%3D100")
    await page.value("document.querySelector('#what-if button').click()")
    await says(page, "#what-if-answer", "submitted Job team/what-if")


async def test_page_works_with_the_keyboard(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.length === 3")
    for _ in range(20):
        await page.press(*TAB)
        if await page.value(f"{FOCUS}.classList.contains('name')"):
            break
    chosen = await page.value(f"{FOCUS}.innerText")
    # What comes in meanwhile does not take the focus away.
    await place.site.workload("fresh", cpu="1")
    await page.until(f"{NAMES}.includes('fresh')")
    assert await page.value(f"{FOCUS}.innerText") == chosen
    await page.press(*ENTER)
    await says(page, "#view h2", chosen)
    assert await page.value(f"{FOCUS}.id") == "view"


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


async def test_history_shows_what_is_read_while_the_logs_are_still_read(
    page: Page, place: Place
) -> None:
    opened, replay = asyncio.Event(), place.bus.replay

    async def slow(stream: str, *filters: str, start: int = 1) -> AsyncGenerator[Any]:
        async with aclosing(replay(stream, *filters, start=start)) as items:
            async for item in items:
                await opened.wait()
                yield item

    place.bus.replay = slow  # type: ignore[method-assign]
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await go(page, "/history?span=1h")
    await says(page, "#view", "The logs are being read")
    await says(page, "#view", "Admissions: 0")
    opened.set()
    await says(page, "#view", "Admissions: 1")
    await page.until(
        "!document.getElementById('view').innerText.includes('The logs are being read')"
    )


async def test_copy_on_a_spoke_is_no_workload_of_its_own(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length > 2")
    before = int((await page.text("#totals")).split()[0])
    copy: Json = {"labels": {ORIGIN: "multikueue"}, "queue": "nowhere", "cluster": "east"}
    await place.site.workload("twin", queue="nowhere")
    await place.site.workload("twin", **copy)
    await place.site.workload("of-another-hub", **copy)
    known = "import('/state.js').then((m) => m.state.workloads.has('east/team/of-another-hub'))"
    await page.until(known)
    await says(page, "#totals", f"{before + 2} waiting")
    await go(page, "/workloads?search=nowhere")
    assert await page.value(f"{NAMES}.sort()") == ["of-another-hub", "twin"]
    changed = "import('/state.js').then((m) => m.latest(100).map((each) => each.row.name))"
    assert (await page.value(changed)).count("twin") == 1
