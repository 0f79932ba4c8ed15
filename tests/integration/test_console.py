"""The console as its users have it: over HTTP, with tokens that a cluster knows."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import ValidationError

from services.console.openapi import openapi
from services.console.settings import ConsoleSettings
from services.simulator.cluster.api import DeleteOptions
from services.simulator.cluster.catalogue import ROLE_BINDINGS
from shared.bus.port import UnavailableError
from tests.integration.console_stage import SETTLED_SECONDS, Place, console

Json = dict[str, Any]
CQ = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"
LQ = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/main/pendingworkloads"
DANA, ROOT, BOB, VIZ = (f"token-of-{name}" for name in ("dana", "root", "bob", "viz"))


async def busy(place: Place) -> None:
    """Two of four CPUs are in use; one of others waits before two of the team's."""
    site = place.site
    await site.queue(cpu=2)
    await site.workload("runs", cpu="2", age=99)
    await site.workload("theirs", cpu="2", age=60, namespace="others")
    await site.workload("first", cpu="2", age=40)
    await site.workload("second", cpu="1", age=20, priority=-1)
    await site.synced()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with console(people=True) as place:
        await busy(place)
        await place.until(CQ, 200, lambda body: len(body["items"]) == 3, token=ROOT)
        yield place


@pytest.fixture
async def at_home() -> AsyncIterator[Place]:
    async with console(people=False) as place:
        await busy(place)
        await place.until(CQ, 200, lambda body: len(body["items"]) == 3)
        yield place


# Kueue's visibility API ----------------------------------------------------------------------------


def positions(body: Json) -> list[tuple[str, int, int]]:
    return [
        (
            f"{item['metadata']['namespace']}/{item['metadata']['name']}",
            item["positionInClusterQueue"],
            item["positionInLocalQueue"],
        )
        for item in body["items"]
    ]


async def test_who_waits_is_listed_in_order_as_kueue_lists_it(place: Place) -> None:
    answer = await place.ask(CQ, ROOT)
    assert answer.body["kind"] == "PendingWorkloadsSummary"
    assert answer.body["apiVersion"] == "visibility.kueue.x-k8s.io/v1beta2"
    assert positions(answer.body) == [
        ("others/theirs", 0, 0),
        ("team/first", 1, 0),
        ("team/second", 2, 1),
    ]
    last = answer.body["items"][2]
    assert (last["priority"], last["localQueueName"]) == (-1, "main")
    assert last["metadata"]["creationTimestamp"] == "2026-01-01T11:59:40Z"

    older = await place.ask(CQ.replace("v1beta2", "v1beta1"), ROOT)
    assert older.body["apiVersion"] == "visibility.kueue.x-k8s.io/v1beta1"
    found = await place.ask("/apis/visibility.kueue.x-k8s.io/v1beta2")
    assert [each["name"] for each in found.body["resources"]] == [
        "clusterqueues/pendingworkloads",
        "localqueues/pendingworkloads",
    ]


async def test_pages_keep_the_positions_of_the_whole_queue(place: Place) -> None:
    answer = await place.ask(f"{CQ}?limit=1&offset=1", ROOT)
    assert positions(answer.body) == [("team/first", 1, 0)]
    assert positions((await place.ask(f"{CQ}?limit=0", ROOT)).body) == []
    assert positions((await place.ask(f"{LQ}?offset=1", DANA)).body) == [("team/second", 2, 1)]


WRONG: list[Any] = [
    pytest.param(f"{CQ}?limit=-1", 400, "limit: '-1' is no number", id="a negative limit"),
    pytest.param(f"{CQ}?limit=100001", 400, "limit: 100001 is more than", id="too long a page"),
    pytest.param(f"{CQ}?offset=x", 400, "offset: 'x' is no number", id="a word for a number"),
    pytest.param(f"{CQ}?offset=9999999999", 400, "offset", id="a number without end"),
    pytest.param(CQ.replace("/cq/", "/none/"), 404, 'clusterqueues "none"', id="no such queue"),
    pytest.param(
        LQ.replace("/main/", "/none/"), 404, 'localqueues "none"', id="no such LocalQueue"
    ),
    pytest.param(CQ.replace("v1beta2", "v9"), 404, "v9 not found", id="no such version"),
    pytest.param("/api/v1/nothing", 404, "no such path", id="no such path"),
    pytest.param("/api/v1/simulate", 405, "does not take", id="a method that it has not"),
    pytest.param(
        "/api/v1/namespaces/team/workloads/none/explain", 404, "team/none", id="no such workload"
    ),
]


