"""Makes kubeconfigs of ClusterProfiles: address of a cluster from the object, credentials from a plugin.

As Kueue does (kubernetes-sigs/cluster-inventory-api@8375ac2 pkg/access/config.go): the first plugin of the
Configuration that the profile's status names gives the credentials.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shared.contracts.kube.bodies import map_at, status_of
from shared.contracts.kube.names import EXEC_EXTENSION
from shared.settings.cluster_profiles import AccessProvider

CLUSTER_INFO: Final = "SLUICE_EXEC_CLUSTER"
"""Variable with what a plugin is told of the cluster. The library for kubeconfigs tells none."""

PLUGIN_WRAPPER: Final = (sys.executable, "-m", "services.ctl.cluster_profiles")
"""A command that tells the plugin behind it of its cluster."""

_EXEC_INFO: Final = "KUBERNETES_EXEC_INFO"
_NAME: Final = "spoke"
_CLUSTER_FIELDS: Final = ("server", "certificate-authority-data", "proxy-url")

Json = dict[str, Any]


class ProfileError(ValueError):
    """The ClusterProfile leads to no cluster. The text says what is missing."""


def kubeconfig_of(
    profile: Mapping[str, Any], providers: Sequence[AccessProvider], *, wrapper: Sequence[str]
) -> str:
    """The kubeconfig of a ClusterProfile, as JSON. Raises `ProfileError`.

    `wrapper`: runs the plugin whose command is behind it, and tells it of its cluster.
    """
    described = _described(profile)
    for provider in providers:
        if (cluster := described.get(provider.name)) is not None:
            return _kubeconfig(cluster, provider, wrapper)
    configured = ", ".join(one.name for one in providers) or "none"
    offered = ", ".join(sorted(described)) or "none"
    raise ProfileError(
        f"its status has access by {offered}, and multiKueue.clusterProfile.accessProviders of the "
        f"Configuration by {configured}"
    )


def _described(profile: Mapping[str, Any]) -> dict[str, Json]:
    """Provider to the cluster that the profile gives for it. The newer field counts before the older."""
    status = status_of(profile)
    found: dict[str, Json] = {}
    for field in ("credentialProviders", "accessProviders"):
        for one in _objects(status.get(field)):
            found[str(one.get("name"))] = map_at(one, "cluster")
    return found


def _objects(value: object) -> list[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _kubeconfig(cluster: Json, provider: AccessProvider, wrapper: Sequence[str]) -> str:
    if not cluster.get("server"):
        raise ProfileError(f"its status names no server for {provider.name}")
    reached = {field: cluster[field] for field in _CLUSTER_FIELDS if cluster.get(field)}
    plugin = provider.exec_config
    command = [plugin.command, *(plugin.args or ())]
    variables = {one.name: one.value for one in plugin.env or ()}
    if plugin.provide_cluster_info:
        command = [*wrapper, *command]
        variables[CLUSTER_INFO] = json.dumps(reached | _config(cluster))
    user = {
        "apiVersion": plugin.api_version,
        "command": command[0],
        "args": command[1:],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "interactiveMode": "Never",
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": _NAME,
        "clusters": [{"name": _NAME, "cluster": reached}],
        "users": [{"name": _NAME, "user": {"exec": user}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
    }
    return json.dumps(document, indent=2)


def _config(cluster: Json) -> Json:
    for one in _objects(cluster.get("extensions")):
        if one.get("name") == EXEC_EXTENSION:
            return {"config": one.get("extension")}
    return {}


def main(command: Sequence[str]) -> None:
    """Become the plugin, and tell it of its cluster."""
    exec_info = json.loads(os.environ.get(_EXEC_INFO) or "{}")
    exec_info.setdefault("spec", {})["cluster"] = json.loads(os.environ[CLUSTER_INFO])
    os.environ[_EXEC_INFO] = json.dumps(exec_info)
    os.execvp(command[0], list(command))  # noqa: S606 - the operator's Configuration names it


if __name__ == "__main__":
    main(sys.argv[1:])
