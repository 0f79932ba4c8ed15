"""What every pod of every overlay has, whatever it runs."""

from typing import Final

import pytest

from services.ctl.dev.supervisor import GRACE_SECONDS
from shared.bus.leadership import RELEASE_SECONDS
from shared.runtime.web import STOP_SECONDS
from shared.settings.base import ServiceSettings
from tests.contract.deploy.rendering import COMPONENTS, OVERLAYS, kustomized, templates

RENDERED = [*((overlay, ()) for overlay in OVERLAYS), ("hub", COMPONENTS)]
DEFAULT_GRACE_SECONDS: Final = 30
"""Of Kubernetes, where a pod names no `terminationGracePeriodSeconds`."""


@pytest.mark.parametrize(("overlay", "components"), RENDERED)
def test_every_pod_has_a_memory_limit_and_runs_before_the_work_it_admits(
    overlay: str, components: tuple[str, ...]
) -> None:
    documents = kustomized(overlay, components)
    classes = {one["metadata"]["name"] for one in documents if one["kind"] == "PriorityClass"}
    for name, template in templates(documents):
        pod = template["spec"]
        assert pod["priorityClassName"] in classes, name
        for container in pod["containers"]:
            assert container["resources"]["limits"]["memory"], name
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name


@pytest.mark.parametrize(("overlay", "components"), RENDERED)
def test_whoever_ends_a_service_waits_for_longer_than_that_takes(
    overlay: str, components: tuple[str, ...]
) -> None:
    """A lease is kept until what its term has published is stored; then handlers end, and the server."""
    handlers = ServiceSettings.model_fields["graceful_stop_seconds"].default
    longest = RELEASE_SECONDS + handlers + STOP_SECONDS
    assert longest < GRACE_SECONDS
    for name, template in templates(kustomized(overlay, components)):
        grace = template["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        assert longest < grace, name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_namespace_enforces_audits_and_warns_of_the_restricted_profile(overlay: str) -> None:
    [namespace] = [one for one in kustomized(overlay) if one["kind"] == "Namespace"]
    prefix = "pod-security.kubernetes.io/"
    assert {f"{prefix}{mode}" for mode in ("enforce", "audit", "warn")} <= {
        label for label, value in namespace["metadata"]["labels"].items() if value == "restricted"
    }


def test_hub_gives_every_client_of_nats_a_key_and_a_certificate() -> None:
    for name, template in templates(kustomized("hub", COMPONENTS)):
        if name == "nats":
            continue
        volumes = {one["name"]: one.get("secret", {}) for one in template["spec"]["volumes"]}
        user = "nats-user-bus" if name == "bus-apply" else f"nats-user-{name}"
        assert volumes["nats-user"]["secretName"] == user
        assert volumes["nats-tls"]["secretName"] == "nats-client"
        [container] = template["spec"]["containers"]
        mounted = {one["mountPath"] for one in container["volumeMounts"]}
        assert {"/etc/sluicegate/nats-user", "/etc/sluicegate/nats-tls"} <= mounted
