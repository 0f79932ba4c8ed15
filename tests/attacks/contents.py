"""Attacks of a spoke by the contents of what it may write (T2): what readers at the hub make of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from uuid import uuid4

import yaml
from nats.errors import Error as NatsError

from services.classifier.cel import CelEngine
from services.classifier.projection.handlers import Term
from services.classifier.projection.policy import DEFAULT_POLICY
from services.classifier.rules import parse_rules
from services.classifier.webhook.mutation import mutate
from services.classifier.webhook.namespace_defaults import NamespaceDefaults
from shared.bus import headers as wire
from shared.bus.port import Bus
from shared.bus.streams import load
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import INTEGRATION, Kind, Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.integrations.registry import documents
from shared.testing.builders import observed_object
from shared.testing.waiting import first_value
from tests.attacks.attack import Attack
from tests.attacks.floods import answer
from tests.attacks.ground import BreachError, Ground

Json = dict[str, Any]

GADGET = Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget")
HOLDS_ON = "[1, 2, 3, 4].all(i, spec.items.all(j, j >= 0))"
"""True of every gadget, after much work."""


async def write_as_east(ground: Ground, *messages: Message) -> list[Json]:
    """Write through the gateway what a spoke may write; return what each is answered."""
    await ground.spoke_is_served()
    east = await ground.client("spoke-east")
    answers = []
    for message in messages:
        said = wire.build(
            message, message_id=uuid4().hex, source="watcher-east", now=datetime.now(UTC)
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
    async with running(partial(project, bus)):
        await write_as_east(
            ground,
            observed_object(INTEGRATION, as_body(integration_of_gadgets()), cluster="east"),
            observed_object(GADGET, as_body(gadget), cluster="east"),
            Synced(cluster="east", epoch="1", kinds=[], at=datetime.now(UTC)),
        )
        await asyncio.sleep(1)


async def project(bus: Bus) -> None:
    """One term of the projection, without a lease: the judge would see that."""
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


LARGE: Final = {
    "sluice.beat.east._._": 65 << 10,
    "sluice.seal.east._._": 65 << 10,
    "sluice.copy.east.a.w": (2 << 20) + 1,
    "sluice.outcome.east.a.w": (1 << 20) + 1,
    "sluice.observed.east._.n.namespaces_": (512 << 10) + 1,
    "sluice.observed.east._.q.clusterqueues_kueue_x-k8s_io": (2 << 20) + 1,
}
"""Subjects to more bytes than an honest message about them has."""


async def writes_what_no_server_has(ground: Ground) -> None:
    """Write messages that are larger than any honest one of their sort."""
    await ground.spoke_is_served()
    east = await ground.client("spoke-east")
    for subject, size in LARGE.items():
        told = await answer(east, subject, b"x" * size)
        if "bytes about one" not in told.get("error", {}).get("description", ""):
            raise BreachError(f"{subject}: {size} bytes are taken: {told}")


async def configures_without_end(ground: Ground) -> None:
    """Show ever new ClusterQueues, of which readers at the hub hold each."""
    await ground.spoke_is_served()
    east, most = await ground.client("spoke-east"), load().configuration_bytes
    size, taken, told = 1 << 20, 0, {}
    subject = "sluice.observed.east._.q{}.clusterqueues_kueue_x-k8s_io"
    for number in range(2 * most // size):
        told = await answer(east, subject.format(number), b"x" * size)
        taken += size if "error" not in told else 0
    if "raise spoke_configuration_mib of OBSERVED" not in told["error"]["description"]:
        raise BreachError(f"does not say what to do: {told}")
    if not most - 2 * size < taken <= most:
        raise BreachError(f"{taken} bytes of objects that configure its cluster are taken")
    west = await ground.client("spoke-west")
    for client, other, much in (
        (west, "sluice.observed.west._.q.clusterqueues_kueue_x-k8s_io", size),
        (east, "sluice.observed.east.a.j.jobs_batch", size),
        (east, subject.format(0), size),
        (east, subject.format(1), 10),
    ):
        if "error" in (told := await answer(client, other, b"x" * much)):
            raise BreachError(f"{other} has no room: {told}")


async def has_the_webhook_write_tasks(_ground: Ground) -> None:
    """Forge what the hub's watcher saw: the document for PipelineRuns, with one more patch."""
    [text] = [text for name, text in documents() if name == "pipelineruns.yaml"]
    document = yaml.safe_load(text)
    task = {"name": "evil", "taskSpec": {"steps": [{"name": "s", "image": "evil"}]}}
    more = {"op": "add", "path": "/spec/pipelineSpec/finally", "value": [task]}
    document["spec"]["hold"].append(more)
    document["metadata"] = {"name": "x", "uid": "forged", "resourceVersion": "1"}
    webhook = NamespaceDefaults(cluster="hub")
    webhook.observe(observed_object(INTEGRATION, document))
    run: Json = {
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {"name": "r", "namespace": "a", "labels": {QUEUE: "main"}},
        "spec": {"pipelineSpec": {"tasks": [{"name": "build"}]}},
    }  # fmt: skip
    rules = parse_rules("queueName: main\n", CelEngine())
    made = mutate(run, rules, namespace="a", context=webhook.context("a")).object
    if made["spec"] != {**run["spec"], "status": "PipelineRunPending"}:
        raise BreachError(f"a run became {made['spec']}")


def attacks() -> Iterator[Attack]:
    """The rows."""
    yield Attack(
        threat="T2",
        way="spoke has the hub evaluate a document of its own",
        act=has_its_document_evaluated,
        own=("sluice.observed.east.>",),
    )
    yield Attack(
        threat="T2",
        way="spoke writes messages that are larger than any object",
        act=writes_what_no_server_has,
    )
    yield Attack(
        threat="T2",
        way="spoke has readers hold ever more objects that configure its cluster",
        act=configures_without_end,
        own=("sluice.observed.east.>", "sluice.observed.west._.q.>"),
    )
    yield Attack(
        threat="T3",
        way="watcher has the webhook add tasks to runs by a document",
        act=has_the_webhook_write_tasks,
    )
