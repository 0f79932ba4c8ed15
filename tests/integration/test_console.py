"""The console as its users have it: over HTTP, with tokens that a cluster knows."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import ValidationError

from services.console import nats_api
from services.console.http.openapi import openapi
from services.console.settings import ConsoleSettings
from services.simulator.cluster.api import DeleteOptions
from services.simulator.cluster.kinds.catalogue import ROLE_BINDINGS
from shared.bus.port import UnavailableError
from shared.runtime.certificates import CertificateFolder
from tests.integration.console_stage import SETTLED_SECONDS, Place, console

Json = dict[str, Any]
CQ = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"
LQ = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/main/pendingworkloads"
EXPLAIN = "/api/v1/namespaces/team/workloads"
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


async def test_what_is_wrong_is_said_as_kubernetes_says_it(place: Place) -> None:
    told = {path: (await place.ask(path, ROOT)) for path in WRONG}
    assert {path: (it.code, it.body["message"]) for path, it in told.items()} == WRONG
    assert {(it.body["kind"], it.body["code"] == it.code) for it in told.values()} == {
        ("Status", True)
    }


# Who may see what ----------------------------------------------------------------------------------


def bigger(cpu: int) -> Json:
    quota = {"name": "cpu", "nominalQuota": str(cpu)}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
    }  # fmt: skip


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


async def test_each_is_told_what_the_cluster_allows_and_no_more(place: Place) -> None:
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


async def refusal_over_nats(place: Place, endpoint: str, **question: Any) -> str:
    try:
        await over_nats(place, endpoint, **question)
    except UnavailableError as error:
        return str(error).removeprefix(f"sluice.rpc.console.{endpoint}: ")
    return ""


async def test_who_is_refused_is_told_what_to_do(place: Place) -> None:
    nobody = await place.ask(CQ)
    assert (nobody.code, nobody.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert nobody.body["message"] == (
        "a bearer token is needed: send one of this cluster, for instance of `kubectl create token`"
    )
    assert (await place.ask(LQ, BOB)).body["message"] == (
        'User "system:serviceaccount:team:bob" cannot list resource "workloads" in API group '
        '"kueue.x-k8s.io" in the namespace "team": a role that allows it must be bound to them'
    )


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


async def test_with_a_folder_for_certificates_it_speaks_tls(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path, ["127.0.0.1"])
    async with console(people=True, certificates=folder) as place:
        trusting = ssl.create_default_context(cafile=folder.authority_certificate)
        async with place.session.get(place.url, ssl=trusting) as response:
            assert (response.status, response.content_type) == (200, "text/html")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await place.ask("/")


# Explain and simulate ------------------------------------------------------------------------------


async def test_explain_says_what_is_lacking_and_who_holds_it(place: Place) -> None:
    answer = await place.ask("/api/v1/namespaces/team/workloads/first/explain?forecast=1", DANA)
    [item] = answer.body["items"]
    assert item["reason"] == "WaitingForQuota"
    [shortage] = item["shortages"]
    assert (shortage["resource"], shortage["asked"], shortage["free"]) == ("cpu", "2", "0")
    assert shortage["holders"] == [{"name": "runs", "amount": "2"}]
    assert item["expected_start_unknown_because"].startswith("no workload has ended")


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


async def test_a_change_that_cannot_be_played_is_refused(place: Place) -> None:
    for body, code, message in BAD:
        answer = await place.ask("/api/v1/simulate", ROOT, body)
        assert (answer.code, answer.body["message"][: len(message)]) == (code, message)


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
            assert not response.content.at_eof(), "the events ended"
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
        shows: list[str] = []
        while "third" not in shows:
            shows += [row["name"] for row in (await event(response, "change"))["workloads"]]
        assert "fourth" not in shows
        await place.site.workload("third", cpu="1", phase="gone")
        gone: list[str] = []
        while "third" not in gone:
            gone += [each["name"] for each in (await event(response, "change"))["gone"]]


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

PATHS = openapi()["paths"]
V1BETA2 = "/apis/visibility.kueue.x-k8s.io/{version}"
EXAMPLES: dict[str, Json] = {
    f"{V1BETA2}/clusterqueues/{{name}}/pendingworkloads": {"version": "v1beta2", "name": "cq"},
    f"{V1BETA2}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads": {
        "version": "v1beta1",
        "namespace": "team",
        "name": "main",
    },
    "/api/v1/queues": {},
    "/api/v1/workloads": {},
    "/api/v1/namespaces/{namespace}/workloads/{name}/explain": {
        "namespace": "team",
        "name": "first",
    },
    "/api/v1/simulate": {},
    "/api/v1/events": {},
}
"""Every path of the document, with values for its parameters."""

ODD = ("", "0", "-1", "%00", "a%2Fb", "..", "ä", "x" * 3000, "true", "1e9", "{}", "*", "%25", "٣")
ODD_BODIES: list[Any] = [
    b"", b"null", b"[]", b'"x"', b"[" * 5000, b"\xff", b"{}" * 2, {"cluster": 1}, {"manifests": [None]},
    {"manifests": [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": 7}]},
    {"manifests": [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                    "metadata": {"name": "x"}, "spec": {"resourceGroups": "none"}}]},
    {"manifests": [{"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                    "metadata": {"name": "x" * 3000}, "spec": {}}]},
    {"remove": ["/"]}, {"remove": ["ClusterQueue//"]}, {"lostSpoke": ""}, {"cluster": "\u0000"},
]  # fmt: skip


def conforms(body: Any, schema: Json) -> None:
    document = json.loads(json.dumps(openapi()))
    jsonschema.validate(body, {**document, **schema}, cls=jsonschema.Draft202012Validator)


def test_there_is_an_example_of_every_path() -> None:
    assert set(EXAMPLES) == set(PATHS)


async def test_every_path_answers_what_the_document_says(place: Place) -> None:
    assert (await place.ask("/openapi.json")).body == json.loads(json.dumps(openapi()))
    for template, values in EXAMPLES.items():
        [(method, operation)] = PATHS[template].items()
        [(kind, content)] = operation["responses"]["200"]["content"].items()
        path = template.format(**values)
        if kind == "text/event-stream":
            async with listening(place, ROOT) as response:
                conforms(await event(response, "snapshot"), content["schema"])
            continue
        answer = await place.ask(path, ROOT, {} if method == "post" else None)
        assert answer.code == 200, path
        conforms(answer.body, content["schema"])
        refused = await place.ask(path, BOB, {} if method == "post" else None)
        conforms(refused.body, operation["responses"]["default"]["content"][kind]["schema"])


def odd_paths() -> Iterator[str]:
    """Every parameter of every path with odd values, one at a time."""
    for template, values in EXAMPLES.items():
        [operation] = PATHS[template].values()
        for parameter in operation.get("parameters", ()):
            for odd in ODD if template != "/api/v1/events" else ():
                if parameter["in"] == "query":
                    yield f"{template.format(**values)}?{parameter['name']}={odd}"
                else:
                    yield template.format(**{**values, parameter["name"]: odd})


async def test_whatever_is_asked_the_answer_is_one_of_the_document_and_nothing_fails(
    place: Place,
) -> None:
    status = {"$ref": "#/components/schemas/Status"}
    asked: list[tuple[str, Any]] = [(path, None) for path in odd_paths()]
    asked += [("/api/v1/simulate", body) for body in ODD_BODIES]
    assert len(asked) > 200
    for path, body in asked:
        answer = await place.ask(path, ROOT, body)
        assert answer.code in {200, 400, 404, 405, 422}, (path, body, answer.body)
        if answer.code != 200:
            conforms(answer.body, status)


# NATS ----------------------------------------------------------------------------------------------


async def over_nats(place: Place, endpoint: str, **question: Any) -> Json:
    subject, data = f"sluice.rpc.console.{endpoint}", json.dumps(question).encode()
    answer: Json = json.loads(
        await place.site.bus.request(subject, data, timeout_seconds=SETTLED_SECONDS)
    )
    return answer


async def test_the_same_is_answered_over_nats(place: Place) -> None:
    asked = {"token": ROOT, "cluster_queue": "cq"}
    assert await over_nats(place, "pending", **asked) == (await place.ask(CQ, ROOT)).body
    mine = {"token": DANA, "namespace": "team", "local_queue": "main", "limit": 1}
    assert positions(await over_nats(place, "pending", **mine)) == [("team/first", 1, 0)]
    explained = await over_nats(place, "explain", token=DANA, namespace="team", name="second")
    assert explained["items"][0]["position"] == 3
    queues = await over_nats(place, "queues", token=ROOT)
    assert {row["name"] for row in queues["items"]} == {"cq", "main"}
    played = await over_nats(place, "simulate", token=ROOT, change={"manifests": [bigger(7)]})
    assert played["changes"] == ["changed ClusterQueue cq"]


MISUNDERSTOOD: list[tuple[Json, str]] = [
    ({"token": ROOT}, "name a cluster_queue, or a namespace and a local_queue"),
    ({"token": ROOT, "local_queue": "main"}, "name a cluster_queue, or a namespace and a local_"),
    ({"token": ROOT, "cluster_queue": "cq", "limit": -1}, "limit: Input should be greater than"),
    ({"token": ROOT, "clusterqueue": "cq"}, "clusterqueue: Extra inputs are not permitted"),
]


async def test_a_question_over_nats_that_is_not_understood_is_refused(place: Place) -> None:
    for question, message in MISUNDERSTOOD:
        told = await refusal_over_nats(place, "pending", **question)
        assert told[: len(message)] == message


async def test_an_answer_that_no_message_holds_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"token": ROOT, "cluster_queue": "cq"}
    monkeypatch.setattr(nats_api, "ANSWER_BYTES_MAX", 300)
    assert "ask for less, or over HTTP" in await refusal_over_nats(place, "pending", **asked)
    assert await refusal_over_nats(place, "pending", **asked, offset=3) == ""


async def test_nats_finds_the_service_and_its_endpoints(place: Place) -> None:
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
