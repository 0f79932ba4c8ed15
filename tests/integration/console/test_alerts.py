"""The alerts that ring: told by the streams, or by a Prometheus."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.console.pages.alerts import ANSWER_BYTES_MAX
from shared.contracts.kube import kinds
from shared.contracts.messages.spokes import SpokeState
from shared.runtime.web import WebServer
from tests.integration.console.questions import BOB, ROOT
from tests.integration.console_stage import Place, console
from tests.integration.explain_stage import NOON

ALERTS = "/api/v1/alerts"
Json = dict[str, Any]

RINGING = """{"status": "success", "data": {"alerts": [
  {"labels": {"alertname": "SluicegateWorkPilesUp", "durable": "d", "severity": "warning"},
   "annotations": {"summary": "d is 600 entries behind", "runbook_url": "https://runs.example/piles"},
   "state": "firing", "activeAt": "2026-01-01T11:00:00.123456789Z", "value": "6e+02"},
  {"labels": {"alertname": "SluicegateProcessDown", "instance": "quota-0", "severity": "critical"},
   "annotations": {"summary": "quota-0 does not answer"},
   "state": "firing", "activeAt": "2026-01-01T11:30:00Z", "value": "0e+00"},
  {"labels": {"alertname": "SluicegateSpokeLost"}, "annotations": {}, "state": "pending",
   "activeAt": "2026-01-01T11:59:00Z", "value": "0e+00"},
  {"labels": {"alertname": "DiskFull"}, "annotations": {}, "state": "firing",
   "activeAt": "2026-01-01T11:59:00Z", "value": "1e+00"}]}}"""
"""As Prometheus 2.42 answers: two alerts of ours ring, one of ours is not sure yet, one is another's."""


def names(body: Json) -> list[str]:
    return [each["name"] for each in body["items"]]


@asynccontextmanager
async def answering(
    body: str | bytes, *, status: int = 200, headers: dict[str, str] | None = None
) -> AsyncIterator[str]:
    """The address of a server that answers as Prometheus does."""

    async def answer(_request: Request) -> Response:
        return Response(body, status, headers, media_type="application/json")

    async def elsewhere(_request: Request) -> Response:
        return Response(RINGING, media_type="application/json")

    routes = [Route("/prom/api/v1/alerts", answer), Route("/elsewhere", elsewhere)]
    server = WebServer(
        Starlette(routes=routes),
        host="127.0.0.1",
        port=0,
        now=lambda: datetime.now(UTC),
        stop_seconds=1,
    )
    port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}/prom"
    finally:
        await server.stop()


async def test_streams_tell_which_alerts_ring(place: Place) -> None:
    await place.until(ALERTS, 200, lambda body: body["complete"] and not body["items"], token=ROOT)
    # A queue in which something waits since the new year, and nothing was ever admitted.
    await place.site.queue("small", cpu=1)
    await place.site.local("small", "small")
    await place.site.workload("large", cpu="2", age=1, queue="small")
    await place.site.workload("wrong", age=9, queue="small", inadmissible="it is wrong")
    still = ["SluicegateQueueStandsStill"]
    rings = await place.until(ALERTS, 200, lambda body: names(body) == still, token=ROOT)
    assert rings.body["items"][0] == {
        "name": "SluicegateQueueStandsStill",
        "severity": "warning",
        "summary": "Workloads wait in small, and none was admitted",
        "since": "2026-01-01T12:14:59Z",
        "runbook": "docs/runbooks/SluicegateQueueStandsStill.md",
    }
    await place.site.observe(kinds.MULTIKUEUE_CLUSTER, "east", {})
    lost = SpokeState(
        cluster="hub", spoke="east", active=False, reason="Lost", message="no heartbeat", at=NOON
    )
    await place.site.bus.publish(lost)
    both = [*still, "SluicegateSpokeLost"]
    rings = await place.until(ALERTS, 200, lambda body: names(body) == both, token=ROOT)
    assert rings.body["items"][1]["summary"] == "The spoke east is not connected: no heartbeat"
    await place.site.stop_quota()
    three = ["SluicegateNobodyDecides", *both]
    rings = await place.until(ALERTS, 200, lambda body: names(body) == three, token=ROOT)
    assert rings.body["items"][0]["severity"] == "critical"
    assert (await place.ask(ALERTS, BOB)).code == 403


