"""A bus that connects as a deployed user, with the rights of `deploy/nats/permissions.yaml`."""

from collections.abc import Callable
from datetime import datetime

from shared.bus.admin.permissions import consumers_of, reads_of, renews_of, writes_of
from shared.bus.nats.bus import NatsBus
from shared.runtime.service import utc_now
from shared.settings.access import Access


def bus_of(
    user: str, url: str, access: Access, *, now: Callable[[], datetime] = utc_now
) -> NatsBus:
    """The bus of a service with its own user, not started yet."""
    return NatsBus(
        url=url,
        instance=f"{user}-1",
        service=user,
        now=now,
        access=access,
        reads=reads_of(user),
        writes=writes_of(user, "hub"),
        consumers=consumers_of(user),
        renews=renews_of(user),
    )
