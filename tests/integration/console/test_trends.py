"""The recent past in figures, counted from the logs: admissions, preemptions and waits by priority."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.console.pages.logs import last_before
from shared.contracts.kube import kinds
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.observed import Synced
from shared.testing.builders import cluster_queue_spec, observed
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer
from tests.contract.bus.stage import workload
from tests.integration.console.questions import DANA, ROOT, VIZ
from tests.integration.console_stage import Place

HOUR = "/api/v1/trends?span=1h"


def total(body: dict[str, Any], field: str) -> int:
    return sum(point[field] for point in body["points"])


async def test_trends_count_what_the_user_may_see(place: Place) -> None:
    # Two of the stage wait behind `runs`; with more quota both are admitted, and one of others.
    await place.until(HOUR, 200, lambda body: total(body, "admitted") == 1, token=ROOT)
    await place.site.queue(cpu=9, preemption={"withinClusterQueue": "LowerPriority"})
    await place.until(HOUR, 200, lambda body: total(body, "admitted") == 4, token=ROOT)
    await place.until(HOUR, 200, lambda body: total(body, "admitted") == 3, token=DANA)
    # What is preempted is counted once, however often its decision is repeated.
    await place.site.workload("urgent", cpu="3", priority=9)
    answer = await place.until(
        HOUR, 200, lambda body: body["complete"] and total(body, "preempted") == 1, token=ROOT
    )
    assert [point["at"] for point in answer.body["points"]] == sorted(
        point["at"] for point in answer.body["points"]
    )


async def test_admission_of_a_copy_is_no_further_one(place: Place) -> None:
    site = place.site
    for message in (
        observed(kinds.NAMESPACE, "team"),
        observed(kinds.RESOURCE_FLAVOR, "default"),
        observed(kinds.CLUSTER_QUEUE, "cq", cluster_queue_spec(8, "default")),
        observed(kinds.LOCAL_QUEUE, "main", {"clusterQueue": "cq"}, "team"),
        Synced(cluster="east", epoch="1", kinds=[], at=datetime.now(UTC)),
    ):
        await site.bus.publish(message.replace(cluster="east"))
    copy: dict[str, Any] = {"labels": {ORIGIN: "multikueue"}, "cluster": "east"}
    await site.workload("first", uid="u-copy", **copy)
    # Its hub writes no log here: the copy is all that is known of it.
    await site.workload("of-another-hub", uid="u-other", **copy)
    explained = "/api/v1/namespaces/team/workloads/first/explain?cluster=east"
    await place.until(
        explained, 200, lambda body: body["items"][0]["reason"] == "Admitted", token=ROOT
    )
    await place.until(
        HOUR, 200, lambda body: body["complete"] and total(body, "admitted") >= 2, token=ROOT
    )
    answer = await place.ask(HOUR, ROOT)
    assert total(answer.body, "admitted") == 2


async def test_trend_shows_waits_by_priority(place: Place) -> None:
    await place.until(HOUR, 200, lambda body: total(body, "admitted") == 1, token=ROOT)
    await place.site.queue(cpu=100)
    now = datetime.now(UTC)
    for number, seconds in enumerate((100, 100, 1000)):
        created = now - timedelta(seconds=seconds)
        more: dict[str, Any] = {"priority": 50, "created_at": created}
        await place.site.workload(f"high-{number}", cpu="1", **more)

    def waits(body: dict[str, Any]) -> list[dict[str, Any]]:
        every = [wait for point in body["points"] for wait in point["waits"]]
        return [wait for wait in every if wait["priority"] == "50"]

    answer = await place.until(
        HOUR, 200, lambda body: sum(each["admitted"] for each in waits(body)) == 3, token=ROOT
    )
    longest = max(each["p95Seconds"] for each in waits(answer.body))
    assert longest >= 900
    shortest = min(each["p50Seconds"] for each in waits(answer.body))
    assert 90 <= shortest < 900


async def test_unknown_span_is_refused(place: Place) -> None:
    answer = await place.ask("/api/v1/trends?span=2h", ROOT)
    assert (answer.code, answer.body["message"]) == (400, "span: '2h' is none of 1h, 24h, 7d")


USE = "/api/v1/clusterqueues/cq/use?span=1h"


def used(body: dict[str, Any]) -> list[str | None]:
    """The CPUs that were reserved at the end of each point; None: nobody knows."""
    found = [point.get("reserved") for point in body["points"]]
    return [None if each is None else (each[0]["reserved"] if each else "0") for each in found]


async def test_trend_shows_quota_in_use_over_time(place: Place) -> None:
    answer = await place.until(
        USE, 200, lambda body: body["complete"] and used(body)[-1] == "2", token=ROOT
    )
    assert len(answer.body["points"]) == 61
    assert used(answer.body)[0] is None, "the log does not reach back to then"
    await place.site.queue(cpu=9)
    await place.until(USE, 200, lambda body: used(body)[-1] == "7", token=ROOT)
    # Whoever sees the queue sees the figures, and nobody else.
    viz = await place.ask(USE, VIZ)
    assert viz.code == 403
    assert (await place.ask(USE.replace("cq", "none"), ROOT)).code == 404
    assert (await place.ask(USE.replace("1h", "2h"), ROOT)).code == 400


@pytest.mark.parametrize(
    ("subjects", "before", "found"),
    [
        ("", 1, None),
        ("a", 1, None),
        ("a", 2, 1),
        ("baab", 5, 3),
        ("baab", 3, 2),
        ("abbbbbbb", 9, 1),
        ("bbbbbbba", 8, None),
        ("aaaaaaaa", 6, 5),
        ("ababab", 6, 5),
    ],
)
async def test_last_entry_before_a_place_of_the_log_is_found(
    subjects: str, before: int, found: int | None
) -> None:
    server = MemoryServer()
    bus = MemoryBus(server, instance="writer")
    await bus.start()
    for number, name in enumerate(subjects):
        await bus.publish(workload(name, step=number))
    entry = await last_before(bus, "WORKLOADS", workload("a").subject, before)
    assert (None if entry is None else entry.sequence) == found
    await bus.stop()
