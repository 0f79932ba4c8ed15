"""The console as its users have it: over HTTP, with tokens that a cluster knows."""

import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError

from services.console.settings import ConsoleSettings
from services.simulator.cluster.api import DeleteOptions
from services.simulator.cluster.kinds.catalogue import ROLE_BINDINGS
from shared.runtime.certificates import CertificateFolder
from tests.integration.console.questions import (
    BOB,
    CQ,
    DANA,
    EXPLAIN,
    LQ,
    ROOT,
    VIZ,
    Json,
    bigger,
    event,
    listening,
    positions,
    refusal_over_nats,
)
from tests.integration.console_stage import Place, console

# Kueue's visibility API ----------------------------------------------------------------------------


async def test_pending_workloads_are_listed_in_order_as_in_kueue(place: Place) -> None:
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
    assert len((await place.ask(f"{CQ}?limit=0", ROOT)).body["items"]) == 3
    assert positions((await place.ask(f"{LQ}?offset=1", DANA)).body) == [("team/second", 2, 1)]


WRONG = {
    f"{CQ}?limit=-1": (400, "limit: '-1' is no number from 0 on"),
    f"{CQ}?limit=100001": (400, "limit: 100001 is more than 100000"),
    f"{CQ}?offset=x": (400, "offset: 'x' is no number from 0 on"),
    f"{CQ}?offset=9999999999": (400, "offset: '9999999999' is no number from 0 on"),
    CQ.replace("/cq/", "/none/"): (404, 'clusterqueues "none" not found'),
    LQ.replace("/main/", "/none/"): (404, 'localqueues "none" not found'),
    CQ.replace("v1beta2", "v9"): (404, "visibility.kueue.x-k8s.io/v9 not found"),
    "/apis/visibility.kueue.x-k8s.io/v9": (404, "visibility.kueue.x-k8s.io/v9 not found"),
    "/api/v1/nothing": (404, "there is no such path"),
    "/api/v1/simulate": (405, "the path does not take this method"),
    f"{EXPLAIN}/none/explain": (404, 'workloads "team/none" not found'),
}


async def test_errors_have_the_form_of_kubernetes_status(place: Place) -> None:
    told = {path: (await place.ask(path, ROOT)) for path in WRONG}
    assert {path: (it.code, it.body["message"]) for path, it in told.items()} == WRONG
    assert {(it.body["kind"], it.body["code"] == it.code) for it in told.values()} == {
        ("Status", True)
    }


@pytest.mark.parametrize("path", ["/workloadz", "/api/v1/nothing", "/workloads.css"])
async def test_browser_gets_a_page_that_says_so_where_there_is_none(
    place: Place, path: str
) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    async with place.session.get(place.url + path, headers=browser) as response:
        assert (response.status, response.content_type) == (404, "text/html")
        assert "script-src 'self'" in response.headers["Content-Security-Policy"]
        assert "/app.js" in await response.text()


# Who may see what ----------------------------------------------------------------------------------


PEOPLE = ("root", "dana", "lena", "viz", "bob")
"""See `console_stage.PEOPLE`."""

NOBODY = ("made-up", None)

JOB: Json = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
    "spec": {"template": {"spec": {"containers": []}}},
}  # fmt: skip
IN_OTHERS = {**JOB, "metadata": {"name": "x", "namespace": "others"}}

Ask = tuple[str, Any, str | None, Json]
"""Path and body over HTTP; endpoint and question over NATS."""

OTHERS = {"namespace": "others"}


def explains(namespace: str, name: str) -> Ask:
    path = f"/api/v1/namespaces/{namespace}/workloads/{name}/explain"
    return path, None, "explain", {"namespace": namespace, "name": name}


def happened(namespace: str, name: str) -> Ask:
    return f"/api/v1/namespaces/{namespace}/workloads/{name}/timeline", None, None, {}


def simulates(**change: Any) -> Ask:
    return "/api/v1/simulate", change, "simulate", {"change": change}


def local_queue(namespace: str) -> Ask:
    question = {"namespace": namespace, "local_queue": "main"}
    return LQ.replace("/team/", f"/{namespace}/"), None, "pending", question


