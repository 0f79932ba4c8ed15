"""Creates a load through the API server: each object when it is due, with retries."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from services.ctl.demo.load import Arrival
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    KubeError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from shared.runtime.command import CommandError, Exit

CONCURRENT_MAX: Final = 8
RETRY_SECONDS: Final = 0.5
DENIED: Final = "denied the request"
"""Every API server words a webhook's denial this way, whatever the status."""

RETRY_TIMEOUT_SECONDS: Final = 60.0
"""How long a server, or its webhook, may fail to answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """One object that the API server stored or refused."""

    arrival: Arrival
    at: datetime
    """When the server had answered."""

    object: Body | None
    """As stored; None if it was refused."""

    refusal: str = ""

    @property
    def uid(self) -> str:
        """Of the object; empty if it was refused."""
        return "" if self.object is None else str(self.object["metadata"]["uid"])

    @property
    def name(self) -> str:
        """``<namespace>/<name>``."""
        metadata = (self.object or self.arrival.object)["metadata"]
        return f"{metadata.get('namespace')}/{metadata.get('name')}"


async def create_all(
    kube: Kube,
    arrivals: Sequence[Arrival],
    *,
    now: Callable[[], datetime],
    on_submitted: Callable[[Submitted], None],
) -> None:
    """Create every object when it is due, a few at a time. Raises `CommandError` if the server stays away."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    queue = iter(arrivals)

    async def work() -> None:
        for arrival in queue:
            await asyncio.sleep(max(0.0, began + arrival.after_seconds - loop.time()))
            try:
                stored = await create_with_retries(kube, arrival.kind, arrival.object)
            except RefusedError as error:
                on_submitted(Submitted(arrival=arrival, at=now(), object=None, refusal=str(error)))
            else:
                on_submitted(Submitted(arrival=arrival, at=now(), object=stored))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENT_MAX):
                group.create_task(work())
    except ExceptionGroup as errors:
        error = errors.exceptions[0]
        if not isinstance(error, KubeError):
            raise
        raise CommandError("the load", str(error), status=Exit.UNREACHABLE) from error


async def create_with_retries(kube: Kube, kind: Kind, obj: Body) -> Body:
    """Create `obj`; after a missing answer check whether it was created, and try again.

    Raises `RefusedError`, or `UnavailableError` after `RETRY_TIMEOUT_SECONDS`.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + RETRY_TIMEOUT_SECONDS
    metadata = obj["metadata"]
    tried = False
    while True:
        try:
            return await kube.create(kind, obj)
        except AlreadyExistsError:
            if not tried:
                raise
            return await kube.get(kind, metadata["namespace"], metadata["name"])
        except (ConflictError, ThrottledError, UnavailableError) as error:
            if DENIED in str(error):
                # A failed expression of the webhook is a 500, too: trying again would fail again.
                raise RefusedError(str(error), status=error.status) from error
            if loop.time() > until:
                raise
            tried = True
            await asyncio.sleep(RETRY_SECONDS)
