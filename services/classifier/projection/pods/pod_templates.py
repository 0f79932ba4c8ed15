"""Reads the parts of a pod template that matter here, strictly: a template may hold anything. Pure.

An API server validates the template of a Job. Custom kinds and the Workloads of others are stored as
their authors wrote them: an unreadable field is reported with its path and affects no other workload.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import REQUIRED_WHILE_SCHEDULING

_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


class FieldError(ValueError):
    """A field has a wrong value. The message starts with its path."""

    def __init__(self, path: str, problem: object) -> None:
        super().__init__(f"{path}: {problem}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The nodes on which pods may run."""

    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Object] = field(default_factory=list)
    node_affinity: Object | None = None
    """`requiredDuringSchedulingIgnoredDuringExecution` of the node affinity."""


ANY_NODE: Final = Placement()


def pod_spec_of(pod_set: Object) -> Object:
    """Return the pod spec of a pod set; an empty one if it cannot be read."""
    template = pod_set.get("template")
    spec = template.get("spec") if isinstance(template, dict) else None
    return spec if isinstance(spec, dict) else {}


def pod_spec_at(pod_set: Object, path: str) -> tuple[Object, str]:
    """Return the pod spec of the pod set at `path`, and its path. Raises `FieldError`."""
    template = mapping(pod_set.get("template"), f"{path}.template")
    path = f"{path}.template.spec"
    return mapping(template.get("spec"), path), path


def placement(spec: Object, path: str) -> Placement:
    """Return the selector, tolerations and affinity of a pod spec. Raises `FieldError`."""
    return Placement(
        node_selector=_strings(spec.get("nodeSelector"), f"{path}.nodeSelector"),
        tolerations=[one for _, one in mappings(spec.get("tolerations"), f"{path}.tolerations")],
        node_affinity=_required_affinity(spec, path),
    )


def _required_affinity(spec: Object, path: str) -> Object | None:
    for step in ("affinity", "nodeAffinity", REQUIRED_WHILE_SCHEDULING):
        path = f"{path}.{step}"
        spec = mapping(spec.get(step), path)
    for term_path, term in mappings(spec.get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms"):
        for rule_path, rule in mappings(
            term.get("matchExpressions"), f"{term_path}.matchExpressions"
        ):
            if rule.get("operator") not in _OPERATORS:
                problem = f"must be one of {', '.join(_OPERATORS)}, got {rule.get('operator')!r}"
                raise FieldError(f"{rule_path}.operator", problem)
            _list(rule.get("values"), f"{rule_path}.values")
    return spec or None


def mapping(value: Any, path: str) -> Object:
    """Return an object; an empty one for None. Raises `FieldError`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FieldError(path, f"must be an object, got {type(value).__name__}")
    return value


def mappings(value: Any, path: str) -> Iterator[tuple[str, Object]]:
    """Yield the path and the object of each item in a list. Raises `FieldError`."""
    for index, item in enumerate(_list(value, path)):
        yield f"{path}[{index}]", mapping(item, f"{path}[{index}]")


def _list(value: Any, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(path, f"must be a list, got {type(value).__name__}")
    return value


def _strings(value: Any, path: str) -> dict[str, str]:
    found = mapping(value, path)
    for key, text in found.items():
        if not isinstance(text, str):
            raise FieldError(f"{path}[{key}]", f"must be a string, got {type(text).__name__}")
    return dict(found)
