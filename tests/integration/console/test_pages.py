"""What single pages ask: the timeline of a workload, flavors, spokes and build machines."""

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from shared.contracts.kube import kinds
from shared.contracts.kube.names import ORIGIN
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.hosts import HostSlot, HostState, Machine, PlatformState
from shared.contracts.messages.spokes import SpokeCounts, SpokeState
from shared.telemetry.traceparent import new_traceparent
from shared.testing.builders import job_owner
from tests.integration.console.questions import DANA, ROOT
from tests.integration.console_stage import Place
from tests.integration.explain_stage import NOON

TIMELINE = "/api/v1/namespaces/team/workloads/{}/timeline"


def texts(body: dict[str, Any]) -> list[str]:
    return [line["text"] for line in body["items"]]


async def test_timeline_tells_a_workload_from_creation_to_end(place: Place) -> None:
    site, name = place.site, "job-train"
    trace = new_traceparent(Random(1), NOON - timedelta(seconds=9))
    more: dict[str, Any] = {"owner": job_owner("train"), "priority": 7, "traceparent": trace}
    await site.workload(name, cpu="2", age=10, **more)
    path = TIMELINE.format(name)
    waits = "waits in LocalQueue main, priority 7, asks 1 x 2 cpu"
    await place.until(path, 200, lambda body: waits in texts(body), token=DANA)
    await site.queue(cpu=9)
    admitted = "is admitted by ClusterQueue cq: 2 cpu"
    await place.until(path, 200, lambda body: admitted in texts(body), token=DANA)
    # It has ended, and its name has left the views.
    await site.workload(name, phase="gone", **more)
    ended = await place.until(path, 200, lambda body: "is deleted" in texts(body), token=DANA)
    first = ended.body["items"][0]
    assert first["text"] == "Job train is created; the webhook lets it wait for quota"
    assert first["at"] == (NOON - timedelta(seconds=10)).isoformat().replace("+00:00", "Z")
    trace_id = trace.split("-")[1]
    assert ended.body["traceId"] == trace_id
    assert ended.body["traceUrl"] == f"https://traces.example/{trace_id}"
    assert ended.body["jobUrl"] == "https://jobs.example/team/job/train"
    assert (await place.ask(TIMELINE.format("none"), DANA)).code == 404


HELD = "Job x is created; the webhook lets it wait for quota"
OF_WEBHOOK = new_traceparent(Random(1), NOON)
CREATED: dict[str, tuple[str, dict[str, Any]]] = {
    "a job with the webhook's trace context of that time": (HELD, {"traceparent": OF_WEBHOOK}),
    "a job without one: the patcher held it, or nobody": ("Job x is created", {}),
    "a job with the context of an older job, from which it was copied": (
        "Job x is created",
        {"traceparent": new_traceparent(Random(1), NOON - timedelta(hours=1))},
    ),
    "a job with a context that is none": ("Job x is created", {"traceparent": "yes"}),
    "a job that ran already when it was seen": (
        "Job x is created",
        {"traceparent": OF_WEBHOOK, "phase": "running"},
    ),
    "a copy, which has the context of its original": (
        "Job x is created",
        {"traceparent": OF_WEBHOOK, "labels": {ORIGIN: "multikueue"}},
    ),
    "a Workload without a job": (
        "Workload is created",
        {"traceparent": OF_WEBHOOK, "owner": None},
    ),
}


async def test_timeline_says_of_the_webhook_only_what_something_shows(place: Place) -> None:
    told: dict[str, str] = {}
    for number, (case, (_, more)) in enumerate(CREATED.items()):
        await place.site.workload(f"x-{number}", **{"owner": job_owner("x"), **more})
        path = TIMELINE.format(f"x-{number}")
        answer = await place.until(path, 200, lambda body: bool(body["items"]), token=DANA)
        told[case] = texts(answer.body)[0]
    assert told == {case: text for case, (text, _) in CREATED.items()}


async def test_timeline_tells_which_spokes_are_asked_and_which_one_wins(place: Place) -> None:
    """From the dispatcher's answers: its orders hold whole jobs, and the console may not read them."""
    site, name = place.site, "far"
    answers = [
        ("Pending", "The workload waits for one of: east, west", None),
        ("Retry", "The job fits nowhere. west: jobs.batch is forbidden", None),
        ("Ready", 'The workload got reservation on "east"', "east"),
    ]
    await site.workload(name, age=5)
    for number, (state, message, spoke) in enumerate(answers):
        await site.bus.publish(
            CheckState.model_validate(
                {
                    "cluster": "hub", "namespace": "team", "name": name, "uid": f"u-{name}",
                    "check": "spokes", "service": "dispatcher", "state": state, "message": message,
                    "spoke": spoke, "attempt": number, "at": NOON,
                }
            )
        )  # fmt: skip
    told = [f"admission check spokes is {state}: {message}" for state, message, _ in answers]
    path = TIMELINE.format(name)
    await place.until(
        path, 200, lambda body: [t for t in texts(body) if "check" in t] == told, token=DANA
    )


