"""Who may speak to whom: exactly the connections of the table, tried from everywhere to everywhere."""

import os
import subprocess
from itertools import chain, product
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.contract.deploy.network import Outside, allows, matches
from tests.contract.deploy.rendering import COMPONENTS, KUBECTL, ROOT, Json, Pod, kustomized, pods

API: Final = Outside("api-server", {"https": 6443}, "192.0.2.10")
CLOUD: Final = Outside("cloud", {"https": 443}, "203.0.113.7")
MACHINE: Final = Outside("machine", {"ssh": 22, "other": 8080}, "198.51.100.9")
ELSEWHERE: Final = Outside(
    "elsewhere", {"ssh": 22, "https": 443, "api": 6443, "nats": 4222}, "8.8.8.8"
)
NAMES: Final = Pod("names", "kube-system", {"k8s-app": "kube-dns"}, {"names": 53})
PROMETHEUS: Final = Pod("prometheus", "monitoring", {"app": "prometheus"}, {"web": 9090})
COLLECTOR: Final = Pod(
    "collector", "observability", {"app": "collector"}, {"otlp": 4318, "health": 13133}
)
BUILD: Final = Pod("build", "team-a", {"tekton.dev/taskRun": "a"}, {"web": 8080})
OTHERS: Final = (API, CLOUD, MACHINE, ELSEWHERE, NAMES, PROMETHEUS, COLLECTOR, BUILD)
ABROAD: Final = (PROMETHEUS, COLLECTOR, BUILD, NAMES)
"""Pods of other namespaces."""

Connection = tuple[str, str, int]


def policies(documents: tuple[Json, ...]) -> list[Json]:
    return [one for one in documents if one["kind"] == "NetworkPolicy"]


def built(folder: Path) -> tuple[Json, ...]:
    done = subprocess.run(
        [KUBECTL, "kustomize", folder], capture_output=True, text=True, check=True, timeout=60
    )
    return tuple(yaml.load_all(done.stdout, yaml.CSafeLoader))


def charted(values: Json) -> tuple[Json, ...]:
    helm = pytest.importorskip("helm_python", reason="Helm's library has no wheel here")
    with helm.Chart.load(str(ROOT / "deploy/helm/sluicegate")) as chart:
        texts = chart.render(
            values | {"crds": {"enabled": False}}, name="s", namespace="sluicegate"
        )
    documents = chain.from_iterable(
        yaml.load_all(text, yaml.CSafeLoader) for text in texts.values()
    )
    return tuple(one for one in documents if one)


def possible(documents: tuple[Json, ...]) -> set[Connection]:
    """Every connection from anything to anything that is allowed and has an end of ours."""
    everybody: list[Pod | Outside] = [*pods(documents).values(), *OTHERS]
    found = set()
    for source, target in product(everybody, repeat=2):
        if source in OTHERS and target in OTHERS:
            continue
        for port in target.ports.values():
            protocol = "UDP" if target is NAMES else "TCP"
            if allows(policies(documents), source, target, port, protocol):
                found.add((source.name, target.name, port))
    return found


def wanted(documents: tuple[Json, ...]) -> set[Connection]:
    """What the hub with all components lives on."""
    clients = pods(documents).keys() - {"nats"}
    services = {one for one in clients if not one.startswith("bus-apply")}
    return {
        *((one, "names", 53) for one in pods(documents)),
        *((one, "nats", 4222) for one in clients),
        ("nats", "nats", 6222),
        *(("prometheus", one, 8081) for one in services),
        *((one, "collector", 4318) for one in services),
        ("console", "prometheus", 9090),
        # Who speaks Kubernetes.
        *((one, "api-server", 6443) for one in KUBERNETES),
        # API servers ask from the network of a node, which no selector names.
        *((one.name, "classifier", 9443) for one in OTHERS),
        *((one.name, "console", 8443) for one in ABROAD),
        *((one.name, "console", 8444) for one in OTHERS),
        # Spokes dial NATS, or a leaf node of theirs does; who they are, keys and certificates say.
        *((one.name, "nats", port) for one in OTHERS for port in (4222, 7422)),
        # Machines: ordered and entered; builds fetch their key.
        ("provisioner", "cloud", 443),
        ("provisioner", "machine", 22),
        *((one.name, "provisioner", 8443) for one in ABROAD),
    }


KUBERNETES: Final = ("watcher", "patcher", "console", "pairs")
OPEN: Final = frozenset(
    {
        *((one, *end) for one in KUBERNETES for end in (("cloud", 443), ("elsewhere", 443))),
        *((one, "elsewhere", 6443) for one in KUBERNETES),
        *(("provisioner", "elsewhere", port) for port in (22, 443)),
    }
)
"""What is possible besides as long as nobody has named the addresses that are reached outside."""


def test_network_policies_allow_exactly_the_listed_connections() -> None:
    documents = kustomized("hub", COMPONENTS)
    assert possible(documents) == wanted(documents) | OPEN


