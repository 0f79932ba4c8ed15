"""What quota knows of the room in the logs, and when it says that this has changed."""

import asyncio

from services.quota.log_room import KNOWN_SECONDS, LogRoom
from shared.testing.world.loop import run_virtual
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer


def test_room_denied_for_an_old_answer_is_reported_with_the_next_answer() -> None:
    """Time alone makes an answer too old, between two looks: who asks then stops admission."""

    async def story() -> None:
        bus = MemoryBus(MemoryServer(), instance="quota")
        await bus.start()
        changes: list[str] = []
        room = LogRoom(
            bus=bus,
            last_stored=lambda: 0,
            check_end=lambda _end, _stored: None,
            on_change=lambda: changes.append(room.why_none()),
        )
        assert room.why_none().startswith("NATS does not say how full")
        await room.look()
        assert changes.pop() == ""
        await asyncio.sleep(KNOWN_SECONDS - 1)
        assert room.why_none() == ""
        await room.look()
        assert changes == [], "nobody was told anything else since"

        await asyncio.sleep(KNOWN_SECONDS + 1)
        assert room.why_none().startswith("NATS does not say how full")
        await room.look()

        assert changes == [""]
        await bus.stop()

    run_virtual(story())
