"""A service whose durable consumer another release has declared, which it may not change."""

from pathlib import Path

from structlog.testing import capture_logs

from shared.bus.nats.jetstream_api import call
from shared.bus.nats.work.declared import durable_config, make_durable
from shared.bus.port import Entry
from shared.bus.stream_reader import open_stream_reader
from shared.testing.builders import workload
from shared.testing.deployed import bus_of
from shared.testing.waiting import eventually
from tests.integration.test_permissions import server

VIEW, DURABLE = "WORKLOADS_NOW", "patcher-hub-workload"
FILTERS = ("sluice.workload.hub.>",)


async def test_durable_with_the_ack_wait_of_another_release_is_used(tmp_path: Path) -> None:
    handled: list[str] = []

    async def handle(entry: Entry) -> None:
        handled.append(entry.subject)

    async with server(tmp_path) as (running, secured):
        async with open_stream_reader(running.url, access=secured.access("bus")) as operator:
            other = durable_config(DURABLE, FILTERS, ack_wait_seconds=30)
            await make_durable(operator.nc, VIEW, other)
            patcher = bus_of("patcher", running.url, secured.access("patcher"))
            patcher.work("WORKLOADS", DURABLE, handle, filters=FILTERS)
            classifier = bus_of("classifier", running.url, secured.access("classifier"))
            await classifier.start()
            with capture_logs() as said:
                await patcher.start()
            await classifier.publish(workload("a"))
            await eventually(lambda: handled)
            found = await call(operator.nc, f"CONSUMER.INFO.{VIEW}.{DURABLE}")
        assert found["config"]["ack_wait"] == 30 * 10**9
        assert [one for one in said if "ack wait of another release" in one["event"]]
        for one in (classifier, patcher):
            await one.stop()