@pytest.mark.parametrize(("path", "code", "message"), WRONG)
async def test_what_is_wrong_is_said_as_kubernetes_says_it(
    place: Place, path: str, code: int, message: str
) -> None:
    answer = await place.ask(path, ROOT)
    assert (answer.code, answer.body["kind"], answer.body["code"]) == (code, "Status", code)
    assert message in answer.body["message"]


# Who may see what ----------------------------------------------------------------------------------


async def test_each_sees_what_the_cluster_allows(place: Place) -> None:
    async def codes(token: str) -> list[int]:
        paths = (CQ, LQ, LQ.replace("/team/", "/others/"), "/api/v1/workloads?namespace=others")
        return [(await place.ask(path, token)).code for path in paths]

    assert await codes(ROOT) == [200, 200, 200, 200]
    assert await codes(DANA) == [200, 200, 403, 403]
    assert await codes(BOB) == [403, 403, 403, 403]
    assert await codes(VIZ) == [200, 403, 403, 403]
    assert await codes("made-up") == [401, 401, 401, 401]
    nobody = await place.ask(CQ)
    assert (nobody.code, nobody.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_nobody_is_named_to_whom_may_not_see_him_but_places_stay(place: Place) -> None:
    assert positions((await place.ask(CQ, DANA)).body) == [
        ("team/first", 1, 0),
        ("team/second", 2, 1),
    ]
    assert len((await place.ask(CQ, VIZ)).body["items"]) == 3
    for path in ("/api/v1/workloads", "/api/v1/queues"):
        answer = await place.ask(path, DANA)
        assert answer.code == 200
        assert "others" not in json.dumps(answer.body)
    explained = await place.ask("/api/v1/namespaces/team/workloads/second/explain", DANA)
    [item] = explained.body["items"]
    assert (item["position"], item["ahead"], item["ahead_elsewhere"]) == (3, ["first"], 1)
    assert "theirs" not in json.dumps(explained.body)


async def test_what_was_allowed_ends_soon_after_the_role_does(place: Place) -> None:
    assert (await place.ask(LQ, DANA)).code == 200
    assert place.cluster is not None
    [binding] = place.cluster.api.store.objects(ROLE_BINDINGS, "team")
    await place.cluster.api.delete(ROLE_BINDINGS, "team", binding.name, DeleteOptions())
    await place.until(LQ, 403, token=DANA)


async def test_while_the_cluster_does_not_answer_nobody_is_let_in(place: Place) -> None:
    assert place.cluster is not None
    await place.cluster.stop()
    answer = await place.until(LQ, 503, token=DANA)
    assert answer.headers["Retry-After"] == "5"
    assert answer.body["reason"] == "ServiceUnavailable"


async def test_without_authorisation_only_this_machine_is_answered(at_home: Place) -> None:
    assert (await at_home.ask(CQ)).code == 200
    async with at_home.session.get(at_home.url + CQ, headers={"Host": "evil.example"}) as response:
        assert response.status == 403
    with pytest.raises(ValidationError, match=r"for loopback only, not for 0\.0\.0\.0"):
        ConsoleSettings(console_authorization="none", console_host="0.0.0.0")


# Explain and simulate ------------------------------------------------------------------------------


async def test_explain_says_what_is_lacking_and_who_holds_it(place: Place) -> None:
    answer = await place.ask("/api/v1/namespaces/team/workloads/first/explain?forecast=1", DANA)
    [item] = answer.body["items"]
    assert item["reason"] == "WaitingForQuota"
    [shortage] = item["shortages"]
    assert (shortage["resource"], shortage["asked"], shortage["free"]) == ("cpu", "2", "0")
    assert shortage["holders"] == [{"name": "runs", "amount": "2"}]
    assert item["expected_start_unknown_because"].startswith("no workload has ended")


def bigger(cpu: int) -> Json:
    quota = {"name": "cpu", "nominalQuota": str(cpu)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }  # fmt: skip


async def test_a_play_says_what_more_quota_would_change(place: Place) -> None:
    answer = await place.ask("/api/v1/simulate", ROOT, {"manifests": [bigger(7)]})
    assert answer.code == 200, answer.body
    assert answer.body["changes"] == ["changed ClusterQueue cq"]
    before, after = (answer.body[side]["queues"] for side in ("before", "after"))
    assert before["hub/team/main"]["waitP95Seconds"] > 0
    assert after["hub/team/main"]["waitP95Seconds"] == 0
    assert answer.body["after"]["makespanSeconds"] > 0

    cut = await place.ask("/api/v1/simulate", DANA, {"manifests": [bigger(7)]})
    assert set(cut.body["after"]["queues"]) == {"hub/team/main"}
    assert "makespanSeconds" not in cut.body["after"]


BAD: list[Any] = [
    pytest.param(b"{", 400, "is no JSON", id="half a question"),
    pytest.param([1], 400, "valid dictionary", id="no object"),
    pytest.param({"manifest": []}, 400, "manifest: Extra inputs", id="a misspelt field"),
    pytest.param({"manifests": [{}] * 1001}, 400, "manifests", id="too many manifests"),
    pytest.param({"manifests": [{"kind": "x"}]}, 422, "manifests[0]", id="no manifest"),
    pytest.param({"remove": ["cq"]}, 422, "is no KIND/NAME", id="a name without a kind"),
    pytest.param({"remove": ["ClusterQueue/x"]}, 422, "no such object", id="nothing to remove"),
    pytest.param(b" " * (3 * 1024 * 1024 + 1), 413, "at most", id="a body without end"),
]


@pytest.mark.parametrize(("body", "code", "message"), BAD)
async def test_a_change_that_cannot_be_played_is_refused(
    place: Place, body: Any, code: int, message: str
) -> None:
    answer = await place.ask("/api/v1/simulate", ROOT, body)
    assert (answer.code, answer.body["code"]) == (code, code)
    assert message in answer.body["message"]


async def test_nobody_submits_to_a_namespace_that_he_may_not_see(place: Place) -> None:
    job = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "others"},
        "spec": {"template": {"spec": {"containers": []}}},
    }  # fmt: skip
    assert (await place.ask("/api/v1/simulate", DANA, {"manifests": [job]})).code == 403
    assert (await place.ask("/api/v1/simulate", DANA, {"lostSpoke": "east"})).code == 403


