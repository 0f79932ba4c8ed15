"""Views of a real server: purged, rebuilt and replayed."""

import asyncio
import signal

import nats
from structlog.testing import capture_logs

from shared.bus.admin.apply import apply
from shared.bus.embedded import EmbeddedServer
from shared.bus.port import CaughtUp, Entry
from shared.testing.waiting import eventually
from tests.contract.bus.stage import Reading, step_of, workload
from tests.integration.buses import make


async def test_view_is_readable_after_its_last_message_was_purged(
    server: EmbeddedServer,
) -> None:
    bus = make(server)
    await bus.start()
    await bus.publish(workload("a"))
    await bus.publish(workload("b"))
    await Reading(bus.watch("WORKLOADS")).until_caught_up()
    nc = await nats.connect(server.url)
    await nc.jsm().purge_stream("WORKLOADS_NOW", subject=workload("b").subject)
    await nc.close()

    watch = Reading(bus.watch("WORKLOADS"))
    assert isinstance(await watch.next(), Entry)
    assert await watch.next() == CaughtUp(sequence=2)
    await bus.stop()


async def test_last_message_of_a_view_is_purged_only_after_a_newer_one(
    server: EmbeddedServer,
) -> None:
    """It alone tells how far the view is; see `NatsBus.purge`."""
    bus = make(server)
    await bus.start()
    end = await bus.publish(workload("dead"))
    await Reading(bus.watch("WORKLOADS")).until_caught_up()

    async def listed() -> list[str]:
        entries, _ = await Reading(bus.watch("WORKLOADS")).until_caught_up()
        return [step_of(entry)[0] for entry in entries]

    await bus.purge("WORKLOADS", workload("dead").subject, up_to=end)
    assert await listed() == ["dead"]

    await bus.publish(workload("alive"))
    await listed()
    await bus.purge("WORKLOADS", workload("another").subject, up_to=end)
    assert await listed() == ["alive"]
    await bus.stop()


async def test_long_replay_needs_one_consumer(server: EmbeddedServer) -> None:
    bus = make(server)
    await bus.start()
    for step in range(5000):
        bus.publish(workload(step=step))
    await bus.flush()

    with capture_logs() as logs:
        entries, _ = await Reading(bus.replay("WORKLOADS")).until_caught_up()

    assert len(entries) == 5000
    assert not logs
    await bus.stop()


async def test_unsent_messages_do_not_overtake_lost_ones(
    server: EmbeddedServer,
) -> None:
    """nats-py keeps unsent commands over a reconnection and would send them first."""
    bus = make(server)
    await bus.start()
    padding = {"padding": "x" * 40_000}
    server.signal(signal.SIGSTOP)
    for step in range(350):
        bus.publish(workload(step=step).model_copy(update={"labels": padding}))
        if step % 100 == 0:
            await asyncio.sleep(0.1)
    assert bus._connection.nc.pending_data_size > 0, "more than the sockets hold"

    await server.kill()
    await server.start()
    await bus.flush()

    entries, _ = await Reading(bus.replay("WORKLOADS")).until_caught_up()
    assert [step_of(entry)[1] for entry in entries] == list(range(350))
    await bus.stop()


async def test_watch_never_goes_back_while_its_view_is_rebuilt(
    server: EmbeddedServer,
) -> None:
    bus = make(server)
    await bus.start()
    for step in range(300):
        bus.publish(workload(f"job-{step % 3}", step=step))
    await bus.flush()
    watch = Reading(bus.watch("WORKLOADS"))
    await watch.until_caught_up()

    nc = await nats.connect(server.url)
    assert (await apply(nc, rebuild=["WORKLOADS_NOW"])).ok
    await nc.close()
    await bus.publish(workload("job-9", step=1000))

    following = await watch.entries(1)
    assert [step_of(entry) for entry in following] == [("job-9", 1000)]
    await bus.stop()


async def test_work_continues_after_its_view_was_rebuilt(server: EmbeddedServer) -> None:
    """With the view go its durables, and nobody tells whoever pulls from them."""
    bus, handled = make(server), []

    async def handle(entry: Entry) -> None:
        handled.append(step_of(entry)[0])

    bus.work("WORKLOADS", "worker", handle)
    await bus.start()
    await bus.publish(workload("a"))
    await eventually(lambda: handled == ["a"])

    nc = await nats.connect(server.url)
    assert (await apply(nc, rebuild=["WORKLOADS_NOW"])).ok
    await nc.close()
    await bus.publish(workload("b"))

    await eventually(lambda: handled == ["a", "b"])
    await bus.stop()
