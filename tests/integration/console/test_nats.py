"""The console's questions over NATS: the same answers as over HTTP."""

import json

import pytest

from services.console import nats_api
from tests.integration.console.questions import (
    CQ,
    DANA,
    ROOT,
    Json,
    bigger,
    over_nats,
    positions,
    refusal_over_nats,
)
from tests.integration.console_stage import SETTLED_SECONDS, Place


async def test_nats_answers_equal_http_answers(place: Place) -> None:
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


async def test_malformed_nats_request_is_refused(place: Place) -> None:
    for question, message in MISUNDERSTOOD:
        told = await refusal_over_nats(place, "pending", **question)
        assert told[: len(message)] == message


async def test_answer_larger_than_a_message_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"token": ROOT, "cluster_queue": "cq"}
    monkeypatch.setattr(nats_api, "ANSWER_BYTES_MAX", 300)
    assert "ask for less, or over HTTP" in await refusal_over_nats(place, "pending", **asked)
    assert await refusal_over_nats(place, "pending", **asked, offset=3) == ""


async def test_nats_discovery_finds_the_service_and_its_endpoints(place: Place) -> None:
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
