"""What a page that follows is told, and when."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from services.console import view
from services.console.http import event_stream
from services.console.http.event_stream import HEARTBEAT_SECONDS, SETTLE_SECONDS, events
from services.console.query_service import QueryService
from services.console.status_error import StatusError
from shared.contracts.controllers import ANSWERED_BY, MACHINES, MULTIKUEUE, CheckService
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import PodSetAssignment
from shared.contracts.messages.checks import CheckState
from shared.testing.builders import cluster_queue_spec
from tests.unit.console.people import People
from tests.unit.console.stage import Stage, decision, play, status, workload

Event = tuple[str, dict[str, Any]]
DANA = ("list workloads in team", "list clusterqueues")


class Following:
    """A page of dana's."""

    def __init__(self, stage: Stage, people: People, namespace: str | None = None) -> None:
        self.stage = stage
        self.people = people
        self.queries = QueryService(view=stage.view, access=people)
        self.happening: AsyncGenerator[str] = events(self.queries, "dana", namespace)

    async def next(self) -> Event:
        """The next event; what is only a sign of life is called `beat`."""
        text = await anext(self.happening)
        assert text.endswith("\n\n")
        if text.startswith(":"):
            return text[2:].strip(), {}
        lines = dict(line.split(": ", 1) for line in text.strip().splitlines())
        return lines["event"], json.loads(lines["data"])


def following(
    scene: Callable[[Following], Awaitable[None]], *, authorizer: tuple[str, ...] = DANA
) -> None:
    async def run(stage: Stage) -> None:
        await stage.basics()
        await stage.say(workload("first"), workload("theirs", namespace="others"))
        await stage.start()
        page = Following(stage, People(dana=authorizer))
        try:
            await scene(page)
        finally:
            await page.happening.aclose()

    play(run)


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def test_first_event_is_a_snapshot_of_visible_objects() -> None:
    async def scene(page: Following) -> None:
        name, told = await page.next()
        assert name == "snapshot"
        assert names(told["workloads"]) == ["job-first"]
        assert [(row["kind"], row["name"]) for row in told["queues"]] == [
            ("ClusterQueue", "cq"),
            ("LocalQueue", "main"),
        ]

    following(scene)


def test_change_events_hold_visible_objects_only() -> None:
    async def scene(page: Following) -> None:
        await page.next()
        await page.stage.say(workload("second"), workload("fourth", namespace="others"))
        name, told = await page.next()
        assert (name, names(told["workloads"])) == ("change", ["job-second"])
        await page.stage.say(status(pending=2))
        _, told = await page.next()
        assert told["queues"][0]["pending"] == 2
        await page.stage.say(workload("second", phase="gone"))
        _, told = await page.next()
        where = {"cluster": "hub", "namespace": "team", "name": "job-second"}
        assert told["gone"] == [{"what": "workload", **where}]

    following(scene)


def test_invisible_changes_cause_heartbeats_only() -> None:
    async def scene(page: Following) -> None:
        await page.next()
        await page.stage.say(workload("fourth", namespace="others"))
        before = asyncio.get_running_loop().time()
        assert await page.next() == ("beat", {})
        assert asyncio.get_running_loop().time() == pytest.approx(
            before + HEARTBEAT_SECONDS, abs=1.0
        )

    following(scene)


def test_quick_changes_of_one_object_make_one_event() -> None:
    async def scene(page: Following) -> None:
        await page.next()
        coming = asyncio.create_task(page.next())
        await asyncio.sleep(1.0)
        first = workload("first")
        others = page.stage.others
        await others.publish(decision(first, "waiting", 1, reason="WaitingForQuota"))
        await asyncio.sleep(SETTLE_SECONDS / 2)
        await others.publish(decision(first, "waiting", 2, reason="ExceedsMaxQuota"))
        _, told = await coming
        assert [row["reason"] for row in told["workloads"]] == ["ExceedsMaxQuota"]

    following(scene)


def test_long_snapshot_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "SNAPSHOT_ROWS", 2)
    monkeypatch.setattr(event_stream, "ROWS_MAX", 5)

    async def scene(page: Following) -> None:
        await page.stage.say(*(workload(f"w{number}") for number in range(6)))
        parts = [await page.next() for _ in range(3)]
        assert [name for name, _ in parts] == ["snapshot", "rows", "rows"]
        assert [len(told["workloads"]) for _, told in parts] == [2, 2, 1]
        assert [len(told["queues"]) for _, told in parts] == [2, 0, 0]
        assert {told["omitted"] for _, told in parts} == {2}
        assert [told["more"] for _, told in parts] == [True, True, False]
        shown = [name for _, told in parts for name in names(told["workloads"])]
        assert len(set(shown)) == 5

    following(scene)


