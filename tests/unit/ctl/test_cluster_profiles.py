"""A ClusterProfile and the plugins of the Configuration become a kubeconfig."""

import json
from typing import Any

import pytest

from services.ctl.cluster_profiles import CLUSTER_INFO, ProfileError, kubeconfig_of
from shared.settings.cluster_profiles import AccessProvider

WRAPPER = ("wrap",)
CLUSTER = {"server": "https://west", "certificate-authority-data": "Y2E=", "proxy-url": "http://p"}


def provider(name: str, **plugin: Any) -> AccessProvider:
    given = {"apiVersion": "v1", "command": "plug", "interactiveMode": "Always", **plugin}
    return AccessProvider.model_validate({"name": name, "execConfig": given})


def profile(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "west"}, "status": fields}


def access(name: str, **cluster: Any) -> dict[str, Any]:
    return {"name": name, "cluster": {**CLUSTER, **cluster}}


def made(status: dict[str, Any], *providers: AccessProvider) -> tuple[dict[str, Any], ...]:
    """Cluster and plugin of the kubeconfig."""
    document = json.loads(kubeconfig_of(profile(**status), providers, wrapper=WRAPPER))
    return document["clusters"][0]["cluster"], document["users"][0]["user"]["exec"]


def test_address_comes_from_the_profile_and_the_command_from_the_configuration() -> None:
    plugin = provider("a", args=["x"], env=[{"name": "N", "value": "v"}])
    cluster, command = made({"accessProviders": [access("a", **{"tls-server-name": "n"})]}, plugin)
    assert cluster == CLUSTER
    assert command == {
        "apiVersion": "v1",
        "command": "plug",
        "args": ["x"],
        "env": [{"name": "N", "value": "v"}],
        "interactiveMode": "Never",
    }


def test_plugin_that_asks_for_cluster_info_gets_it() -> None:
    extensions = [
        {"name": "another", "extension": 1},
        {"name": "client.authentication.k8s.io/exec", "extension": {"k": 1}},
    ]
    _, command = made(
        {"accessProviders": [access("a", extensions=extensions)]},
        provider("a", args=["x"], provideClusterInfo=True),
    )
    assert (command["command"], command["args"]) == ("wrap", ["plug", "x"])
    (variable,) = command["env"]
    assert variable["name"] == CLUSTER_INFO
    assert json.loads(variable["value"]) == {**CLUSTER, "config": {"k": 1}}


ORDER = {
    "the Configuration chooses": (
        {"accessProviders": [access("b", server="https://b"), access("a", server="https://a")]},
        "https://a",
    ),
    "the older field counts alone": (
        {"credentialProviders": [access("b", server="https://old")]},
        "https://old",
    ),
    "and behind the newer one": (
        {
            "accessProviders": [access("a", server="https://new")],
            "credentialProviders": [access("a", server="https://old")],
        },
        "https://new",
    ),
}


@pytest.mark.parametrize(("status", "server"), ORDER.values(), ids=ORDER)
def test_first_plugin_that_the_profile_names_gives_the_credentials(
    status: dict[str, Any], server: str
) -> None:
    cluster, _ = made(status, provider("a"), provider("b"))
    assert cluster["server"] == server


NOWHERE: dict[str, tuple[dict[str, Any], str]] = {
    "no status": ({}, "its status has access by none, and multiKueue.clusterProfile"),
    "another plugin": ({"accessProviders": [access("c")]}, "access by c, and"),
    "no address": ({"accessProviders": [{"name": "a"}]}, "its status names no server for a"),
    "a status of another form": ({"accessProviders": ["a", 1], "credentialProviders": "a"}, "none"),
}


@pytest.mark.parametrize(("status", "says"), NOWHERE.values(), ids=NOWHERE)
def test_profile_that_leads_nowhere_is_refused_with_what_is_missing(
    status: dict[str, Any], says: str
) -> None:
    with pytest.raises(ProfileError) as refused:
        made(status, provider("a"))
    assert says in str(refused.value)
