"""The part of OpenAPI that kubectl needs: server-side field validation, and `kubectl explain`."""

from typing import Any, Final

from services.simulator.cluster.kinds.registry import Kind, KindRegistry, Obj
from shared.contracts.kueue.definitions import ALL_DEFINITIONS, crd

_TYPE_META: Final = {
    "apiVersion": "Group and version of this object's schema.",
    "kind": "What this object is.",
}
_BY_SERVER: Final = {
    "type": "object",
    "description": "Name, namespace, labels and what the server keeps of an object.",
}


def openapi_index(kinds: KindRegistry) -> dict[str, Any]:
    """Answer ``/openapi/v3``: the path of each group version's document."""
    paths = {}
    for group, served in kinds.groups().items():
        for version in served:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi_group_version(kinds: KindRegistry, group: str, version: str) -> dict[str, Any] | None:
    """Answer ``/openapi/v3/…``: the schemas of the kinds, and the parameter ``fieldValidation``.

    With the ``fieldValidation`` parameter of the patch operation, kubectl leaves validation to the
    server and needs no schema.
    """
    served = [kind for kind in kinds if kind.group == group and version in kind.versions]
    if not served:
        return None
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for kind in served:
        gvk = {"group": group, "version": version, "kind": kind.kind}
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        inside = "/namespaces/{namespace}" if kind.namespaced else ""
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        operation = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-group-version-kind": gvk,
        }
        paths[f"{prefix}{inside}/{kind.plural}/{{name}}"] = {"patch": operation}
        name = ".".join([*reversed(group.split(".")), version, kind.kind]).lstrip(".")
        schemas[name] = _schema(kind, version) | {"x-kubernetes-group-version-kind": [gvk]}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Sluicegate simulator", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema(kind: Kind, version: str) -> Obj:
    """Return the schema of the kind's definition, or a plain object without one."""
    found = kind.schemas.get(version) or _shipped(kind, version)
    if found is None:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    meta = {name: {"type": "string", "description": text} for name, text in _TYPE_META.items()}
    properties = meta | {"metadata": _BY_SERVER} | (found.get("properties") or {})
    return {**found, "properties": properties}


def _shipped(kind: Kind, version: str) -> Obj | None:
    for definition in ALL_DEFINITIONS:
        if (definition.kind.group, definition.kind.plural) == (kind.group, kind.plural):
            served = crd(definition, webhook=True)["spec"]["versions"]
            for one in served:
                if one["name"] == version:
                    schema: Obj = one["schema"]["openAPIV3Schema"]
                    return schema
    return None