def test_client_too_far_behind_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "CHANGES_MAX", 3)

    async def scene(page: Following) -> None:
        await page.next()
        await page.stage.say(*(workload(f"w{number}") for number in range(10)))
        name, told = await page.next()
        assert (name, len(told["workloads"])) == ("snapshot", 11)

    following(scene)


def test_new_rights_cause_a_snapshot() -> None:
    async def scene(page: Following) -> None:
        await page.next()
        page.people.authorizer["dana"] = frozenset({"list workloads"})
        assert await page.next() == ("beat", {})
        name, told = await page.next()
        assert name == "snapshot"
        assert sorted(names(told["workloads"])) == ["job-first", "job-theirs"]
        assert {row["kind"] for row in told["queues"]} == {"LocalQueue"}

    following(scene)


LOSSES = [
    ("the token ends", lambda people: people.authorizer.clear(), 401),
    ("the role is taken away", lambda people: people.authorizer.update(dana=frozenset()), 403),
    ("the cluster does not answer", lambda people: setattr(people, "answers", False), 503),
]


@pytest.mark.parametrize(("what", "happen", "code"), LOSSES)
def test_event_stream_ends_with_a_reason(
    what: str, happen: Callable[[People], object], code: int
) -> None:
    async def scene(page: Following) -> None:
        await page.next()
        happen(page.people)
        assert await page.next() == ("beat", {})
        name, told = await page.next()
        assert (name, told["code"]) == ("end", code)
        with pytest.raises(StopAsyncIteration):
            await page.next()

    following(scene)


def test_rights_are_checked_again_under_steady_changes() -> None:
    async def scene(page: Following) -> None:
        await page.next()
        page.people.authorizer["dana"] = frozenset()
        for number in range(60):
            await page.stage.say(workload(f"w{number}"))
            name, _ = await page.next()
            if name == "end":
                break
        assert name == "end"
        assert number <= HEARTBEAT_SECONDS

    following(scene)


def test_user_without_rights_is_refused_before_the_first_event() -> None:
    async def scene(page: Following) -> None:
        with pytest.raises(StatusError, match="cannot list"):
            await page.next()

    following(scene, authorizer=())


def test_page_is_told_what_each_check_says_that_a_workload_with_quota_waits_for() -> None:
    first = workload("first")

    async def scene(page: Following) -> None:
        stage = page.stage
        for check, controller in (("far", MULTIKUEUE), ("builders", MACHINES)):
            spec = {"controllerName": controller}
            await stage.say(stage.observed(kinds.ADMISSION_CHECK, check, spec, status=IN_USE))
        checks = {"admissionChecks": [{"name": "far"}, {"name": "builders"}]}
        queue = cluster_queue_spec(4, admissionChecksStrategy=checks)
        await stage.say(stage.observed(kinds.CLUSTER_QUEUE, "cq", queue))
        assert (await page.next())[0] == "snapshot"
        given = PodSetAssignment(
            name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": "1"}
        )
        reserved = decision(first, "reserved", 1, checks=["far", "builders"], pod_sets=[given])
        told = []

        async def next_row() -> None:
            [row] = (await page.next())[1]["workloads"]
            told.append((row["reason"], row["message"]))

        await stage.say(reserved)
        await next_row()
        for check, state, message, service in ANSWERS:
            answer = CheckState.answer(
                reserved, check, state, message, service=service, now=reserved.decided_at
            )
            await stage.say(answer)
            await next_row()
        assert told == [
            ("Reserved", "check far: no answer yet; check builders: no answer yet"),
            ("Reserved", "check far: waits for one of: east; check builders: no answer yet"),
            ("Reserved", "check far: waits for one of: east; check builders: all hosts are busy"),
            ("Reserved", "check builders: all hosts are busy"),
        ]

    following(scene)


IN_USE = {"conditions": [{"type": "Active", "status": "True", "reason": "Up", "message": ""}]}
ANSWERS: list[tuple[str, Any, str, CheckService]] = [
    ("far", "Pending", "waits for one of: east", ANSWERED_BY[MULTIKUEUE]),
    ("builders", "Pending", "all hosts are busy", ANSWERED_BY[MACHINES]),
    ("far", "Ready", "got reservation on east", ANSWERED_BY[MULTIKUEUE]),
]
