"""The part of OpenAPI that kubectl needs: server-side field validation, and `kubectl explain`."""

from typing import Any, Final

from services.simulator.cluster.errors import bad_request
from services.simulator.cluster.kinds.registry import Kind, KindRegistry, Obj
from services.simulator.cluster.unknown_fields import BUILT_IN, unknown_fields
from shared.contracts.kueue.definitions import shipped_schema

_TYPE_META: Final = {
    "apiVersion": "Group and version of this object's schema.",
    "kind": "What this object is.",
}
EMPTY_V2: Final = {
    "swagger": "2.0",
    "info": {"title": "Sluicegate simulator", "version": "v1"},
    "paths": {},
    "definitions": {},
}
"""The document of ``/openapi/v2``: whoever wants definitions reads version 3."""

_OPEN: Final = {"x-kubernetes-preserve-unknown-fields": True}
_VALIDATIONS: Final = ("", "Ignore", "Warn", "Strict")
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


def field_warnings(kind: Kind, version: str, body: Any, validation: str) -> tuple[str, ...]:
    """Warnings about unknown fields of an object or a patch.

    `validation`: the parameter ``fieldValidation``, by default ``Warn``. Raises 400 for ``Strict``.
    """
    if validation not in _VALIDATIONS:
        raise bad_request(f"fieldValidation: Unsupported value: {validation!r}")
    if validation == "Ignore" or not isinstance(body, dict):
        return ()
    schema = BUILT_IN.get(kind.resource) or _schema(kind, version)
    schema = {**schema, "properties": (schema.get("properties") or {}) | {"metadata": _OPEN}}
    found = tuple(f'unknown field "{path}"' for path in unknown_fields(schema, body))
    if found and validation == "Strict":
        raise bad_request(
            f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: '
            f"strict decoding error: {', '.join(found)}"
        )
    return found


def warning_header(text: str) -> bytes:
    """The value of a ``Warning`` header, as kubectl reads it."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode()


def _schema(kind: Kind, version: str) -> Obj:
    """Return the schema of the kind's definition, or a plain object without one."""
    found = kind.schemas.get(version) or shipped_schema(kind.group, kind.plural, version)
    if found is None:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    meta = {name: {"type": "string", "description": text} for name, text in _TYPE_META.items()}
    properties = meta | {"metadata": _BY_SERVER} | (found.get("properties") or {})
    return {**found, "properties": properties}