async def test_timeline_tells_how_the_copies_on_spokes_fare(place: Place) -> None:
    """The orders to spokes hold whole jobs; that a copy is withdrawn its own state tells."""
    site, name, path = place.site, "far", TIMELINE.format("far")
    copy: dict[str, Any] = {"labels": {ORIGIN: "multikueue"}}
    await site.workload(name, age=5)
    for spoke in ("east", "west"):
        await site.workload(name, cluster=spoke, age=4, **copy)
    await site.workload(name, cluster="west", phase="gone", **copy)
    # Another cluster's own workload has the same name.
    await site.workload(name, cluster="south", phase="running", age=3)

    def told(body: dict[str, Any]) -> list[str]:
        return [text for text in texts(body) if not text.startswith("is not admitted")]

    asks = "waits in LocalQueue main, priority 0, asks 1 x 1 cpu"
    expected = [
        "Workload is created",
        asks,
        f"copy on spoke east: {asks}",
        f"copy on spoke west: {asks}",
        "copy on spoke west: is deleted",
    ]
    await place.until(path, 200, lambda body: told(body) == expected, token=DANA)
    own = await place.ask(f"{path}?cluster=south", DANA)
    assert "runs" in texts(own.body)
    # A copy is told of by itself: not with its sibling, and not with the workload of the hub.
    east = await place.ask(f"{path}?cluster=east", DANA)
    assert {text.split(": ")[0] for text in told(east.body)[1:]} == {"copy on spoke east"}


async def test_timeline_names_no_workload_of_a_hidden_namespace(place: Place) -> None:
    site = place.site
    await site.queue(cpu=9, preemption={"withinClusterQueue": "LowerPriority"})
    await site.workload("low", cpu="2", age=5, priority=-5)
    path = TIMELINE.format("low")
    admitted = await place.until(path, 200, lambda body: "is admitted" in str(body), token=DANA)
    at = admitted.body["lastAdmittedAt"]
    await site.workload("urgent", cpu="2", age=1, priority=9, namespace="others")
    seen = await place.until(path, 200, lambda body: "is evicted for" in str(body), token=ROOT)
    assert "is evicted for others/urgent" in str(seen.body)
    hidden = await place.until(path, 200, lambda body: "is evicted for" in str(body), token=DANA)
    assert "is evicted for a workload of another namespace" in str(hidden.body)
    assert "others/urgent" not in json.dumps(hidden.body)
    by = {"namespace": "others", "name": "urgent"}
    assert (seen.body["preemptor"].items() >= by.items(), seen.body["lastAdmittedAt"]) == (True, at)
    assert [*hidden.body["preemptor"]] == ["at"]
    # Another one of the same name was never preempted.
    await site.workload("low", cpu="2", priority=-5, uid="later")
    later = await place.until(path, 200, lambda body: "preemptor" not in body, token=DANA)
    assert "is evicted for" in str(later.body)


async def test_timeline_tells_on_which_hosts_the_task_runs_of_a_run_are(place: Place) -> None:
    site, path = place.site, TIMELINE.format("run-a")

    async def host(name: str, state: str, **more: Any) -> None:
        fields: dict[str, Any] = {
            "cluster": "hub", "namespace": "team", "name": name, "uid": f"u-{name}", "state": state,
            "platform": "linux/arm64", "workload": "run-a", "at": NOON, "sealed": "sealed-key", **more,
        }  # fmt: skip
        await site.bus.publish(HostState.model_validate(fields))

    await site.workload("run-a", owner=job_owner("a", kind="PipelineRun"))
    # Before the run lists its TaskRun nobody knows whose it is.
    await host("build", "waiting", workload="", message="the PipelineRun is not admitted yet")
    await host("build", "launching", host="arm-1")
    await host("build", "ready", host="arm-1", address="192.0.2.9")
    await host("other", "ready", host="arm-2", workload="run-b")
    await host("build", "ready", host="arm-3", namespace="others")
    told = "TaskRun build: linux/arm64 is"
    answer = await place.until(path, 200, lambda body: "arm-1" in str(body), token=DANA)
    assert [each["text"] for each in answer.body["items"] if each["what"] == "host"] == [
        f"{told} waiting: the PipelineRun is not admitted yet",
        f"{told} launching on arm-1",
        f"{told} ready on arm-1",
    ]
    assert "sealed" not in json.dumps(answer.body)
    assert "192.0.2" not in json.dumps(answer.body)