async def test_prometheus_tells_which_alerts_ring() -> None:
    async with answering(RINGING) as url, console(people=False, prometheus=url) as place:
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        assert found.body["source"] == "prometheus"
        assert found.body["items"] == [
            {
                "name": "SluicegateProcessDown",
                "severity": "critical",
                "summary": "quota-0 does not answer",
                "since": "2026-01-01T11:30:00Z",
                "runbook": "",
            },
            {
                "name": "SluicegateWorkPilesUp",
                "severity": "warning",
                "summary": "d is 600 entries behind",
                "since": "2026-01-01T11:00:00.123456Z",
                "runbook": "https://runs.example/piles",
            },
        ]


async def test_streams_tell_what_they_can_while_prometheus_is_away() -> None:
    async with (
        answering("<html>a proxy</html>") as url,
        console(people=False, prometheus=url) as place,
    ):
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        says = f"Prometheus at {url} gave no list of alerts (status 200)"
        assert (found.body["source"], found.body["problem"]) == ("streams", says)
    async with console(people=False, prometheus=url) as place:
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        assert found.body["source"] == "streams"
        assert f"Prometheus at {url} does not answer" in found.body["problem"]


def firing(**alert: Any) -> str:
    usual = {"labels": {"alertname": "SluicegateX"}, "state": "firing"}
    return json.dumps({"data": {"alerts": [{**usual, **alert}]}})


UNUSABLE: dict[str, tuple[str | bytes, int, dict[str, str]]] = {
    "another place": ("", 302, {"Location": "/elsewhere"}),
    "lists in lists": ("[" * 1_000_000, 200, {}),
    "a time before all clocks": (firing(activeAt="0001-01-01T00:00:00+23:00"), 200, {}),
    "labels that are a list": (firing(labels=[1]), 200, {}),
    "a list of numbers": (json.dumps({"data": {"alerts": [1]}}), 200, {}),
    "a packed answer": (gzip.compress(RINGING.encode()), 200, {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_answer_of_any_kind_leaves_what_the_streams_tell(
    answer: tuple[str | bytes, int, dict[str, str]],
) -> None:
    body, status, headers = answer
    async with (
        answering(body, status=status, headers=headers) as url,
        console(people=False, prometheus=url) as place,
    ):
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        assert found.body["source"] == "streams"
        assert f"gave no list of alerts (status {status})" in found.body["problem"]


async def test_endless_answer_is_given_up() -> None:
    async with (
        answering(b" " * (ANSWER_BYTES_MAX + 1)) as url,
        console(people=False, prometheus=url) as place,
    ):
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        assert f"gave more than {ANSWER_BYTES_MAX} bytes" in found.body["problem"]


async def test_long_texts_of_alerts_are_cut() -> None:
    long = firing(annotations={"summary": "x" * 100_000, "runbook_url": "https://" + "x" * 100_000})
    async with answering(long) as url, console(people=False, prometheus=url) as place:
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        [alert] = found.body["items"]
        assert (len(alert["summary"]), len(alert["runbook"])) == (1000, 1000)


async def test_password_of_prometheus_is_in_no_answer() -> None:
    async with answering("no list") as url:
        secret = url.replace("//", "//reader:s3cr3t@")
        async with console(people=False, prometheus=secret) as place:
            found = await place.until(ALERTS, 200, lambda body: body["complete"])
            assert "gave no list of alerts" in found.body["problem"]
            assert "s3cr3t" not in found.body["problem"]
    async with console(people=False, prometheus=secret) as place:
        found = await place.until(ALERTS, 200, lambda body: body["complete"])
        assert "does not answer" in found.body["problem"]
        assert "s3cr3t" not in found.body["problem"]
