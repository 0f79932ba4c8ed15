"""OpenTelemetry's semantic conventions, as its own package has them, and what spans break of them."""

import ast
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Final

from opentelemetry.semconv._incubating.attributes.cicd_attributes import (
    CicdPipelineActionNameValues,
    CicdPipelineResultValues,
    CicdPipelineRunStateValues,
)
from opentelemetry.semconv._incubating.attributes.messaging_attributes import (
    MessagingOperationTypeValues,
)

from shared.telemetry.spans import Kind, Span

__all__ = ["broken"]

OURS: Final = "sluicegate"
"""Namespace of attributes for which there is no convention."""

VALUES: Final[dict[str, type[Enum]]] = {
    "cicd.pipeline.action.name": CicdPipelineActionNameValues,
    "cicd.pipeline.result": CicdPipelineResultValues,
    "cicd.pipeline.run.state": CicdPipelineRunStateValues,
    "messaging.operation.type": MessagingOperationTypeValues,
}
"""Attributes of which only these values are known."""

KINDS: Final = {
    "create": {Kind.PRODUCER},
    "send": {Kind.PRODUCER, Kind.CLIENT},
    "receive": {Kind.CLIENT},
    "process": {Kind.CONSUMER},
    "settle": {Kind.CLIENT},
}
"""Operation type to the span kinds that it may have."""


def broken(span: Span) -> list[str]:
    """What it does not keep to; nothing where it does."""
    return [
        f"{span.name}: {complaint}"
        for rule in (_names, _values, _messaging, _pipeline, _http)
        for complaint in rule(span)
    ]


def _names(span: Span) -> Iterator[str]:
    for name in span.attributes:
        namespace = name.partition(".")[0]
        if namespace != OURS and name not in _attributes(namespace):
            yield f"no convention has the attribute {name}, or only a deprecated one"


@cache
def _attributes(namespace: str) -> frozenset[str]:
    """All of one namespace, the stable and those in development, that are not deprecated."""
    package = "opentelemetry.semconv"
    modules = (
        f"{package}.{part}attributes.{namespace}_attributes" for part in ("", "_incubating.")
    )
    return frozenset(name for module in modules for name in _valid(module))


def _valid(module: str) -> Iterator[str]:
    """The attributes of a module of the package: which are deprecated, only its docstrings tell."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return
    known = vars(import_module(module))
    for line, below in pairwise(ast.parse(Path(spec.origin).read_text()).body):
        match line, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                if not text.strip().startswith("Deprecated"):
                    yield str(known[name])
            case _:
                pass


def _values(span: Span) -> Iterator[str]:
    for name, values in VALUES.items():
        if name in span.attributes and span.attributes[name] not in {one.value for one in values}:
            yield f"{name} is {span.attributes[name]}"


def _messaging(span: Span) -> Iterator[str]:
    said = span.attributes
    if "messaging.system" not in said:
        if any(name.startswith("messaging.") for name in said):
            yield "messaging.system is required"
        return
    operation, template = (
        said.get("messaging.operation.name"),
        said.get("messaging.destination.template"),
    )
    if span.name != f"{operation} {template}":
        yield "a span of messaging is called {messaging.operation.name} {messaging.destination.template}"
    if span.kind not in KINDS[str(said.get("messaging.operation.type"))]:
        yield f"a {said.get('messaging.operation.type')} is no {span.kind}"
    subject = said.get("messaging.destination.name")
    if subject is not None and str(subject).count(".") != str(template).count("."):
        yield f"{subject} is not made from {template}"
    if said.get("messaging.batch.message_count", 1) != 1 and span.kind is not Kind.CLIENT:
        yield "only what is sent together has a count"


def _pipeline(span: Span) -> Iterator[str]:
    said = span.attributes
    if "cicd.pipeline.result" not in said:
        return
    if span.name != f"{said['cicd.pipeline.action.name']} {said['cicd.pipeline.name']}":
        yield "a run is called {cicd.pipeline.action.name} {cicd.pipeline.name}"
    if span.kind is not Kind.SERVER:
        yield f"a run is no {span.kind}"
    if (said["cicd.pipeline.result"] in {"failure", "error"}) != ("error.type" in said):
        yield "error.type is said of runs that failed, and of no other"


def _http(span: Span) -> Iterator[str]:
    said = span.attributes
    if "http.request.method" not in said:
        return
    if span.name != f"{said['http.request.method']} {said.get('http.route')}":
        yield "a request is called {http.request.method} {http.route}"
    for name in ("url.path", "url.scheme", "http.response.status_code"):
        if name not in said:
            yield f"{name} is required"