# Events and page -----------------------------------------------------------------------------------


@asynccontextmanager
async def listening(place: Place, token: str | None, query: str = "") -> AsyncIterator[Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with place.session.get(f"{place.url}/api/v1/events{query}", headers=headers) as response:
        yield response


async def event(response: aiohttp.ClientResponse, name: str) -> Json:
    """The data of the next event of that name."""
    async with asyncio.timeout(SETTLED_SECONDS):
        while True:
            found = ""
            while line := (await response.content.readline()).decode().rstrip("\n"):
                if line.startswith("event: "):
                    found = line[7:]
                elif line.startswith("data: ") and found == name:
                    data: Json = json.loads(line[6:])
                    return data


async def test_events_tell_what_is_and_then_what_changes(place: Place) -> None:
    async with listening(place, DANA) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        first = await event(response, "snapshot")
        assert {row["name"] for row in first["workloads"]} == {"runs", "first", "second"}
        assert [row["kind"] for row in first["queues"]] == ["ClusterQueue", "LocalQueue"]
        await place.site.workload("fourth", cpu="1", namespace="others")
        await place.site.workload("third", cpu="1")
        seen: list[str] = []
        while "third" not in seen:
            seen += [row["name"] for row in (await event(response, "change"))["workloads"]]
        assert "fourth" not in seen
        await place.site.workload("third", cpu="1", phase="gone")
        gone: list[str] = []
        while "third" not in gone:
            gone += [each["name"] for each in (await event(response, "change"))["gone"]]


async def test_nobody_follows_what_he_may_not_see(place: Place) -> None:
    async with listening(place, BOB, "?namespace=team") as refused:
        assert refused.status == 403
    async with listening(place, None) as refused:
        assert refused.status == 401
    async with listening(place, BOB) as response:
        first = await event(response, "snapshot")
        assert (first["workloads"], first["queues"]) == ([], [])


async def test_only_so_many_follow_at_once(place: Place) -> None:
    async with (
        listening(place, ROOT) as a,
        listening(place, ROOT) as b,
        listening(place, ROOT) as c,
    ):
        for response in (a, b, c):
            await event(response, "snapshot")
        async with listening(place, ROOT) as d:
            assert d.status == 503


async def test_the_page_is_there_for_everybody_and_takes_nothing_from_elsewhere(
    place: Place,
) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/console.js", "text/javascript"),
        ("/console.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ):
        answer = await place.ask(path)
        assert answer.code == 200
        assert answer.headers["Content-Type"].startswith(kind)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = (await place.ask("/")).body
    assert "http://" not in page
    assert "https://" not in page
    assert "<script>" not in page
    assert "onclick" not in page


# Documents -----------------------------------------------------------------------------------------


ANSWERS: list[Any] = [
    pytest.param(CQ, "PendingWorkloadsSummary", id="pending workloads"),
    pytest.param("/api/v1/queues", "QueueList", id="queues"),
    pytest.param("/api/v1/workloads", "WorkloadList", id="workloads"),
    pytest.param(
        "/api/v1/namespaces/team/workloads/first/explain", "Explained", id="an explanation"
    ),
]


@pytest.mark.parametrize(("path", "schema"), ANSWERS)
async def test_what_is_answered_is_what_the_document_says(
    place: Place, path: str, schema: str
) -> None:
    document = (await place.ask("/openapi.json")).body
    assert document == json.loads(json.dumps(openapi()))
    answer = await place.ask(path, ROOT)
    jsonschema.validate(
        answer.body, {**document, "$ref": f"#/components/schemas/{schema}"},
        cls=jsonschema.Draft202012Validator,
    )  # fmt: skip


# NATS ----------------------------------------------------------------------------------------------


async def test_the_same_is_answered_over_nats(place: Place) -> None:
    async def ask(what: str, **question: Any) -> Json:
        data = json.dumps(question).encode()
        answer: Json = json.loads(
            await place.site.bus.request(
                f"sluice.rpc.console.{what}", data, timeout_seconds=SETTLED_SECONDS
            )
        )
        return answer

    over_http = (await place.ask(CQ, ROOT)).body
    assert await ask("pending", token=ROOT, cluster_queue="cq") == over_http
    mine = await ask("pending", token=DANA, namespace="team", local_queue="main", limit=1)
    assert positions(mine) == [("team/first", 1, 0)]
    explained = await ask("explain", token=DANA, namespace="team", name="second")
    assert explained["items"][0]["position"] == 3
    assert {row["name"] for row in (await ask("queues", token=ROOT))["items"]} == {"cq", "main"}
    played = await ask("simulate", token=ROOT, change={"manifests": [bigger(7)]})
    assert played["changes"] == ["changed ClusterQueue cq"]
    for question, problem in (
        ({"token": BOB, "cluster_queue": "cq"}, 'User "system:serviceaccount:team:bob" cannot'),
        ({"cluster_queue": "cq"}, "a bearer token is needed"),
        ({"token": ROOT}, "name a cluster_queue, or a namespace and a local_queue"),
        ({"token": ROOT, "cluster_queue": "cq", "limit": -1}, "limit: Input should be"),
    ):
        with pytest.raises(UnavailableError, match=problem):
            await ask("pending", **question)
    found = json.loads(
        await place.site.bus.request(
            "$SRV.INFO.sluice-console", b"", timeout_seconds=SETTLED_SECONDS
        )
    )
    assert [each["name"] for each in found["endpoints"]] == [
        "pending",
        "explain",
        "queues",
        "simulate",
    ]
