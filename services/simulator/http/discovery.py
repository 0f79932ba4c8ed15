"""What is served: groups, versions, resources, and as much OpenAPI as kubectl needs."""

from typing import Any, Final

from services.simulator.cluster.kinds import Kind, KindRegistry

__all__ = ["groups", "openapi_group_version", "openapi_index", "resources", "versions"]

VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
STATUS_VERBS: Final = ["get", "patch", "update"]


def versions() -> dict[str, Any]:
    """Answer ``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    }


def groups(kinds: KindRegistry) -> dict[str, Any]:
    """Answer ``/apis``."""
    listed = []
    for group, served in kinds.groups().items():
        if group:
            found = [{"groupVersion": f"{group}/{v}", "version": v} for v in served]
            listed.append({"name": group, "versions": found, "preferredVersion": found[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def _resource(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": VERBS,
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    return found


def resources(kinds: KindRegistry, group: str, version: str) -> dict[str, Any] | None:
    """Answer ``/apis/<group>/<version>``; ``None`` if it is not served."""
    served = [kind for kind in kinds if kind.group == group and version in kind.versions]
    if not served:
        return None
    listed = []
    for kind in served:
        listed.append(_resource(kind))
        if kind.has_status:
            listed.append(
                {
                    "name": f"{kind.plural}/status",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": kind.kind,
                    "verbs": STATUS_VERBS,
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": listed,
    }


def openapi_index(kinds: KindRegistry) -> dict[str, Any]:
    """Answer ``/openapi/v3``: where the document of each group version is."""
    paths = {}
    for group, served in kinds.groups().items():
        for version in served:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi_group_version(kinds: KindRegistry, group: str, version: str) -> dict[str, Any] | None:
    """Answer ``/openapi/v3/…``: the kinds, and that the server itself validates fields.

    kubectl looks for the ``fieldValidation`` parameter of the patch operation. Where it is there,
    kubectl leaves validation to the server and needs no schema.
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
        schemas[name] = {
            "type": "object",
            "x-kubernetes-group-version-kind": [gvk],
            "x-kubernetes-preserve-unknown-fields": True,
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Sluicegate simulator", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }
