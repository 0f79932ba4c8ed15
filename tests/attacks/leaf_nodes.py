"""Attacks at the port for leaf nodes, by whoever has a key of the hub (T3) or of a spoke (T2)."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import nats

from services.ctl.setup.permissions import retire_key, rotate_key
from shared.bus.admin.accounts import leaf_configuration
from shared.bus.embedded import EmbeddedServer
from shared.testing.waiting import eventually
from tests.attacks.attack import Act, Attack
from tests.attacks.ground import SPOKES, BreachError, Ground, ask, monitored

INFORMED = "$JS.API.STREAM.INFO.OBSERVED"
"""What every spoke may ask."""

REFUSED = "Authorization Violation"
"""What a leaf node's server logs when the hub does not take its key."""


@asynccontextmanager
async def leaf_node(ground: Ground, user: str) -> AsyncIterator[EmbeddedServer]:
    """A server that dials in with the present key of a user."""
    own = ground.folder / f"leaf-{uuid4().hex}"
    own.mkdir()
    config = own / "leaf.conf"
    url = f"tls://127.0.0.1:{ground.leaf_port}"
    config.write_text(leaf_configuration(url, ground.access(user)))
    server = await EmbeddedServer(own, config=config).start()
    try:
        yield server
    finally:
        await server.kill()


async def connected(ground: Ground) -> list[str]:
    """The accounts of the leaf nodes that are connected to the hub."""
    found = await monitored(ground.monitor_port, "leafz")
    return [one["account"] for one in found.get("leafs") or []]


def dialing(user: str) -> Act:
    """Use a user's key at the port for leaf nodes."""

    async def act(ground: Ground) -> None:
        async with leaf_node(ground, user) as leaf:

            async def decided() -> bool:
                return REFUSED in leaf.log or bool(await connected(ground))

            await eventually(decided, lambda: leaf.log)
            if accounts := await connected(ground):
                raise BreachError(f"a leaf node is in {accounts}")

    return act


def keeping(*, left_out: bool) -> Act:
    """Go on by a leaf node that was connected before its key was retired, or its spoke left out."""

    async def act(ground: Ground) -> None:
        await ground.spoke_is_served()
        async with leaf_node(ground, "spoke-east") as leaf:
            east = await nats.connect(leaf.url)
            ground.stack.push_async_callback(east.close)
            await eventually(lambda: ask(east, INFORMED))
            if not left_out:
                rotate_key(ground.folder / "keys", "spoke-east")
                await ground.permit()
                retire_key(ground.folder / "keys", "spoke-east")
            await ground.permit(("west",) if left_out else SPOKES)
            if not await connected(ground):
                return
            for subject in ("sluice.lease.watcher-east", "sluice.beat.east._._", INFORMED):
                if answer := await ask(east, subject):
                    raise BreachError(f"{subject} is answered: {answer}"[:200])

    async def and_back(ground: Ground) -> None:
        try:
            await act(ground)
        finally:
            await ground.permit()

    return and_back


def attacks() -> Iterator[Attack]:
    """The rows."""
    for user in ("quota", "dispatcher", "viewer", "bus", "operator"):
        way = f"key of {user} opens the port for leaf nodes"
        yield Attack(threat="T3", way=way, act=dialing(user))
    for left_out in (False, True):
        yield Attack(
            threat="T2",
            way=f"leaf node goes on {'without its spoke' if left_out else 'with a retired key'}",
            act=keeping(left_out=left_out),
        )
