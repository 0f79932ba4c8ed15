"""Leaf nodes that are connected with a key that the server no longer accepts: finds and closes them.

A reload closes clients whose key is gone, and no leaf nodes. The account of a spoke's key is gone with the
key: such a leaf node can do nothing any more, and shows in an account that its server does not have.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nats.errors import NoRespondersError

if TYPE_CHECKING:
    from nats.aio.client import Client

LEAF_NODES: Final = "$SYS.REQ.SERVER.PING.LEAFZ"
ACCOUNTS: Final = "$SYS.REQ.SERVER.PING.ACCOUNTZ"
CLOSE: Final = "$SYS.REQ.SERVER.{server}.KICK"

QUIET_SECONDS: Final = 0.3
"""After this time without a further answer all servers have answered: each does so from memory."""

CLOSED_SECONDS: Final = 5.0

Json = dict[str, Any]


class NobodyAnswersError(Exception):
    """The server has no users of ours, or this user may not ask for leaf nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafNode:
    """One connection of a leaf node."""

    server: str
    """Id of the hub's server that has it."""

    connection: int
    account: str
    """Of which the server knows no more."""

    name: str
    """Of the leaf node's own server: its id, or what its owner calls it."""

    address: str

    def __str__(self) -> str:
        return f"leaf node {self.name} at {self.address}"


async def without_key(nc: "Client") -> list[LeafNode]:
    """Leaf nodes whose key is accepted no more, at all servers. Raises `NobodyAnswersError`."""
    # In this order: an account that comes in between is not missed.
    connected = [answer async for answer in _all_servers(nc, LEAF_NODES)]
    if connected and not any(answer.get("leafs") for answer in connected):
        return []
    accounts = {
        answer["server_id"]: set(answer.get("accounts") or ())
        async for answer in _all_servers(nc, ACCOUNTS)
    }
    if not accounts:
        raise NobodyAnswersError(f"nobody answers {LEAF_NODES} and {ACCOUNTS}")
    return [
        LeafNode(
            server=answer["server_id"],
            connection=one["id"],
            account=one["account"],
            name=one.get("name") or "without a name",
            address=f"{one['ip']}:{one['port']}",
        )
        for answer in connected
        for one in answer.get("leafs") or ()
        if one["account"] not in accounts.get(answer["server_id"], {one["account"]})
    ]


async def disconnect(nc: "Client", leaf: LeafNode) -> None:
    """Close this connection. One that is gone already is no error. Raises `NobodyAnswersError`."""
    subject, body = CLOSE.format(server=leaf.server), json.dumps({"cid": leaf.connection}).encode()
    try:
        await nc.request(subject, body, timeout=CLOSED_SECONDS)
    except (NoRespondersError, TimeoutError) as error:
        raise NobodyAnswersError(f"nobody answers {subject}") from error


async def _all_servers(nc: "Client", subject: str) -> AsyncIterator[Json]:
    """The answer of each server, until no further one comes; nothing if no server listens."""
    inbox = nc.new_inbox()
    answers = await nc.subscribe(inbox)
    try:
        await nc.publish(subject, reply=inbox)
        while True:
            try:
                message = await answers.next_msg(timeout=QUIET_SECONDS)
            except TimeoutError:
                return
            if not message.data:  # Nobody hears.
                return
            if (data := json.loads(message.data).get("data")) is not None:
                yield data
    finally:
        await answers.unsubscribe()
