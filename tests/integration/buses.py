"""Buses on a real server."""

from datetime import UTC, datetime
from typing import Any

from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus


def make(server: EmbeddedServer, instance: str = "one", **options: Any) -> NatsBus:
    return NatsBus(url=server.url, instance=instance, now=lambda: datetime.now(UTC), **options)
