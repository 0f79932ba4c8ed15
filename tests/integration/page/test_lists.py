"""Lists of workloads: each status apart, and what is to be done about it."""

import json

import pytest

from tests.integration.browser import Page
from tests.integration.console_stage import Json, Place, answer_check, evicted, reserved
from tests.integration.page.reading import NAMES, go, says, sign_in

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAR = "The workload waits for one of: east, west"


async def away(place: Place) -> None:
    """Workload `away` has quota, and the check `far` says why it does not start yet."""
    await reserved(place.site, "away")
    await place.until("/api/v1/workloads", 200, is_reserved, token="token-of-root")
    await answer_check(place.site, "away", "Pending", FAR)


def is_reserved(body: Json) -> bool:
    return "QUOTARESERVED" in [each["status"] for each in body["items"]]


async def test_namespace_tells_reserved_running_and_evicted_apart(page: Page, place: Place) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await away(place)
    await go(page, "/namespaces")
    cells = (
        "[...document.querySelectorAll(\"[data-namespace='team'] td.number\")]"
        ".map((each) => `${each.dataset.label} ${each.innerText}`).join()"
    )
    await page.until(f"{cells} === 'Waiting 2,Quota reserved 1,Running 1,Evicted 0,Finished 0'")
    await says(page, "[data-namespace='team']", "1 Reserved")
    await evicted(place.site)
    await page.until(f"{cells} === 'Waiting 3,Quota reserved 1,Running 0,Evicted 1,Finished 0'")
    await go(page, "/namespaces/team")
    heads = (
        "[...document.querySelectorAll('#view section h2')].map((each) => each.innerText).join()"
    )
    await page.until(f"{heads} === 'LocalQueues,Waiting: 3,Quota reserved: 1,Evicted: 1'")


async def test_namespace_tells_what_a_workload_with_quota_waits_for_and_what_to_do(
    page: Page, place: Place
) -> None:
    await sign_in(page, "token-of-dana")
    await page.until(f"{NAMES}.length === 3")
    await go(page, "/namespaces/team")
    await away(place)
    await says(page, "[data-key='hub/team/away']", "check far: The workload waits for one of: east")
    await says(page, "[data-at='Reserved']", "Reserved: It has quota, and waits for its")
    await says(page, "[data-at='Reserved']", "If it stays, ask whoever runs the check.")


MANY = 210
LEFT: list[tuple[str, list[tuple[str, str]]]] = [
    (
        "/clusterqueues/hub/cq",
        [
            ("The first 200 of 213", "/workloads?clusterQueue=cq&status=PENDING"),
            ("The first 200 of 211", "/workloads?clusterQueue=cq&status=HOLDING"),
        ],
    ),
    (
        "/localqueues/hub/team/main",
        [
            ("The first 200 of 212", "/workloads?namespace=team&queue=main&status=PENDING"),
            ("The first 200 of 211", "/workloads?namespace=team&queue=main&status=HOLDING"),
        ],
    ),
    (
        "/namespaces/team",
        [
            ("The first 100 of 212", "/workloads?namespace=team&status=PENDING"),
            ("The first 100 of 211", "/workloads?namespace=team&status=ADMITTED"),
        ],
    ),
    ("/spokes/hub/east", [("The first 200 of 210", "/workloads?spoke=east")]),
]
"""Address of a page, and what it says of each list that ends: how many there are, and where."""

TOLD = (
    "[...document.querySelectorAll('#view p.empty a')]"
    ".map((each) => [each.parentElement.innerText.split(':')[0], each.getAttribute('href')])"
)


async def many(page: Page) -> None:
    """So many more workloads wait in `team`, and as many run on spoke `east`, as far as the page knows."""
    row = {
        "cluster": "hub", "namespace": "team", "queue": "main", "clusterQueue": "cq", "priority": 0,
        "reason": "", "message": "", "asks": {}, "createdAt": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    rows = [
        *({**row, "name": f"waits-{at}", "status": "PENDING"} for at in range(MANY)),
        *(
            {**row, "name": f"far-{at}", "status": "ADMITTED", "spoke": "east"}
            for at in range(MANY)
        ),
    ]
    await page.value(
        "import('/state.js').then(({apply}) => "
        f"apply('change', {{queues: [], workloads: {json.dumps(rows)}}}))"
    )


async def test_list_that_ends_links_to_all_of_it(page: Page) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    await many(page)
    for path, told in LEFT:
        await go(page, path)
        await page.until(
            f"JSON.stringify({TOLD}) === {json.dumps(json.dumps([*map(list, told)], separators=(',', ':')))}"
        )
        for text, href in told:
            await go(page, href)
            await says(page, "#count", f"{text.split()[-1]} of ")


async def test_list_that_is_whole_links_nowhere(page: Page) -> None:
    await sign_in(page, "token-of-root")
    await page.until(f"{NAMES}.length === 4")
    for path, _ in LEFT[:-1]:
        await go(page, path)
        await says(page, "#view", "Waiting: ")
        assert await page.value(TOLD) == []