async def test_flavors_say_which_nodes_they_mean(place: Place) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    spec = {"nodeLabels": {"pool": "a100"}, "nodeTaints": [taint], "topologyName": "racks"}
    await place.site.observe(kinds.RESOURCE_FLAVOR, "a100", spec)
    answer = await place.until(
        "/api/v1/flavors", 200, lambda body: len(body["items"]) == 2, token=ROOT
    )
    assert answer.body["items"][0] == {
        "cluster": "hub",
        "name": "a100",
        "nodeLabels": {"pool": "a100"},
        "nodeTaints": ["gpu=yes:NoSchedule"],
        "topology": "racks",
    }


async def test_spokes_have_the_state_that_the_dispatcher_publishes(place: Place) -> None:
    for name in ("east", "west"):
        await place.site.observe(kinds.MULTIKUEUE_CLUSTER, name, {})
    state = SpokeState(
        cluster="hub", spoke="east", active=False, reason="Lost", message="no heartbeat",
        counts=SpokeCounts(offered=2, chosen=1), free={"cpu": "3"}, failures=4, at=NOON,
    )  # fmt: skip
    await place.site.bus.publish(state)
    answer = await place.until(
        "/api/v1/spokes",
        200,
        lambda body: len(body["items"]) == 2 and "active" in body["items"][0],
        token=ROOT,
    )
    east, west = answer.body["items"]
    assert (east["active"], east["reason"], east["message"]) == (False, "Lost", "no heartbeat")
    assert (east["offered"], east["chosen"], east["failures"]) == (2, 1, 4)
    assert east["free"] == {"cpu": "3"}
    assert "active" not in west


async def test_machines_name_task_runs_of_visible_namespaces_only(place: Place) -> None:
    def slot(namespace: str) -> HostSlot:
        return HostSlot(
            uid=f"u-{namespace}", namespace=namespace, name=f"build-{namespace}", host="h1",
            address="192.0.2.1", sealed="sealed-key",
        )  # fmt: skip

    machine = Machine(
        name="m1", provider="aws", state="running", holder="u", task_run="others:build-others",
        address="192.0.2.9", launched_at=NOON, deadline=NOON,
    )  # fmt: skip
    seats = [slot("team"), slot("others")]
    state = PlatformState(
        cluster="hub", platform="linux/arm64", seats=seats, machines=[machine], at=NOON
    )
    await place.site.bus.publish(state)

    def shown(body: dict[str, Any]) -> list[str | None]:
        return [slot.get("taskRun") for each in body["items"] for slot in each["slots"]]

    for token, names in ((ROOT, ["build-team", "build-others"]), (DANA, ["build-team", None])):
        answer = await place.until(
            "/api/v1/machines", 200, lambda body: bool(shown(body)), token=token
        )
        assert shown(answer.body) == names
        assert "sealed" not in json.dumps(answer.body)
        assert "192.0.2" not in json.dumps(answer.body)
        [platform] = answer.body["items"]
        assert [each["name"] for each in platform["machines"]] == ["m1"]


async def test_starts_are_one_forecast_of_which_each_sees_their_own(place: Place) -> None:
    path = "/api/v1/clusterqueues/cq/starts"
    unknown = await place.until(path, 200, token=ROOT)
    assert unknown.body["unknownBecause"] == "no workload has ended in the last day"
    now = datetime.now(UTC)
    finish = {"success": True, "message": "", "at": now}
    more: dict[str, Any] = {"phase": "finished", "finish": finish}
    await place.site.workload("ended", admitted_at=now - timedelta(seconds=60), **more)
    await place.site.workload("huge", cpu="999")
    explain = "/api/v1/namespaces/team/workloads/huge/explain?forecast=true"

    def is_decided(body: Any) -> bool:
        return [each["reason"] for each in body["items"]] == ["ExceedsMaxQuota"]

    [huge] = (await place.until(explain, 200, is_decided, token=ROOT)).body["items"]
    assert huge["expected_start_unknown_because"] == "never, unless that is put right"
    known = await place.until(path, 200, lambda body: len(body["items"]) == 3, token=ROOT)
    assert [f"{each['namespace']}/{each['name']}" for each in known.body["items"]] == [
        "others/theirs",
        "team/first",
        "team/second",
    ]
    assert all(each["expectedEarliest"] for each in known.body["items"])
    own = await place.ask(path, DANA)
    assert [each["name"] for each in own.body["items"]] == ["first", "second"]
    assert (await place.ask("/api/v1/clusterqueues/none/starts", ROOT)).code == 404
