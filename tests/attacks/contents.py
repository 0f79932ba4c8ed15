"""Attacks of a spoke by the contents of what it may write (T2): what readers at the hub make of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from nats.errors import Error as NatsError

from services.classifier.projection.handlers import Term
from services.classifier.projection.policy import DEFAULT_POLICY
from shared.bus import headers as wire
from shared.bus.port import Bus
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import INTEGRATION, Kind, Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.testing.builders import observed_object
from shared.testing.waiting import first_value
from tests.attacks.attack import Attack
from tests.attacks.floods import answer
from tests.attacks.ground import Ground

Json = dict[str, Any]

GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")
HOLDS_ON = "[1, 2, 3, 4].all(i, spec.items.all(j, j >= 0))"
"""True of every gadget, after much work."""


async def write_as_east(ground: Ground, *messages: Message) -> list[Json]:
    """Write through the gateway what a spoke may write; return what each is answered."""
    await ground.spoke_is_served()
    east = await ground.client("spoke-east")
    answers = []
    for number, message in enumerate(messages):
        said = wire.build(
            message, message_id=f"e-{number}", source="watcher-east", now=datetime.now(UTC)
        )

        async def write(message: Message = message, said: dict[str, str] = said) -> Json | None:
            try:  # The gateway may not listen yet.
                return await answer(east, message.subject, message.encode(), headers=said)
            except NatsError:
                return None

        answers.append(await first_value(write))
    return answers


def integration_of_gadgets() -> Object:
    """A document of a kind that the hub does not know."""
    return {
        "metadata": {"name": "gadgets", "uid": "i", "resourceVersion": "1"},
        "spec": {
            "kind": {"group": GADGET.group, "version": "v1", "kind": "Gadget", "plural": "gadgets"},
            "active": HOLDS_ON,
            "podSets": [{"template": "spec.template", "count": "1"}],
        },
    }


async def has_its_document_evaluated(ground: Ground) -> None:
    """Describe a kind, and show an object of it, on which the hub would evaluate the description."""
    gadget = {
        "metadata": {
            "name": "one", "namespace": "a", "uid": "g", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {QUEUE: "main"},
        },
        "spec": {"items": list(range(1000))},
    }  # fmt: skip
    bus = await ground.bus("classifier")
    async with running(partial(_project, bus)):
        await write_as_east(
            ground,
            observed_object(INTEGRATION, as_body(integration_of_gadgets()), cluster="east"),
            observed_object(GADGET, as_body(gadget), cluster="east"),
            Synced(cluster="east", epoch="1", kinds=[], at=datetime.now(UTC)),
        )
        await asyncio.sleep(1)


async def _project(bus: Bus) -> None:
    """One term, without a lease: the judge would see that."""
    async with asyncio.TaskGroup() as group:
        await Term(bus, "hub", group, DEFAULT_POLICY).run()


@asynccontextmanager
async def running(run: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Run a reader at the hub meanwhile."""
    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T2",
        way="spoke has the hub evaluate a document of its own",
        act=has_its_document_evaluated,
        own=("sluice.observed.east.>",),
    )
