"""What the real server's deaths do to a bus: nothing acknowledged is lost, everybody resumes."""

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path

import nats
import pytest
from structlog.testing import capture_logs

from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.port import CaughtUp, Entry, FencedError, UnavailableError
from shared.contracts.messages.admissions import Admission, Term
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS, eventually, first_value
from tests.contract.bus.stage import AT, Reading, error_of, step_of, workload
from tests.contract.bus.test_order import decided, decision, term
from tests.integration.buses import make


async def test_killing_the_server_under_load_loses_no_acknowledged_message(
    server: EmbeddedServer,
) -> None:
    writer, reader = make(server, "writer"), make(server, "reader")
    handled: dict[str, int] = {}
    watched: dict[str, int] = {}

    async def handle(entry: Entry) -> None:
        name, step = step_of(entry)
        assert step >= handled.get(name, -1), "the handler was taken back in time"
        handled[name] = step

    reader.work("WORKLOADS", "worker", handle)
    await writer.start()
    await reader.start()

    async def watch() -> None:
        async for item in reader.watch("WORKLOADS"):
            if isinstance(item, Entry):
                name, step = step_of(item)
                assert step >= watched.get(name, -1), "the watch went back in time"
                watched[name] = step

    watching = asyncio.create_task(watch())
    acknowledged: dict[int, int] = {}
    results: list[asyncio.Future[int]] = []

    async def load() -> None:
        for step in range(12_000):
            results.append(writer.publish(workload(f"job-{step % 97}", step=step)))
            if step % 20 == 0:
                await asyncio.sleep(0.005)

    loading = asyncio.create_task(load())
    for _ in range(3):
        await asyncio.sleep(0.3)
        await server.kill()
        await server.start()
        await eventually(lambda: writer.connected and reader.connected)
    await loading
    await writer.flush()
    for step, result in enumerate(results):
        acknowledged[step] = result.result()

    last = {f"job-{step % 97}": step for step in range(12_000)}
    await eventually(lambda: handled == last and watched == last)
    replay = Reading(reader.replay("WORKLOADS"))
    stored = [step_of(entry)[1] for entry in (await replay.until_caught_up())[0]]
    assert stored == list(range(12_000)), "each once, in the order of the calls"
    assert list(acknowledged.values()) == list(range(1, 12_001))
    assert not watching.done()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await writer.stop()
    await reader.stop()


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.007, 0.022])
async def test_order_is_kept_after_the_leader_loses_its_server(
    server: EmbeddedServer, seconds: float
) -> None:
    """Fenced publishes over an outage: each is stored once, in order, and told so.

    The server weighs the fence before it recognises a duplicate, so what it stored without being able
    to say so is refused when it is sent again: the publisher looks whether it is there.
    """
    bus = make(server)
    await bus.start()
    assert await bus.publish(term(1), expect_last=0) == 1
    results = [bus.publish(decision(f"j{i}", 1, i), expect_last=1 + i) for i in range(300)]
    await asyncio.sleep(seconds)
    await server.kill()
    results += [bus.publish(decision(f"j{i}", 1, i), expect_last=1 + i) for i in range(300, 400)]
    await server.start()

    assert await asyncio.gather(*results) == list(range(2, 402))
    replay = Reading(bus.replay("ADMISSIONS", "sluice.admission.>"))
    stored = decided((await replay.until_caught_up())[0])
    assert stored == [(f"j{i}", 1) for i in range(400)]
    await bus.stop()


async def test_message_of_another_writer_in_an_outage_is_not_mistaken_for_own(
    server: EmbeddedServer,
) -> None:
    bus, other = make(server), make(server, "other")
    await bus.start()
    await other.start()
    assert await bus.publish(workload("first"), expect_last=0) == 1
    server.signal(signal.SIGSTOP)
    late = [bus.publish(workload(f"late-{i}", step=i), expect_last=1 + i) for i in range(3)]
    await server.kill()
    await server.start()
    await eventually(lambda: other.connected)
    theirs = [other.publish(workload(f"theirs-{i}")) for i in range(3)]
    await asyncio.wait([*late, *theirs])

    replay = Reading(bus.replay("WORKLOADS"))
    stored = [step_of(entry)[0] for entry in (await replay.until_caught_up())[0]]
    for number, result in enumerate(late):
        told = result.exception() is None
        assert told == (f"late-{number}" in stored), "told as it is"
        assert told or isinstance(result.exception(), FencedError)
    await bus.stop()
    await other.stop()


