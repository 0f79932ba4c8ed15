"""From one served version of a kind to another. Objects are kept in the storage version."""

from collections.abc import Mapping
from typing import Any, Final

from services.simulator.cluster.kinds import Kind, Obj

__all__ = ["convert"]

_Renames = Mapping[tuple[str, ...], str]

V1BETA1_TO_V1BETA2: Final[Mapping[str, _Renames]] = {
    "ClusterQueue": {("spec", "cohort"): "cohortName"},
    "Cohort": {("spec", "parent"): "parentName"},
}
"""Kueue's fields that v1beta2 calls otherwise: path in v1beta1, and the last part's new name."""


def convert(kind: Kind, obj: Obj, version: str) -> Obj:
    """Return `obj` as `version` of its kind. The object itself is returned if it already is."""
    wanted = kind.api_version(version)
    current = str(obj["apiVersion"])
    if current == wanted:
        return obj
    converted: Obj = {**obj, "apiVersion": wanted}
    if kind.group == "kueue.x-k8s.io":
        for path, new in V1BETA1_TO_V1BETA2.get(kind.kind, {}).items():
            if version == "v1beta2":
                converted = _renamed(converted, path[:-1], path[-1], new)
            elif version == "v1beta1":
                converted = _renamed(converted, path[:-1], new, path[-1])
    return converted


def _renamed(value: Any, path: tuple[str, ...], old: str, new: str) -> Any:
    if not isinstance(value, dict):
        return value
    if path:
        if path[0] not in value:
            return value
        return {**value, path[0]: _renamed(value[path[0]], path[1:], old, new)}
    if old not in value:
        return value
    return {(new if key == old else key): entry for key, entry in value.items() if key != new}
