"""What is deployed fits what is built: variables are settings, images and commands exist."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from services.classifier.settings import ClassifierSettings
from services.console.settings import ConsoleSettings
from services.ctl.run import SERVICES, Program
from services.dispatcher.settings import DispatcherSettings
from services.patcher.settings import PatcherSettings
from services.provisioner.settings import ProvisionerSettings
from services.quota.settings import QuotaSettings
from services.watcher.settings import WatcherSettings
from shared.settings.base import ServiceSettings
from shared.settings.configuration import read_configuration

ROOT = Path(__file__).parents[2]
OVERLAYS = sorted(
    path.parent for path in (ROOT / "deploy/kubernetes/overlays").rglob("kustomization.yaml")
)
SETTINGS: dict[str, type[ServiceSettings]] = {
    "watcher": WatcherSettings,
    "classifier": ClassifierSettings,
    "quota": QuotaSettings,
    "dispatcher": DispatcherSettings,
    "provisioner": ProvisionerSettings,
    "patcher": PatcherSettings,
    "console": ConsoleSettings,
}
EVERYBODYS = {"NATS_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"}
Json = dict[str, Any]


def variables(settings: type[ServiceSettings]) -> set[str]:
    return EVERYBODYS | {f"SLUICE_{name.upper()}" for name in settings.model_fields}


ANYBODYS = {name for settings in SETTINGS.values() for name in variables(settings)}


def compose() -> Json:
    document: Json = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return document


def test_compose_runs_every_service_with_variables_that_it_reads() -> None:
    for name, service in compose().items():
        if not service["image"].startswith("sluicegate:"):
            continue  # Others read their own.
        for variable in service.get("environment") or {}:
            assert variable in ANYBODYS, f"{name}: nobody reads {variable}"
    assert {service.value for service in SERVICES} <= compose().keys()


def test_compose_starts_commands_that_exist() -> None:
    ours = [s for s in compose().values() if str(s.get("image", "")).startswith("sluicegate:")]
    commands = [service["command"] for service in ours if service.get("command")]
    run = [command[1] for command in commands if command[0] == "run"]
    assert set(run) <= {program.value for program in Program}
    assert {command[0] for command in commands} <= {"run", "bus", "install"}


def test_what_compose_waits_for_is_a_service_of_it() -> None:
    services = compose()
    for name, service in services.items():
        for needed in service.get("depends_on") or {}:
            assert needed in services, f"{name} waits for {needed}"


@pytest.fixture(scope="module", params=OVERLAYS, ids=lambda path: path.name)
def rendered(request: pytest.FixtureRequest) -> list[Json]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: the overlays are not rendered")
    done = subprocess.run(
        ["kubectl", "kustomize", str(request.param)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def pods(documents: list[Json]) -> Iterator[tuple[str, Json]]:
    for document in documents:
        template = (document.get("spec") or {}).get("template")
        if template:
            yield document["metadata"]["name"], template["spec"]


def test_an_overlay_has_one_deployment_for_each_service(rendered: list[Json]) -> None:
    deployments = {d["metadata"]["name"] for d in rendered if d["kind"] == "Deployment"}
    assert {service.value for service in SERVICES} <= deployments


def test_every_variable_of_an_overlay_is_a_setting(rendered: list[Json]) -> None:
    maps = {d["metadata"]["name"]: d for d in rendered if d["kind"] == "ConfigMap"}
    for name, pod in pods(rendered):
        for container in pod["containers"]:
            own = [variable["name"] for variable in container.get("env") or []]
            known = variables(SETTINGS[name]) if name in SETTINGS else ANYBODYS
            assert set(own) <= known, f"{name}: {set(own) - known}"
            for source in container.get("envFrom") or []:
                data = maps[source["configMapRef"]["name"]]["data"]
                assert set(data) <= ANYBODYS, f"{name}: {set(data) - ANYBODYS}"


def test_every_pod_keeps_to_the_restricted_profile(rendered: list[Json]) -> None:
    for name, pod in pods(rendered):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False, name
            assert context["readOnlyRootFilesystem"] is True, name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert container["resources"]["requests"], name


def test_what_a_pod_mounts_or_runs_as_is_there(rendered: list[Json]) -> None:
    names = {(d["kind"], d["metadata"]["name"]) for d in rendered}
    secrets = {d["spec"]["secretName"] for d in rendered if d["kind"] == "Certificate"}
    for name, pod in pods(rendered):
        for volume in pod.get("volumes") or []:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names, name
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets, name
        if account := pod.get("serviceAccountName"):
            assert ("ServiceAccount", account) in names, name


def test_who_reads_kueues_configuration_is_given_one_that_can_be_read(
    rendered: list[Json], tmp_path: Path
) -> None:
    readers = {
        service
        for service in SETTINGS
        if "read_configuration(" in (ROOT / "services" / service / "app.py").read_text()
    }
    assert {"quota", "classifier", "patcher"} <= readers
    maps = {d["metadata"]["name"]: d["data"] for d in rendered if d["kind"] == "ConfigMap"}
    found = dict(pods(rendered))
    for name in sorted(readers):
        [container] = found[name]["containers"]
        env = {one["name"]: one.get("value", "") for one in container["env"]}
        path = PurePosixPath(env["SLUICE_CONFIGURATION"])
        [mount] = [m for m in container["volumeMounts"] if m["mountPath"] == str(path.parent)]
        [volume] = [v for v in found[name]["volumes"] if v["name"] == mount["name"]]
        file = tmp_path / path.name
        file.write_text(maps[volume["configMap"]["name"]][path.name])
        assert read_configuration(file).pods_ready is None, "nobody asked for timeouts"


def test_the_hub_gives_keys_out_once_and_reads_the_secrets_of_machines() -> None:
    """What the provisioner listens on, is reached at, and proves by its certificate is one name."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH: the overlays are not rendered")
    hub = ROOT / "deploy/kubernetes/overlays/hub"
    done = subprocess.run(
        ["kubectl", "kustomize", str(hub)], capture_output=True, text=True, check=True
    )
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    by_name = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    [container] = by_name["Deployment", "provisioner"]["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value", "") for one in container["env"]}
    url = urlsplit(env["SLUICE_OTP_URL"])
    assert url.hostname is not None
    service, namespace, *_ = url.hostname.split(".")
    port = by_name["Service", service]["spec"]["ports"][0]
    listens = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert by_name["Service", service]["metadata"]["namespace"] == namespace
    assert (port["port"], listens[port["targetPort"]]) == (443, int(env["SLUICE_OTP_PORT"]))
    certificate = by_name["Certificate", "multi-platform-otp"]["spec"]
    assert url.hostname in certificate["dnsNames"]
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert {env["SLUICE_SECRETS_PATH"], env["SLUICE_OTP_PATH"]} <= mounted
    pod = by_name["Deployment", "provisioner"]["spec"]["template"]["spec"]
    [machines] = [v for v in pod["volumes"] if v["name"] == "machines"]
    for source in machines["projected"]["sources"]:
        secret = source["secret"]
        assert secret["optional"], "a platform that nobody uses here needs no Secret"
        for item in secret["items"]:
            assert item["path"] == f"{secret['name']}/{item['key']}"
