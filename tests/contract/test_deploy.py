"""What is deployed fits what is built: variables are settings, images and commands exist."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from services.classifier.settings import ClassifierSettings
from services.console.settings import ConsoleSettings
from services.ctl.pairs import PairSettings
from services.ctl.programs import SERVICES, Program
from services.ctl.setup.permissions import CONFIG_MAP, secret_of
from services.dispatcher.settings import DispatcherSettings
from services.patcher.settings import PatcherSettings
from services.provisioner.settings import ProvisionerSettings
from services.quota.settings import QuotaSettings
from services.tracer.settings import TracerSettings
from services.watcher.settings import WatcherSettings
from shared.bus.admin.permissions import rights_of
from shared.settings.base import ServiceSettings
from shared.settings.configuration import read_configuration
from tests.contract.deploy.network import matches
from tests.contract.deploy.rendering import (
    COMPONENTS,
    OVERLAYS,
    ROOT,
    Json,
    kustomized,
    named,
    templates,
)

SETTINGS: dict[str, type[ServiceSettings]] = {
    "watcher": WatcherSettings,
    "classifier": ClassifierSettings,
    "quota": QuotaSettings,
    "dispatcher": DispatcherSettings,
    "provisioner": ProvisionerSettings,
    "patcher": PatcherSettings,
    "console": ConsoleSettings,
    "tracer": TracerSettings,
    "pairs": PairSettings,
}
USERS = {secret_of(user) for user in rights_of()}
"""Secrets that `sluice bus permissions --kubernetes` makes, beside the ConfigMap of their public keys."""

SPOKES = {"nats-spoke"}
"""The Secret that is made by hand on a spoke: docs/how-to/spokes.md."""

EVERYBODYS = {"NATS_URL", "OTEL_EXPORTER_OTLP_ENDPOINT"}


def variables(settings: type[ServiceSettings]) -> set[str]:
    return EVERYBODYS | {f"SLUICE_{name.upper()}" for name in settings.model_fields}


INSTALLERS = {"SLUICE_WEBHOOK_URL"}
ANYBODYS = INSTALLERS.union(*map(variables, SETTINGS.values()))


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


def test_compose_gives_no_command_an_empty_text_where_no_variable_is_set() -> None:
    """`sluice` refuses one: it is mostly a variable that somebody forgot."""
    for name, service in compose().items():
        for argument in service.get("command") or ():
            _, equals, value = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", argument).partition("=")
            assert value or not equals, f"{name}: {argument}"


def test_compose_dependencies_are_services_of_the_file() -> None:
    services = compose()
    for name, service in services.items():
        for needed in service.get("depends_on") or {}:
            assert needed in services, f"{name} waits for {needed}"


@pytest.mark.parametrize("profile", ["simulated", "cluster"])
def test_docker_compose_accepts_the_file(profile: str) -> None:
    if shutil.which("docker") is None or subprocess.call(["docker", "compose", "version"]) != 0:
        pytest.skip("docker compose is not there")
    done = subprocess.run(
        ["docker", "compose", "--profile", profile, "config", "--services"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    wanted = {name for name, one in compose().items() if profile in one.get("profiles", [profile])}
    assert {*done.stdout.split()} == wanted
    assert (profile == "simulated") == ("simulator" in wanted)


RENDERED = [
    *((overlay, ()) for overlay in OVERLAYS),
    ("hub", COMPONENTS),
]


@pytest.fixture(params=RENDERED, ids=lambda param: "+".join((param[0], *param[1])))
def rendered(request: pytest.FixtureRequest) -> tuple[Json, ...]:
    return kustomized(*request.param)


def pods(documents: tuple[Json, ...]) -> Iterator[tuple[str, Json]]:
    for name, template in templates(documents):
        yield name, template["spec"]


@pytest.mark.parametrize("overlay", ["hub", "dev"])
def test_hub_has_one_deployment_for_each_service(overlay: str) -> None:
    deployments = {d["metadata"]["name"] for d in kustomized(overlay) if d["kind"] == "Deployment"}
    assert {service.value for service in SERVICES} == deployments


def test_every_variable_of_an_overlay_is_a_setting(rendered: tuple[Json, ...]) -> None:
    maps = {d["metadata"]["name"]: d for d in rendered if d["kind"] == "ConfigMap"}
    for name, pod in pods(rendered):
        for container in pod["containers"]:
            if not container["image"].startswith("sluicegate:"):
                continue  # Others read their own.
            own = [variable["name"] for variable in container.get("env") or []]
            known = variables(SETTINGS[name]) if name in SETTINGS else ANYBODYS
            assert set(own) <= known, f"{name}: {set(own) - known}"
            for source in container.get("envFrom") or []:
                data = maps[source["configMapRef"]["name"]]["data"]
                assert set(data) <= ANYBODYS, f"{name}: {set(data) - ANYBODYS}"


def test_every_pod_keeps_to_the_restricted_profile(rendered: tuple[Json, ...]) -> None:
    """Kubernetes' Pod Security Standards, line by line, and a file system that nobody writes to."""
    for name, pod in pods(rendered):
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC", "initContainers"}, name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for volume in pod.get("volumes") or ():
            assert volume.keys() <= {"name", "configMap", "secret", "projected", "emptyDir"}, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert not any("hostPort" in port for port in container.get("ports") or ()), name