def test_overlay_of_the_how_to_closes_egress_to_what_it_names(tmp_path: Path) -> None:
    blocks = (ROOT / "docs/how-to/deploy.md").read_text().split("```yaml\n")
    [example] = [each.partition("```")[0] for each in blocks if "/spec/egress/0/to" in each]
    folder = Path(os.path.relpath(ROOT / "deploy/kubernetes", tmp_path.resolve()))
    components = [str(folder / "components" / name) for name in COMPONENTS]
    overlay = yaml.safe_load(example.replace("../hub", str(folder / "overlays/hub")))
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(overlay | {"components": components})
    )
    documents = built(tmp_path)
    assert possible(documents) == wanted(documents)


CLOSED: Final = {
    "apiServer": ["192.0.2.10/32"],
    "spokes": ["192.0.2.10/32"],
    "machines": ["198.51.100.0/24"],
    "clouds": ["203.0.113.0/24"],
    "hub": ["192.0.2.0/24", "203.0.113.7/32"],
}


def test_values_of_the_chart_close_egress_to_what_they_name() -> None:
    components = dict.fromkeys(COMPONENTS, True)
    documents = charted({"egress": CLOSED, "components": components})
    assert possible(documents) == wanted(documents)
    left_open = charted({"egress": {"apiServer": ["192.0.2.10/32"]}, "components": components})
    closed = {end for end in OPEN if end[0] in {"watcher", "patcher", "console"}}
    assert possible(left_open) == wanted(left_open) | OPEN - closed


@pytest.mark.parametrize(("egress", "reached"), [({}, True), (CLOSED, False)])
def test_spoke_reaches_the_named_hub_only(egress: Json, reached: bool) -> None:
    documents = charted({"overlay": "spoke", "egress": egress})
    mine = policies(documents)
    hub = Outside("hub", {"nats": 4222}, "203.0.113.7")
    for pod in pods(documents).values():
        assert allows(mine, pod, hub, 4222, "TCP")
        for port in (443, 4222, 6443):
            assert allows(mine, pod, ELSEWHERE, port, "TCP") == reached


def test_connections_of_absent_components_are_closed() -> None:
    documents = kustomized("dev")
    there = pods(documents).keys() | {one.name for one in OTHERS}
    listed = wanted(documents) | OPEN
    outside = {one.name for one in OTHERS}
    more = {
        (source, target, port)
        for source, target, port in listed
        if target in {"collector", "prometheus"}
        or port in {6222, 7422, 8444}
        or (source in outside and target == "nats")
        or (port in {22, 443, 8443} and "provisioner" in {source, target})
        or not {source, target} <= there
    }
    assert possible(documents) == listed - more


def test_overlay_of_the_how_to_lets_the_console_ask_another_prometheus(tmp_path: Path) -> None:
    blocks = (ROOT / "docs/how-to/console.md").read_text().split("```yaml\n")
    [example] = [each.partition("```")[0] for each in blocks if "../../components/alerts" in each]
    kubernetes = os.path.relpath(ROOT / "deploy/kubernetes", tmp_path.resolve())
    overlay = f"resources: [{kubernetes}/overlays/hub]\n{example.replace('../..', kubernetes)}"
    (tmp_path / "kustomization.yaml").write_text(overlay)
    documents = built(tmp_path)
    named = Pod("prometheus", "observability", {}, {"web": 9090})
    console = pods(documents)["console"]
    assert allows(policies(documents), console, named, 9090, "TCP")
    assert not allows(policies(documents), console, PROMETHEUS, 9090, "TCP")
    setting = "SLUICE_CONSOLE_PROMETHEUS_URL"
    [url] = [one["data"][setting] for one in documents if setting in one.get("data", {})]
    assert url == "http://prometheus-operated.observability:9090"


def test_every_policy_selects_existing_pods_and_ports() -> None:
    documents = kustomized("hub", COMPONENTS)
    there = list(pods(documents).values())
    for policy in policies(documents):
        spec = policy["spec"]
        rules = [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]
        peers = [peer for rule in rules for peer in (rule.get("from") or rule.get("to") or ())]
        selectors = [
            spec["podSelector"],
            *(peer["podSelector"] for peer in peers if "podSelector" in peer),
        ]
        for selector in selectors:
            assert any(matches(selector, pod.labels) for pod in there), policy["metadata"]["name"]
        names = {
            port["port"]
            for rule in rules
            for port in rule.get("ports") or ()
            if isinstance(port["port"], str)
        }
        assert names <= set(chain.from_iterable(pod.ports for pod in there)), policy["metadata"][
            "name"
        ]


def test_pod_that_accepts_a_connection_has_the_port() -> None:
    documents = kustomized("hub", COMPONENTS)
    for policy in policies(documents):
        for rule in policy["spec"].get("ingress") or ():
            for pod in pods(documents).values():
                if matches(policy["spec"]["podSelector"], pod.labels):
                    assert {port["port"] for port in rule["ports"]} <= pod.ports.keys(), (
                        policy["metadata"]["name"],
                        pod.name,
                    )
