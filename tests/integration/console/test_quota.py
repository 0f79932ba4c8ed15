"""Whose quota is where, and what a workload asks beside what it was given."""

from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.messages.workloads import PodSet
from tests.integration.console.questions import BOB, DANA, ROOT
from tests.integration.console_stage import Place

GIVEN = "/api/v1/namespaces/team/workloads/{}/given"


def cpu(body: dict[str, Any], name: str) -> dict[str, Any]:
    """What the node of that name has of its only resource."""
    [node] = [each for each in body["items"] if each["name"] == name]
    [place] = node["places"]
    return {**place, "parent": node.get("parent")}


async def test_quota_says_what_queues_and_cohorts_hold_borrow_and_lend(place: Place) -> None:
    site = place.site
    await site.queue(cpu=2, cohortName="shared")
    await site.queue("lender", cpu=4, cohortName="shared")
    of: dict[str, Any] = {"flavor": "default", "resource": "cpu"}
    borrows = of | {
        "nominal": "2", "reserved": "6", "used": "6", "borrowed": "4", "lent": "0", "parent": "shared",
    }  # fmt: skip
    answer = await place.until(
        "/api/v1/quota", 200, lambda body: cpu(body, "cq") == borrows, token=ROOT
    )
    assert cpu(answer.body, "lender") == of | {
        "nominal": "4", "reserved": "0", "used": "0", "borrowed": "0", "lent": "4", "parent": "shared",
    }  # fmt: skip
    assert cpu(answer.body, "shared") == of | {
        "nominal": "6", "reserved": "6", "used": "6", "borrowed": "4", "lent": "0", "parent": None,
    }  # fmt: skip
    kinds_of = [(each["kind"], each["name"]) for each in answer.body["items"]]
    assert kinds_of[0] == ("Cohort", "shared")
    assert (await place.ask("/api/v1/quota", BOB)).code == 403


async def test_given_compares_pods_and_quantities_with_what_was_asked(place: Place) -> None:
    site = place.site
    await site.observe(kinds.RESOURCE_FLAVOR, "default", {"nodeLabels": {"pool": "large"}})
    pods = [PodSet(name="workers", count=4, min_count=1, requests={"cpu": "1"})]
    await site.workload("part", pod_sets=pods, priority=9)
    path = GIVEN.format("part")
    await place.until(path, 200, token=DANA)
    # It goes first, and there is room for three of its four pods.
    await site.queue(cpu=5)

    def partly(body: dict[str, Any]) -> bool:
        return "given" in body["items"][0]

    answer = await place.until(path, 200, partly, token=DANA)
    assert answer.body == {
        "items": [
            {
                "name": "workers", "asked": 4, "least": 1, "given": 3,
                "resources": [
                    {"name": "cpu", "perPod": "1", "asked": "4", "given": "3", "flavor": "default"}
                ],
            }
        ],
        "flavors": [{"name": "default"}],
    }  # fmt: skip
    # The nodes of flavors are for who may list them.
    seen = await place.ask(path, ROOT)
    assert seen.body["flavors"] == [{"name": "default", "nodeLabels": {"pool": "large"}}]


async def test_given_of_a_workload_that_waits_is_what_it_asks(place: Place) -> None:
    answer = await place.ask(GIVEN.format("second"), DANA)
    assert answer.body == {
        "items": [
            {
                "name": "main",
                "asked": 1,
                "resources": [{"name": "cpu", "perPod": "1", "asked": "1"}],
            }
        ],
        "flavors": [],
    }
    assert (await place.ask(GIVEN.format("none"), DANA)).code == 404
    assert (await place.ask(GIVEN.format("second"), BOB)).code == 403
