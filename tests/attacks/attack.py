"""A row of the table: a threat, a way, and what to do."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from shared.testing.waiting import PATIENCE_SECONDS
from tests.attacks import field
from tests.attacks.forgery import Forgery
from tests.attacks.ground import BreachError, Ground
from tests.attacks.place import Place

Act = Callable[[Ground], Awaitable[None]]
Forge = Callable[[Forgery], Awaitable[None]]


async def _nothing(_ground: Ground) -> None:
    """Do nothing on the deployed bus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """It holds if `act` raises no `BreachError` and the judge finds nothing changed."""

    threat: str
    """T1: a tenant; T2: a spoke; T3: a service or a user of the hub; T4: whoever reaches the port."""

    way: str
    act: Act = _nothing
    forge: Forge | None = None
    """What to do on an open bus beside simulated clusters, where NATS refuses nothing: receivers must."""

    raid: field.Act | None = None
    """What a tenant does in a cluster with all services, in virtual time."""

    pods_wait: bool = False
    """Whether pods wait for quota in that cluster."""

    siege: str | None = None
    """Words of what a tenant does on a real API server, beside all other rows of that kind."""

    own: tuple[str, ...] = ()
    """Subjects that this user may write to: messages there are no harm."""

    def __str__(self) -> str:
        return f"{self.threat} {self.way}"


async def attempt(attack: Attack, place: Place) -> str | None:
    """What the attack got; None if it holds."""
    if attack.raid is not None:
        for refuses_starts in (True, False):
            # A world has an event loop of its own.
            raid = partial(field.raid, attack.raid, pods_wait=attack.pods_wait)
            got = await asyncio.to_thread(raid, refuses_starts=refuses_starts)
            if got is not None:
                return f"{got} (webhook {'refuses' if refuses_starts else 'lets pass'} starts)"
        return None
    if attack.siege is not None:
        return (await place.siege()).get(attack.siege)
    try:
        if attack.forge is not None:
            async with place.forgery() as stage, asyncio.timeout(PATIENCE_SECONDS):
                await attack.forge(stage)
            return None
        async with place.ground() as ground, asyncio.timeout(PATIENCE_SECONDS):
            await attack.act(ground)
            await ground.judge(attack.own)
    except BreachError as breach:
        return str(breach)
    return None