async def test_watch_resumes_after_an_outage_with_missed_messages(
    server: EmbeddedServer,
) -> None:
    bus, other = make(server), make(server, "other")
    await bus.start()
    await other.start()
    await other.publish(workload("a"))
    watch = Reading(bus.watch("WORKLOADS"))
    assert len((await watch.until_caught_up())[0]) == 1

    await server.kill()
    await server.start()
    await other.publish(workload("b"))

    entries = await watch.entries(1)
    assert [step_of(entry)[0] for entry in entries] == ["b"], "nothing twice, nothing lost"
    await bus.stop()
    await other.stop()


async def test_silent_server_is_noticed(server: EmbeddedServer) -> None:
    """A consumer that is gone without a word: deleted by an operator while nobody looks."""
    bus = make(server)
    await bus.start()
    watch = Reading(bus.watch("WORKLOADS"))
    assert await watch.next() == CaughtUp(sequence=0)

    nc = await nats.connect(server.url)
    jsm = nc.jsm()
    for consumer in await jsm.consumers_info("WORKLOADS_NOW"):
        await jsm.delete_consumer("WORKLOADS_NOW", consumer.name)
    await nc.close()
    await bus.publish(workload("a"))

    assert [step_of(entry)[0] for entry in await watch.entries(1)] == ["a"]
    await bus.stop()


async def test_bus_without_a_server_waits_and_logs_it(tmp_path: Path) -> None:
    server = await EmbeddedServer(tmp_path).start()
    await apply_at(server.url)
    await server.stop()
    bus = make(server)

    with capture_logs() as logs:
        starting = asyncio.create_task(bus.start())
        await eventually(lambda: logs)
        assert not starting.done()
        assert not bus.connected
        await server.start()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await starting

    complaints = [one for one in logs if one["event"] == "cannot reach NATS; trying again"]
    assert complaints
    assert complaints[0]["url"] == server.url
    assert await bus.publish(workload()) == 1
    await bus.stop()
    await server.kill()


async def test_bus_without_its_streams_logs_advice_and_waits() -> None:
    async with nats_server(streams=False) as server:
        bus = make(server)
        with capture_logs() as logs:
            starting = asyncio.create_task(bus.start())
            await eventually(lambda: any("problem" in one for one in logs))
            assert not starting.done()
            await apply_at(server.url)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await starting

        problems = [one.get("problem") for one in logs]
        assert "stream WORKLOADS is missing: run `sluice bus apply`" in problems
        await bus.stop()


async def test_publish_without_a_stream_fails_with_the_reason(server: EmbeddedServer) -> None:
    bus = make(server, retry_seconds=1.0)
    await bus.start()
    nc = await nats.connect(server.url)
    await nc.jsm().delete_stream("WORKLOADS")
    await nc.close()

    async def says_so() -> bool:
        """On a slow machine the retry time may end before the server has answered once."""
        error = await error_of(bus.publish(workload()))
        assert isinstance(error, UnavailableError)
        return "no stream takes it" in str(error)

    await eventually(says_so)
    await bus.stop()


async def test_publish_waits_during_an_outage_and_fails_after_its_timeout(
    server: EmbeddedServer,
) -> None:
    bus = make(server, retry_seconds=1.0)
    await bus.start()
    await server.kill()

    error = await error_of(bus.publish(workload()))

    assert isinstance(error, UnavailableError)
    await eventually(lambda: not bus.connected)
    await server.start()
    await eventually(lambda: bus.connected)
    await first_value(lambda: bus.publish(workload()))
    await bus.stop()


async def test_permanently_closed_connection_is_replaced(server: EmbeddedServer) -> None:
    """nats-py closes its connection for good when the server refuses a protocol line, as one above 4 KiB."""
    bus, handled = make(server), []

    async def handle(entry: Entry) -> None:
        handled.append(step_of(entry)[0])

    async def answer(data: bytes) -> bytes:
        return data

    bus.work("WORKLOADS", "worker", handle)
    await bus.respond("sluice.api.echo", answer)
    await bus.start()
    watch = Reading(bus.watch("WORKLOADS"))
    await watch.until_caught_up()

    await bus._connection.nc.publish("x" * 5000, b"")
    await eventually(lambda: not bus.connected)
    await eventually(lambda: bus.connected)

    await bus.publish(workload("a"))
    assert [step_of(entry)[0] for entry in await watch.entries(1)] == ["a"]
    await eventually(lambda: handled == ["a"])
    assert await bus.request("sluice.api.echo", b"hello", timeout_seconds=60) == b"hello"
    await bus.stop()


