"""Reads Integration documents: YAML to model. Each problem names its line."""

from collections.abc import Mapping
from typing import Any, Final

import yaml
from pydantic import ValidationError

from shared.contracts.kube.kinds import (
    INTEGRATION,
    KUEUE_GROUP,
    OUR_GROUP,
    VISIBILITY_GROUP,
    Object,
)
from shared.contracts.kueue.integrations import Integration as Document
from shared.integrations.errors import IntegrationError, Problem

DOCUMENT_BYTES_MAX: Final = 256 * 1024
"""Far more than our own documents have, and little to parse."""

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NOT_IN_MODEL: Final = ("apiVersion", "kind", "status")

_NO_WORK: Final = frozenset(
    {
        *(KUEUE_GROUP, "config.kueue.x-k8s.io", VISIBILITY_GROUP, OUR_GROUP),
        *("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"),
        *("authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io"),
        *("certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io"),
        *("flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "metrics.k8s.io"),
        *("networking.k8s.io", "node.k8s.io", "policy", "resource.k8s.io", "scheduling.k8s.io"),
        *("storage.k8s.io", "storagemigration.k8s.io", "autoscaling", "autoscaling.x-k8s.io"),
    }
)
"""API groups whose objects configure admission, or the cluster: a webhook that is asked about them stands in
the way of everybody. Of the core group, only pods can wait."""

Path = tuple[str | int, ...]


class Lines:
    """The line of each field of a text."""

    def __init__(self, node: Any = None) -> None:
        self._node = node

    def of(self, path: Path) -> int | None:
        """The line of a field, counted from 1. For a missing field, the line of the closest parent."""
        node, line = self._node, None
        if node is None:
            return None
        line = node.start_mark.line + 1
        for step in path:
            found = _below(node, step)
            if found is None:
                break
            line, node = found
        return line

    def of_text(self, path: Path) -> tuple[int | None, bool]:
        """The line of the first character, and whether lines of the text are lines of the document."""
        node: Any = self._node
        for step in path:
            found = None if node is None else _below(node, step)
            node = None if found is None else found[1]
        if node is None:
            return self.of(path), False
        literal = node.style == "|"
        return node.start_mark.line + (2 if node.style in ("|", ">") else 1), literal


def _below(node: Any, step: str | int) -> tuple[int, Any] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    return None


def parse(text: str) -> list[tuple[Object, Lines]]:
    """All Integration documents of a YAML text. Raises `IntegrationError`, also for another kind."""
    if len(text.encode(errors="replace")) > DOCUMENT_BYTES_MAX:
        problem = Problem(field="", line=None, reason=f"larger than {DOCUMENT_BYTES_MAX} bytes")
        raise IntegrationError("", (problem,))
    found = []
    try:
        for node in yaml.compose_all(text, Loader=_LOADER):
            if node is None:
                continue
            found.append((_constructed(node), Lines(node)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        reason = error.problem or error.context or "is no YAML"
        raise IntegrationError("", (Problem(field="", line=line, reason=reason),)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = Problem(field="", line=None, reason=f"is no YAML: {error}")
        raise IntegrationError("", (problem,)) from error
    return [(_integration(obj, lines), lines) for obj, lines in found if obj is not None]


def _constructed(node: Any) -> Any:
    loader = _LOADER("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _integration(obj: Any, lines: Lines) -> Object:
    kind = (obj.get("apiVersion"), obj.get("kind")) if isinstance(obj, Mapping) else None
    if kind != (INTEGRATION.api_version, INTEGRATION.kind):
        what = f"{kind[1]} of {kind[0]}" if kind else type(obj).__name__
        reason = f"is no {INTEGRATION.kind} of {INTEGRATION.api_version}, but {what}"
        raise IntegrationError("", (Problem(field="", line=lines.of(()), reason=reason),))
    return dict(obj)


def read(obj: Object, lines: Lines) -> Document:
    """The model of a document. Raises `IntegrationError` with all problems."""
    metadata = obj.get("metadata")
    name = str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
    if not name:
        problem = Problem(field="metadata.name", line=lines.of(("metadata",)), reason="is missing")
        raise IntegrationError("", (problem,))
    try:
        given = {key: value for key, value in obj.items() if key not in _NOT_IN_MODEL}
        return Document.model_validate(given)
    except ValidationError as error:
        problems = tuple(
            Problem(
                field=field_path(found["loc"]), line=lines.of(found["loc"]), reason=_reason(found)
            )
            for found in error.errors()
        )
        raise IntegrationError(name, problems) from error


def runs_nothing(group: str, plural: str) -> bool:
    """True for a kind that can never wait."""
    return group in _NO_WORK or (group == "" and plural != "pods")


def field_path(path: Path) -> str:
    """`spec.podSets[0].count`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def _reason(found: Mapping[str, Any]) -> str:
    match found["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "is missing"
        case _:
            given = str(found["input"])[:60]
            return f"{str(found['msg'])[:1].lower()}{found['msg'][1:]}, got {given!r}"
