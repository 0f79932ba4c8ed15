"""The Helm chart renders what kustomize renders."""

import json
import re
from itertools import chain
from typing import Any, Final

import pytest
import yaml

from tests.contract.deploy.rendering import COMPONENTS, OVERLAYS, ROOT, Json, kustomized

helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel for this machine")

CHART: Final = ROOT / "deploy" / "helm" / "sluicegate"
GENERATED: Final = re.compile(
    r"^(sluicegate|bus-apply|configuration|classifier-config|nats-config)-[0-9a-z]{10}$"
)
INFO: Final = 1
NAMES: Final = {"name": "a", "mountPath": "b", "containerPort": "c", "port": "d"}
"""Of what is one of a list: where it stands there says nothing."""


def rendered(values: Json, *, namespace: str = "sluicegate") -> list[Json]:
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(values, name="sluicegate", namespace=namespace).values()
    documents = chain.from_iterable(yaml.load_all(text, yaml.CSafeLoader) for text in texts)
    return [document for document in documents if document]


def comparable(documents: Any) -> dict[str, str]:
    """Each object as one text, without what is Helm's own: the label, the hashes in names, `keep`."""
    return {
        f"{one['kind']} {plain(one['metadata']['name'])}": json.dumps(
            plain(one), sort_keys=True, indent=1
        )
        for one in documents
    }


def plain(value: Any) -> Any:
    match value:
        case dict():
            own = {
                key: "us" if key == "app.kubernetes.io/managed-by" else plain(one)
                for key, one in value.items()
                if key not in {"helm.sh/resource-policy", "creationTimestamp"}
            }
            return {
                key: one for key, one in own.items() if not (key == "annotations" and one == {})
            }
        case list():
            items = [plain(one) for one in value]
            keys = [
                key
                for key in NAMES
                if items and all(isinstance(i, dict) and key in i for i in items)
            ]
            return sorted(items, key=lambda one: str(one[keys[0]])) if keys else items
        case str() if found := GENERATED.match(value):
            return found[1]
        case _:
            return value


SOME: Final = [
    *((overlay, ()) for overlay in OVERLAYS),
    *(("hub", (one,)) for one in COMPONENTS),
    ("hub", COMPONENTS),
]


@pytest.mark.parametrize(("overlay", "components"), SOME)
def test_chart_renders_the_objects_of_an_overlay_with_its_components(
    overlay: str, components: tuple[str, ...]
) -> None:
    definitions = not components
    values = {
        "overlay": overlay,
        "namespace": {"create": True},
        "crds": {"enabled": definitions},
        "components": dict.fromkeys(components, True),
    }
    ours = comparable(rendered(values))
    theirs = comparable(kustomized(overlay, components, definitions=definitions))
    assert ours.keys() == theirs.keys()
    for name, text in theirs.items():
        assert ours[name] == text, name


def test_chart_in_another_namespace_never_names_the_default_one() -> None:
    documents = rendered(
        {"namespace": {"create": True}, "components": dict.fromkeys(COMPONENTS, True)},
        namespace="queueing",
    )
    for one in documents:
        text = json.dumps(one)
        assert '"namespace": "sluicegate"' not in text, one["metadata"]["name"]
        assert not re.search(r"serviceaccount:sluicegate|\.sluicegate\.svc|\"sluicegate/", text), (
            one["metadata"]["name"]
        )
    [namespace] = [one for one in documents if one["kind"] == "Namespace"]
    assert namespace["metadata"]["name"] == "queueing"


def test_chart_values_reach_the_pods() -> None:
    values = {
        "crds": {"enabled": False},
        "image": {
            "repository": "example.test/sluice",
            "digest": "sha256:0a",
            "pullPolicy": "Always",
            "pullSecrets": ["pull"],
        },
        "settings": {"SLUICE_LOG_LEVEL": "debug", "SLUICE_CLUSTER": "east"},
        "workloads": {
            "quota": {
                "replicas": 3,
                "pod": {"priorityClassName": "high"},
                "container": {"resources": {"limits": {"memory": "1Gi"}}},
            }
        },
    }
    before, after = rendered({"crds": {"enabled": False}}), rendered(values)
    [quota] = [
        one["spec"]
        for one in after
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "quota"
    ]
    pod = quota["template"]["spec"]
    [container] = pod["containers"]
    assert (quota["replicas"], pod["priorityClassName"]) == (3, "high")
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert (container["image"], container["imagePullPolicy"]) == (
        "example.test/sluice@sha256:0a",
        "Always",
    )
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert container["resources"]["requests"], "what is merged leaves the rest"
    [settings] = [
        one
        for one in after
        if one["metadata"]["name"].startswith("sluicegate-") and one["kind"] == "ConfigMap"
    ]
    assert settings["data"] | values["settings"] == settings["data"]
    assert container["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
    assert settings["metadata"]["name"] not in {one["metadata"]["name"] for one in before}


def test_chart_values_say_which_prometheus_the_console_asks() -> None:
    values: Json = {
        "crds": {"enabled": False},
        "components": {"alerts": True},
        "prometheus": {"service": "prometheus-operated", "namespace": "watch", "port": 9091},
    }
    documents = rendered(values)
    [url] = [
        one["data"]["SLUICE_CONSOLE_PROMETHEUS_URL"]
        for one in documents
        if one["kind"] == "ConfigMap" and "SLUICE_CONSOLE_PROMETHEUS_URL" in one["data"]
    ]
    assert url == "http://prometheus-operated.watch:9091"
    [policy] = [one for one in documents if one["metadata"]["name"] == "console-alerts"]
    [rule] = policy["spec"]["egress"]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}
    assert rule == {"to": [{"namespaceSelector": selector}], "ports": [{"port": 9091}]}
    assert not [
        one
        for one in rendered(values | {"components": {"alerts": False}})
        if one["metadata"]["name"] == "console-alerts"
    ]


def test_helm_lint_passes() -> None:
    found = helm.lint(str(CHART))
    assert [one for one in found["messages"] if one["severity"] > INFO] == []


def test_another_release_does_not_change_a_job_that_ran() -> None:
    """API servers refuse that: one that runs something else has another name."""
    values: list[Json] = [
        {"crds": {"enabled": False}, "image": {"tag": tag}} for tag in ("1", "1", "2")
    ]
    first, same, other = (
        [one["metadata"]["name"] for one in rendered(each) if one["kind"] == "Job"]
        for each in values
    )
    assert first == same
    assert not set(first) & set(other)
