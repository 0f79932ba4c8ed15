"""Discovery: the served groups, versions and resources."""

from typing import Any, Final

from services.simulator.cluster.kinds.registry import Kind, KindRegistry

VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
STATUS_VERBS: Final = ["get", "patch", "update"]
VERSION: Final = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0-sluicegate",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "simulator",
}


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