RIGHTS: list[tuple[str, Ask, str]] = [
    (
        "who waits in a ClusterQueue",
        (CQ, None, "pending", {"cluster_queue": "cq"}),
        "root dana viz",
    ),
    ("in a LocalQueue of the team", local_queue("team"), "root dana"),
    ("in a LocalQueue of others", local_queue("others"), "root lena"),
    ("in one that is not there", local_queue("nowhere"), "root"),
    ("how queues stand", ("/api/v1/queues", None, "queues", {}), "root dana lena"),
    ("those of others", ("/api/v1/queues?namespace=others", None, "queues", OTHERS), "root lena"),
    ("workloads", ("/api/v1/workloads", None, None, {}), "root dana lena"),
    ("those of others", ("/api/v1/workloads?namespace=others", None, None, {}), "root lena"),
    ("why one of the team waits", explains("team", "first"), "root dana"),
    ("why one of others does", explains("others", "theirs"), "root lena"),
    ("why one does that is not there", explains("others", "none"), "root lena"),
    ("what happened to one of the team", happened("team", "first"), "root dana"),
    ("what happened to one of others", happened("others", "theirs"), "root lena"),
    ("what happened to none", happened("others", "none"), "root lena"),
    ("the recent past", ("/api/v1/trends", None, None, {}), "root dana lena"),
    ("that of others", ("/api/v1/trends?namespace=others", None, None, {}), "root lena"),
    ("flavors", ("/api/v1/flavors", None, None, {}), "root"),
    ("spokes", ("/api/v1/spokes", None, None, {}), "root"),
    ("machines", ("/api/v1/machines", None, None, {}), "root dana"),
    ("what if nothing changed", simulates(), "root dana lena"),
    ("more quota", simulates(manifests=[bigger(7)]), "root dana"),
    ("a job of others", simulates(manifests=[IN_OTHERS]), "root lena"),
    ("a job in the namespace default", simulates(manifests=[JOB]), "root"),
    ("no ClusterQueue", simulates(remove=["ClusterQueue/cq"]), "root dana"),
    ("no LocalQueue of others", simulates(remove=["LocalQueue/others/main"]), "root lena"),
    ("no LocalQueue anywhere", simulates(remove=["LocalQueue/main"]), "root"),
    ("no spoke east", simulates(lostSpoke="east"), "root"),
    ("what happens", ("/api/v1/events", None, None, {}), "root dana lena"),
    ("what happens to others", ("/api/v1/events?namespace=others", None, None, {}), "root lena"),
]
"""What is asked, how, and who is answered. The others are refused, and nobody has to show a token."""


ANSWERED = {200, 404, 422}
"""Also who asks about what is not there was let in."""


async def test_answers_hold_only_what_rbac_allows(place: Place) -> None:
    answered: list[tuple[str, str]] = []
    for title, (path, body, endpoint, question), _ in RIGHTS:
        codes = {}
        for name in (*PEOPLE, *NOBODY):
            token = None if name is None else f"token-of-{name}"
            codes[name], message = await refusal(place, path, body, token)
            if endpoint is not None:
                told = await refusal_over_nats(place, endpoint, token=token, **question)
                assert told == message, (title, name)
        answered.append((title, " ".join(name for name in PEOPLE if codes[name] in ANSWERED)))
        assert {codes[name] for name in NOBODY} == {401}, title
        assert set(codes.values()) <= ANSWERED | {401, 403}, title
    assert answered == [(title, names) for title, _, names in RIGHTS]


async def refusal(place: Place, path: str, body: Any, token: str | None) -> tuple[int, str]:
    """Code and message of the answer over HTTP, of which only the beginning is read."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    method = "GET" if body is None else "POST"
    url = place.url + path
    async with place.session.request(method, url, headers=headers, json=body) as response:
        message = "" if response.status == 200 else (await response.json())["message"]
        return response.status, message


async def test_refusal_says_what_to_do(place: Place) -> None:
    nobody = await place.ask(CQ)
    assert (nobody.code, nobody.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert nobody.body["message"] == (
        "a bearer token is needed: send one of this cluster, for instance of `kubectl create token`"
    )
    assert (await place.ask(LQ, BOB)).body["message"] == (
        'User "system:serviceaccount:team:bob" cannot list resource "workloads" in API group '
        '"kueue.x-k8s.io" in the namespace "team": a role that allows it must be bound to them'
    )


async def test_invisible_workloads_are_left_out_but_positions_stay(place: Place) -> None:
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


async def test_revoked_role_takes_effect_after_the_cache_time(place: Place) -> None:
    assert (await place.ask(LQ, DANA)).code == 200
    assert place.cluster is not None
    [binding] = place.cluster.api.store.objects(ROLE_BINDINGS, "team")
    await place.cluster.api.delete(ROLE_BINDINGS, "team", binding.name, DeleteOptions())
    await place.until(LQ, 403, token=DANA)


async def test_unanswered_token_review_answers_503(place: Place) -> None:
    assert place.cluster is not None
    await place.cluster.stop()
    answer = await place.until(LQ, 503, token=DANA)
    assert answer.headers["Retry-After"] == "5"
    assert answer.body["reason"] == "ServiceUnavailable"


async def test_without_authorisation_foreign_host_names_are_refused(at_home: Place) -> None:
    assert (await at_home.ask(CQ)).code == 200
    async with at_home.session.get(at_home.url + CQ, headers={"Host": "evil.example"}) as response:
        assert response.status == 403
    with pytest.raises(ValidationError, match=r"for loopback only, not for 0\.0\.0\.0"):
        ConsoleSettings(console_authorization="none", console_host="0.0.0.0")


async def test_certificate_folder_enables_tls(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, ["127.0.0.1"])
    async with console(people=True, certificates=folder) as place:
        trusting = ssl.create_default_context(cafile=folder.authority_certificate)
        async with place.session.get(place.url, ssl=trusting) as response:
            assert (response.status, response.content_type) == (200, "text/html")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await place.ask("/")


# Explain and simulate ------------------------------------------------------------------------------


async def test_explain_names_the_shortage_and_its_holder(place: Place) -> None:
    answer = await place.ask("/api/v1/namespaces/team/workloads/first/explain?forecast=1", DANA)
    [item] = answer.body["items"]
    assert item["reason"] == "WaitingForQuota"
    [shortage] = item["shortages"]
    assert (shortage["resource"], shortage["asked"], shortage["free"]) == ("cpu", "2", "0")
    [holder] = shortage["holders"]
    assert (holder["name"], holder["amount"], holder["namespace"]) == ("runs", "2", "")
    assert item["expected_start_unknown_because"].startswith("no workload has ended")


async def test_simulation_shows_the_effect_of_more_quota(place: Place) -> None:
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


async def test_simulation_names_queues_without_a_chance_where_the_user_may_look(
    place: Place,
) -> None:
    told = {
        user: (await place.ask("/api/v1/simulate", user, {"remove": ["ClusterQueue/cq"]})).body
        for user in (ROOT, DANA)
    }
    gone = "would admit nothing: spec.clusterQueue: 'cq': there is no such ClusterQueue"
    assert {each.partition(gone)[0].strip() for each in told[ROOT]["problems"]} == {
        "LocalQueue team/main",
        "LocalQueue others/main",
    }
    assert all("; there is none at all" in each for each in told[ROOT]["problems"])
    assert not any(";" in each for each in told[DANA]["problems"]), "no names of other queues"
    assert {each.partition(gone)[0].strip() for each in told[DANA]["problems"]} == {
        "LocalQueue team/main"
    }


BAD: list[tuple[Any, int, str]] = [
    (b"{", 400, "body: is no JSON"),
    ([1], 400, "body: Input should be a valid dictionary"),
    ({"manifest": []}, 400, "manifest: Extra inputs are not permitted"),
    ({"manifests": [{}] * 1001}, 400, "manifests: List should have at most 1000 items"),
    ({"manifests": [{"kind": "x"}]}, 422, "manifests[0]"),
    ({"remove": ["cq"]}, 422, "--remove cq: is no KIND/NAME or KIND/NAMESPACE/NAME"),
    ({"remove": ["ClusterQueue/x"]}, 422, "--remove ClusterQueue/x: there is no such object"),
    ({"lostSpoke": "x"}, 422, "--lost-spoke x: there is no such MultiKueueCluster"),
    (b" " * (3 * 1024 * 1024 + 1), 413, "a question has at most 3145728 bytes"),
]


async def test_invalid_change_is_refused(place: Place) -> None:
    for body, code, message in BAD:
        answer = await place.ask("/api/v1/simulate", ROOT, body)
        assert (answer.code, answer.body["message"][: len(message)]) == (code, message)


# Events and page -----------------------------------------------------------------------------------


async def test_events_are_a_snapshot_and_then_changes(place: Place) -> None:
    async with listening(place, DANA) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        first = await event(response, "snapshot")
        assert {row["name"] for row in first["workloads"]} == {"runs", "first", "second"}
        assert [row["kind"] for row in first["queues"]] == ["ClusterQueue", "LocalQueue"]
        await place.site.workload("fourth", cpu="1", namespace="others")
        await place.site.workload("third", cpu="1")
        shows: list[str] = []
        while "third" not in shows:
            shows += [row["name"] for row in (await event(response, "change"))["workloads"]]
        assert "fourth" not in shows
        await place.site.workload("third", cpu="1", phase="gone")
        gone: list[str] = []
        while "third" not in gone:
            gone += [each["name"] for each in (await event(response, "change"))["gone"]]


async def test_number_of_event_streams_is_limited(place: Place) -> None:
    async with (
        listening(place, ROOT) as a,
        listening(place, ROOT) as b,
        listening(place, ROOT) as c,
    ):
        for response in (a, b, c):
            await event(response, "snapshot")
        async with listening(place, ROOT) as d:
            assert d.status == 503


async def test_page_needs_no_token_and_loads_nothing_foreign(
    place: Place,
) -> None:
    for path, kind in (
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
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
