"""What quota knows of the room in the logs, and when it says that this has changed."""

import asyncio

import pytest

from services.quota.log_room import LogRoom
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer


async def test_room_that_was_denied_while_nobody_answered_is_told_with_the_next_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time alone makes an answer too old, between two looks: who asks then stops admission."""
    monkeypatch.setattr("services.quota.log_room.KNOWN_SECONDS", 0.05)
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
    await room.look()
    assert changes == [], "nobody was told anything else since"

    await asyncio.sleep(0.06)
    assert room.why_none().startswith("NATS does not say how full")
    await room.look()

    assert changes == [""]
    await bus.stop()
