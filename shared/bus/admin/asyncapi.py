"""What a service reads and writes, as AsyncAPI 3, from the registrations that it runs with.

FastStream renders; here its broker is given what our bus knows and FastStream does not: which
messages a log carries, what is watched, and what is published by the pipelined publisher. Opens no
connection.
"""

import re
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, Final

import yaml
from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub
from faststream.specification import AsyncAPI

from shared.bus.filters import overlap
from shared.bus.nats.work.worker import Registration
from shared.bus.streams import VIEW_SUFFIX, load, view_of
from shared.contracts.messages import (
    admissions,
    checks,
    dispatches,
    hosts,
    observed,
    outcomes,
    queues,
    spokes,
    traces,
    workloads,
)
from shared.contracts.messages.base import Message

VERSION: Final = "1"
CONTRACTS: Final = (
    admissions,
    checks,
    dispatches,
    hosts,
    observed,
    outcomes,
    queues,
    spokes,
    traces,
    workloads,
)
_TEMPLATE: Final = re.compile(r"``(sluice\.[^`]+)``")
_NAMED: Final = re.compile(r"<([^<>]+)>")

Document = dict[str, Any]


def asyncapi(
    title: str,
    registrations: Iterable[Registration] = (),
    *,
    watches: Iterable[tuple[str, tuple[str, ...]]] = (),
    publishes: Iterable[type[Message]] = (),
    description: str = "",
) -> Document:
    """Describe one service: durable work, watches as (log, filters), and what it publishes."""
    broker = NatsBroker(logger=None)
    for registration in registrations:
        name = f"{view_of(registration.stream)}:{registration.durable}"
        about = (registration.handler.__doc__ or "Durable work.").strip().partition("\n")[0]
        _reads(broker, name, registration.stream, registration.filters, about)
    for log, filters in watches:
        _reads(broker, f"{view_of(log)}:watch", log, filters, "Lists, then watches.")
    for message in publishes:
        broker.publisher(
            _NAMED.sub(r"{\1}", template_of(message)),
            schema=message,
            title=f"{message.stream}:{message.__name__}",
            description=(message.__doc__ or "").strip().partition("\n")[0],
        )
    page = AsyncAPI(broker, title=title, version=VERSION, description=description or None)
    return _corrected(page.to_specification().to_jsonable())


def to_yaml(document: Document) -> str:
    """Render as a file that a person can read and `git diff` can compare."""
    ordered = {key: _ordered(value) for key, value in document.items()}
    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=100)


def _ordered(value: Any) -> Any:
    """The same document in the same order every time: FastStream lists subscribers in any order."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        items = [_ordered(item) for item in value]
        references = all(isinstance(item, dict) and item.keys() == {"$ref"} for item in items)
        return sorted(items, key=lambda item: str(item["$ref"])) if references else items
    return value


def messages_of(log: str, filters: tuple[str, ...] = ()) -> list[type[Message]]:
    """Every message of the contracts that `log` carries under `filters`."""
    return [
        message
        for message in all_messages()
        if message.stream == log
        and (not filters or any(overlap(pattern_of(message), one) for one in filters))
    ]


def template_of(message: type[Message]) -> str:
    """The subject of `message` with ``<name>`` for what varies, from its docstring."""
    documented = _TEMPLATE.search(message.subject.__doc__ or "")
    return documented.group(1) if documented else load().logs[message.stream].subjects[0]


def _reads(
    broker: NatsBroker, name: str, log: str, filters: tuple[str, ...], description: str
) -> None:
    kinds = messages_of(log, filters)
    assert kinds, f"no message of the contracts is on {log} under {filters}"

    async def handler(body: object) -> None: ...

    handler.__annotations__["body"] = reduce(or_, kinds)
    broker.subscriber(
        stream=JStream(log.removesuffix(VIEW_SUFFIX) + VIEW_SUFFIX, declare=False),
        config=ConsumerConfig(filter_subjects=list(filters or load().logs[log].subjects)),
        pull_sub=PullSub(),
        title=name,
        description=description,
    )(handler)


def all_messages() -> list[type[Message]]:
    """Every message of the contracts, in the order of modules and names."""
    return [
        thing
        for module in CONTRACTS
        for _, thing in sorted(vars(module).items())
        if isinstance(thing, type) and issubclass(thing, Message)
        # `ObservedHeader` is a way to read `Observed`; nobody publishes it.
        if thing.__module__ == module.__name__ and thing is not observed.ObservedHeader
    ]


def pattern_of(message: type[Message]) -> str:
    """The filter that every subject of `message` matches, and hardly anything else."""
    tokens = template_of(message).split(".")
    # A subject that ends in another subject has an open end.
    if tokens[-1].startswith("<original"):
        tokens[-1] = ">"
    return ".".join("*" if "<" in token else token for token in tokens)


def _corrected(document: Document) -> Document:
    # FastStream writes down its own habits: ours are the id of CloudEvents, and a trace context
    # that travels as a header.
    components = document.get("components", {})
    for message in components.get("messages", {}).values():
        message["correlationId"] = {"location": "$message.header#/ce-id"}
    for schema in components.get("schemas", {}).values():
        schema.get("properties", {}).pop("traceparent", None)
    return document
