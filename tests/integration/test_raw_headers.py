"""Headers of any bytes, as a writer may send them: nobody who looks at one message fails by them."""

import json

import nats
import pytest

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.lease import _look
from shared.bus.nats.tails.compare import still_has, view_end
from shared.bus.order.acknowledged import LastMessage
from shared.testing.waiting import PATIENCE_SECONDS
from tests.integration.buses import make

BLOCK = b"NATS/1.0\r\nx: \xff\xfe\r\nNats-Msg-Id: known\r\nce-id: event\r\n\r\n"


async def write(url: str, subject: str) -> int:
    """Store a message whose headers are no text; return its sequence."""
    client = await nats.connect(url)
    try:
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        sizes = f"{len(BLOCK)} {len(BLOCK) + 2}"
        command = f"HPUB {subject} {inbox} {sizes}\r\n".encode()
        await client._send_command(command + BLOCK + b"{}\r\n")
        await client.flush()
        return int(json.loads((await answers.next_msg(timeout=60)).data)["seq"])
    finally:
        await client.close()


@pytest.mark.parametrize("subject", ["sluice.workload.hub.a.b", "sluice.lease.any"])
async def test_message_with_headers_of_any_bytes_is_looked_at(
    server: EmbeddedServer, subject: str
) -> None:
    bus = make(server)
    await bus.start()
    try:
        sequence = await write(server.url, subject)
        if subject.startswith("sluice.lease."):
            seen = await _look(bus._connection, subject)
            assert (seen.sequence, seen.holder) == (sequence, "{}")
            return
        assert await bus._message_id_at("WORKLOADS", sequence) == "known"
        nc = bus._connection.nc
        info = await nc.jetstream(timeout=PATIENCE_SECONDS).stream_info("WORKLOADS")
        state = {"first_seq": info.state.first_seq, "last_seq": info.state.last_seq}
        seen_before = LastMessage(sequence=sequence, event_id="event")
        assert await still_has(nc, "WORKLOADS", {"state": state}, seen_before)
        assert (await view_end(nc, "WORKLOADS"))[1] in {0, sequence}
    finally:
        await bus.stop()