def test_namespace_refuses_pods_outside_the_restricted_profile(rendered: tuple[Json, ...]) -> None:
    [namespace] = [d for d in rendered if d["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_every_pod_has_requests_and_a_service_account(
    rendered: tuple[Json, ...],
) -> None:
    for name, pod in pods(rendered):
        knows = pod.get("serviceAccountName")
        assert knows == name or pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, name
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name


def test_requests_of_a_pod_are_the_measured_usage_rounded_up() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    row = re.compile(r"^\| (\w+)(?: of the hub)? \| \d+ \| (\d+) \| (\d+) m \|$", re.MULTILINE)
    measured = {name.lower(): (int(mib), int(cpu)) for name, mib, cpu in row.findall(page)}
    found = dict(pods(kustomized("hub", ("tracing",))))
    assert measured.keys() == found.keys() - {"bus-apply"}
    for name, (mib, cpu) in measured.items():
        asked = found[name]["containers"][0]["resources"]["requests"]
        assert 1 <= int(asked["memory"].removesuffix("Mi")) / mib < 1.5, name
        assert 1 <= int(asked["cpu"].removesuffix("m")) / cpu < 1.5, name


def test_every_long_running_container_has_liveness_and_readiness_probes(
    rendered: tuple[Json, ...],
) -> None:
    for document in rendered:
        if document["kind"] in {"Deployment", "StatefulSet"}:
            containers = document["spec"]["template"]["spec"]["containers"]
            [container] = [one for one in containers if one["name"] != "reload"]
            ports = {port["name"] for port in container["ports"]}
            for probe in ("livenessProbe", "readinessProbe"):
                # The monitor of nats-server listens on loopback only: the pod asks it itself.
                asked = container[probe].get("httpGet", {}).get("port")
                command = " ".join(container[probe].get("exec", {}).get("command", ()))
                assert asked in ports or "http://127.0.0.1:8222/healthz" in command, document[
                    "metadata"
                ]["name"]


def test_disruption_budget_keeps_one_of_two_replicas_and_never_blocks_a_drain(
    rendered: tuple[Json, ...],
) -> None:
    budgets = [d["spec"] for d in rendered if d["kind"] == "PodDisruptionBudget"]
    for document in rendered:
        if document["kind"] in {"Deployment", "StatefulSet"}:
            labels = document["spec"]["template"]["metadata"]["labels"]
            mine = [one for one in budgets if matches(one["selector"], labels)]
            several = document["spec"]["replicas"] > 1
            assert [one["maxUnavailable"] for one in mine] == [1] * several, document["metadata"][
                "name"
            ]


def test_there_is_one_patcher_at_a_time(rendered: tuple[Json, ...]) -> None:
    """Two would share its durable consumers, and take turns at one object."""
    patcher = named(rendered)["Deployment", "patcher"]["spec"]
    assert (patcher["replicas"], patcher["strategy"]) == (1, {"type": "Recreate"})


def test_every_object_matches_the_schema_of_its_kind(rendered: tuple[Json, ...]) -> None:
    for document in rendered:
        if document["apiVersion"] != "cert-manager.io/v1":  # Its definitions are not Kubernetes'.
            kubernetes_validate.validate(document, "1.33", strict=True)


def test_volumes_and_accounts_of_every_pod_exist(rendered: tuple[Json, ...]) -> None:
    names = {(d["kind"], d["metadata"]["name"]) for d in rendered}
    secrets = {d["spec"]["secretName"] for d in rendered if d["kind"] == "Certificate"}
    for name, pod in pods(rendered):
        for volume in pod.get("volumes") or []:
            if "configMap" in volume:
                there = ("ConfigMap", volume["configMap"]["name"]) in names
                assert there or volume["configMap"]["name"] == CONFIG_MAP, name
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets | USERS | SPOKES, name
        if account := pod.get("serviceAccountName"):
            assert ("ServiceAccount", account) in names, name


def test_services_that_read_the_kueue_configuration_get_a_readable_file(
    rendered: tuple[Json, ...], tmp_path: Path
) -> None:
    readers = {
        service.value
        for service in SERVICES
        if "read_configuration(" in (ROOT / "services" / service / "app.py").read_text()
    }
    assert {"quota", "classifier", "patcher"} <= readers
    maps = {d["metadata"]["name"]: d["data"] for d in rendered if d["kind"] == "ConfigMap"}
    found = dict(pods(rendered))
    for name in sorted(readers & found.keys()):
        [container] = found[name]["containers"]
        env = {one["name"]: one.get("value", "") for one in container["env"]}
        path = PurePosixPath(env["SLUICE_CONFIGURATION"])
        [mount] = [m for m in container["volumeMounts"] if m["mountPath"] == str(path.parent)]
        [volume] = [v for v in found[name]["volumes"] if v["name"] == mount["name"]]
        file = tmp_path / path.name
        file.write_text(maps[volume["configMap"]["name"]][path.name])
        assert read_configuration(file).pods_ready is None, "nobody asked for timeouts"


def test_hub_serves_one_time_keys_and_reads_machine_secrets() -> None:
    """What the provisioner listens on, is reached at, and proves by its certificate is one name."""
    by_name = named(kustomized("hub"))
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