async def test_stop_does_not_wait_for_an_unreachable_server(server: EmbeddedServer) -> None:
    bus = make(server)

    async def handle(_entry: Entry) -> None:
        pass

    bus.work("WORKLOADS", "worker", handle)
    await bus.start()
    lease = await bus.lease("quota")
    await server.kill()
    await eventually(lambda: not bus.connected)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await bus.stop()
    assert not lease.held


async def test_bus_can_be_stopped_while_it_waits_for_its_server(tmp_path: Path) -> None:
    server = await EmbeddedServer(tmp_path).start()
    await server.stop()
    bus = make(server)

    starting = asyncio.create_task(bus.start())
    await asyncio.sleep(0.3)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await bus.stop()


async def test_denied_permission_fails_at_once_with_the_subject_in_the_error(
    tmp_path: Path,
) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(
        """
        jetstream { max_file_store: 60GB }
        max_payload: 4MB
        authorization { users = [
          { user: admin, password: a }
          { user: watcher, password: w, permissions: {
              publish: ["$JS.>", "sluice.observed.>", "_INBOX.>"], subscribe: ["_INBOX.>"] } }
        ] }
        """
    )
    server = await EmbeddedServer(tmp_path, config=config).start()
    report = await apply_at(server.url.replace("//", "//admin:a@"))
    assert report.ok, report
    bus = NatsBus(
        url=server.url.replace("//", "//watcher:w@"),
        instance="watcher",
        now=lambda: datetime.now(UTC),
        retry_seconds=4.0,
    )
    await bus.start()

    with capture_logs() as logs:
        error = await error_of(bus.publish(workload()))

    assert isinstance(error, UnavailableError)
    assert "permissions violation" in str(error).lower()
    assert [one["event"] for one in logs].count("NATS denies permission") >= 1
    await bus.stop()
    await server.kill()


async def test_wrong_password_is_logged_and_retried(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text("jetstream { }\nauthorization { user: u, password: right }\n")
    server = await EmbeddedServer(tmp_path, config=config).start()
    bus = NatsBus(
        url=server.url.replace("//", "//u:wrong@"), instance="x", now=lambda: datetime.now(UTC)
    )

    with capture_logs() as logs:
        starting = asyncio.create_task(bus.start())
        await eventually(lambda: bool(logs))
        await asyncio.sleep(1.5)

    assert not starting.done()
    assert "authorization violation" in str(logs[0]["error"]).lower()
    assert "wrong" not in str(logs), "no password in the logs"
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await bus.stop()
    await server.kill()


async def test_fenced_messages_of_a_stale_leader_are_never_stored(server: EmbeddedServer) -> None:
    """The successor writes up to just where a message on the way of the old leader predicts."""
    old, new = make(server, "old"), make(server, "new")
    await old.start()
    await new.start()

    def admission(name: str, term: int, number: int) -> Admission:
        return Admission(
            cluster="hub",
            namespace="team-a",
            name=name,
            uid="uid",
            state="admitted",
            term=term,
            number=number,
            decided_at=AT,
        )

    last = await old.publish(Term(term=1, holder="old", began_at=AT), expect_last=0)
    first = [old.publish(admission(f"a{i}", 1, i), expect_last=last + i) for i in range(100)]
    assert await asyncio.gather(*first) == list(range(2, 102)), "it pipelines"
    last = await new.publish(Term(term=2, holder="new", began_at=AT), expect_last=101)
    for number in range(3):
        last = await new.publish(admission(f"b{number}", 2, number), expect_last=last)

    stale = [old.publish(admission(f"c{i}", 1, 100 + i), expect_last=101 + i) for i in range(10)]

    assert {type(await error_of(one)) for one in stale} == {FencedError}
    assert await new.last_sequence("ADMISSIONS") == last
    last = await old.publish(Term(term=3, holder="old", began_at=AT), expect_last=last)
    assert await old.publish(admission("d", 3, 1), expect_last=last) == last + 1, (
        "a term of its own"
    )
    await old.stop()
    await new.stop()
