"""The alerts that ring: told by the streams, or by a Prometheus."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
async def answering(body: str) -> AsyncIterator[str]:
    """The address of a server that answers as Prometheus does."""

    async def answer(_request: Request) -> Response:
        return Response(body, media_type="application/json")

    server = WebServer(
        Starlette(routes=[Route("/prom/api/v1/alerts", answer)]),
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
