"""The parts of a pod template that matter here, read strictly: it may be anything at all. Pure.

A Job's is checked by the API server. Those of home-made kinds, and of Workloads that others create, are
kept as their authors wrote them: what cannot be read is told by its place, and harms nobody else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts.kube.kinds import Object

__all__ = [
    "ANYWHERE",
    "FieldError",
    "Placement",
    "mapping",
    "mappings",
    "placement",
    "spec_of",
    "template_spec",
]

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class FieldError(ValueError):
    """A field is not what it must be. The text begins with its path."""

    def __init__(self, path: str, problem: object) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which nodes the pods may run on."""

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Object] = field(default_factory=list)
    node_affinity: Object | None = None
    """What it requires."""


ANYWHERE: Final = Placement()


def spec_of(pod_set: Object) -> Object:
    """The pod spec of a pod set; an empty one where there is none that can be read."""
    template = pod_set.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    return spec if isinstance(spec, dict) else {}


def template_spec(pod_set: Object, path: str) -> tuple[Object, str]:
    """The same, and where it is. Raises `FieldError`."""
    template = mapping(pod_set.get("template"), f"{path}.template")
    path = f"{path}.template.spec"
    return mapping(template.get("spec"), path), path


def placement(spec: Object, path: str) -> Placement:
    """Selector, tolerations and affinity of a pod spec. Raises `FieldError`."""
    return Placement(
        node_selector=_texts(spec.get("nodeSelector"), f"{path}.nodeSelector"),
        tolerations=[one for _, one in mappings(spec.get("tolerations"), f"{path}.tolerations")],
        node_affinity=_required(spec, path),
    )


def _required(spec: Object, path: str) -> Object | None:
    for step in ("affinity", "nodeAffinity", _REQUIRED):
        path = f"{path}.{step}"
        spec = mapping(spec.get(step), path)
    for place, term in mappings(spec.get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms"):
        for where, rule in mappings(term.get("matchExpressions"), f"{place}.matchExpressions"):
            if rule.get("operator") not in _OPERATORS:
                said = f"must be one of {', '.join(_OPERATORS)}, got {rule.get('operator')!r}"
                raise FieldError(f"{where}.operator", said)
            _list(rule.get("values"), f"{where}.values")
    return spec or None


def mapping(value: Any, path: str) -> Object:
    """An object, an empty one for none. Raises `FieldError`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldError(path, f"must be an object, got {type(value).__name__}")
    return value


def mappings(value: Any, path: str) -> Iterator[tuple[str, Object]]:
    """The objects of a list, each with its path. Raises `FieldError`."""
    for index, item in enumerate(_list(value, path)):
        yield f"{path}[{index}]", mapping(item, f"{path}[{index}]")


def _list(value: Any, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(path, f"must be a list, got {type(value).__name__}")
    return value


def _texts(value: Any, path: str) -> dict[str, str]:
    found = mapping(value, path)
    for key, text in found.items():
        if not isinstance(text, str):
            raise FieldError(f"{path}[{key}]", f"must be a string, got {type(text).__name__}")
    return dict(found)
