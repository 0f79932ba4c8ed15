"""Which TaskRuns request a host, when they have ended, and what their secret contains."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from services.provisioner.allocation.results import Waiting
from services.provisioner.config.platforms import (
    PlatformFormatError,
    check_platform,
    is_platform,
    key_of,
)
from services.provisioner.naming import build_user_name, legacy_user_name
from services.provisioner.task_runs.requests import has_ended, to_host_request
from services.provisioner.task_runs.ssh_secret import error_secret, local_secret, remote_secret
from services.provisioner.wire import to_host_state
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import workload_name
from tests.unit.provisioner.harness import done, task_run


def with_(path: str, value: Any) -> Object:
    """A TaskRun that requests a host, with one field changed."""
    obj = task_run("build")
    *parents, last = path.split(".")
    inner = obj
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    return obj


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
VOLUME = {"name": "ssh", "secret": {"secretName": "multi-platform-ssh-build"}}

ASK = {
    "a resolved task with the volume and the parameter": (task_run("build"), "linux/arm64"),
    "the first PLATFORM wins": (
        with_("spec.params", [{"name": "PLATFORM", "value": "a/b"}, {"name": "PLATFORM", "value": "c/d"}]),
        "a/b",
    ),
    "a PLATFORM that is a list reads as nothing": (
        with_("spec.params", [{"name": "PLATFORM", "value": ["linux/arm64"]}]), "",
    ),
    "the volume may be one of many": (
        with_("status.taskSpec.volumes", [{"name": "a", "emptyDir": {}}, {"secret": {}}, VOLUME]),
        "linux/arm64",
    ),
}  # fmt: skip

DO_NOT_ASK = {
    "a task that is not resolved yet": with_("status", {}),
    "a task without a status": with_("status", None),
    "a task without volumes": with_("status.taskSpec", {"volumes": None}),
    "a test task that only has a parameter of that name": with_("status.taskSpec.volumes", []),
    "a volume of another secret": with_(
        "status.taskSpec.volumes", [{"name": "ssh", "secret": {"secretName": "ssh-keys"}}]
    ),
    "a volume in the spec, which Tekton has not taken yet": {
        **task_run("build"), "status": {}, "spec": {**task_run("build")["spec"], "volumes": [VOLUME]},
    },
    "no parameters": with_("spec", {}),
    "another parameter": with_("spec.params", [{"name": "ARCH", "value": "arm64"}]),
    "the helpers' own tasks": with_("metadata.labels", {"build.appstudio.redhat.com/task-type": "provision"}),
}  # fmt: skip


@pytest.mark.parametrize(("obj", "platform"), ASK.values(), ids=ASK.keys())
def test_task_run_with_volume_and_parameter_requests_host(obj: Object, platform: str) -> None:
    request = to_host_request(obj)
    assert request is not None
    assert (request.platform, request.uid, request.name) == (platform, "uid-build", "build")


@pytest.mark.parametrize("obj", DO_NOT_ASK.values(), ids=DO_NOT_ASK.keys())
def test_other_task_run_requests_no_host(obj: Object) -> None:
    assert to_host_request(obj) is None


def test_request_lists_failed_hosts_of_annotation() -> None:
    annotations = {"build.appstudio.redhat.com/failed-hosts": "b, a,,b"}
    request = to_host_request(task_run("build", annotations=annotations))
    assert request is not None
    assert request.failed_hosts == ("a", "b")


def test_request_keeps_little_of_what_a_tenant_writes() -> None:
    annotations = {
        "build.appstudio.redhat.com/failed-hosts": ",".join(
            [*"ba", "x" * 254, *map(str, range(999))]
        ),
        "sluicegate.dev/traceparent": "0" * 56,
    }
    obj = task_run("build", platform="linux/" + "x" * 1_000_000, annotations=annotations)
    request = to_host_request(obj)
    assert request is not None
    assert not is_platform(request.platform)
    assert len(request.platform) == 128
    assert set(request.failed_hosts) == {"a", "b", *map(str, range(62))}
    assert request.traceparent is None


def test_request_carries_traceparent_annotation() -> None:
    request = to_host_request(
        task_run("build", annotations={"sluicegate.dev/traceparent": "00-1-2-01"})
    )
    assert request is not None
    assert request.traceparent == "00-1-2-01"


ENDED = {
    "it runs": (task_run("build"), False),
    "it succeeded": (done(task_run("build")), True),
    "it failed": (with_("status.conditions", [{"type": "Succeeded", "status": "False"}]), True),
    "it is not known yet": (
        with_("status.conditions", [{"type": "Succeeded", "status": "Unknown"}]),
        False,
    ),
    "somebody deletes it": (task_run("build", deletionTimestamp="2026-01-01T00:00:00Z"), True),
}


@pytest.mark.parametrize(("obj", "ended"), ENDED.values(), ids=ENDED.keys())
def test_task_run_has_ended(obj: Object, ended: bool) -> None:
    assert has_ended(obj) is ended


@pytest.mark.parametrize(
    "platform",
    [
        "local",
        "localhost",
        "linux/x86_64",
        "linux/arm64",
        "linux-mlarge/amd64",
        "a/b",
        f"{'a' * 63}/b",
    ],
)
def test_valid_platform_is_accepted(platform: str) -> None:
    assert check_platform(platform) == platform


@pytest.mark.parametrize(
    "platform",
    ["", "/", "linux", "linux/", "/arm64", "linux/arm64/v8", "Linux/arm64", "linux/arm_64", "linux/1arm",
     "linux/arm64-", " linux/arm64", "linux/arm64\n", f"{'a' * 64}/b", "linux/x86_64x"],
)  # fmt: skip
def test_invalid_platform_is_refused(platform: str) -> None:
    assert not is_platform(platform)
    with pytest.raises(PlatformFormatError, match="must be in format 'label/label'"):
        check_platform(platform)


def test_platform_in_configuration_key_has_dashes() -> None:
    assert key_of("linux/arm64") == "linux-arm64"


def test_user_follows_from_uid_within_32_characters() -> None:
    user = build_user_name(uid="uid-build", host="power-1")
    assert (user[:2], len(user)) == ("u-", 30)
    assert user != build_user_name(uid="uid-build-2", host="power-1")


def test_user_of_old_record_is_that_of_provisioning_script() -> None:
    # md5 of "build", "team-a" and a line feed, 28 digits.
    user = legacy_user_name(namespace="team-a", name="build")
    assert user == "u-b4de4c6dcae1e1499596fd77b398"


def test_remote_secret_names_user_and_home() -> None:
    user = build_user_name(uid="uid-build", host="power-1")
    found = remote_secret("linux/arm64", user=user, address="10.0.0.7")
    assert found == {"host": f"{user}@10.0.0.7", "user-dir": f"/home/{user}"}


@pytest.mark.parametrize(
    ("platform", "home"),
    [
        ("windows-4xlarge/amd64", r"C:\\Users\\konflux-builder"),
        ("macos-mac2metal/arm64", "/Users/konflux-builder"),
    ],
)
def test_windows_and_macos_use_user_of_image(platform: str, home: str) -> None:
    found = remote_secret(platform, user="u-1", address="10.0.0.7")
    assert found == {"host": "konflux-builder@10.0.0.7", "user-dir": home}


def test_local_secret_names_localhost_only() -> None:
    assert local_secret() == {"host": "localhost"}


def test_error_secret_contains_error_only() -> None:
    assert error_secret(message="no hosts configured", platform="") == {
        "error": "no hosts configured\n\nContext info:\nPlatform: [UNKNOWN]\n"
    }


@pytest.mark.parametrize(
    ("provider", "slots"),
    [("fake", {"linux-arm64": "1"}), ("aws", {"linux-arm64": "1", "aws-ip": "1"})],
)
def test_host_state_names_workload_and_slots_of_run(provider: str, slots: dict[str, str]) -> None:
    owner = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "name": "release",
        "uid": "run-1",
    }
    request = to_host_request(task_run("build", ownerReferences=[owner]))
    alone = to_host_request(task_run("alone"))
    assert request is not None
    assert alone is not None
    name = workload_name(kind="PipelineRun", group="tekton.dev", name="release", uid="run-1")
    assert (request.run_uid, request.workload) == ("run-1", ""), "an owner reference proves nothing"
    request = replace(request, workload=name)
    told = [
        to_host_state(one, Waiting(message="full"), cluster="hub", provider=provider, now=NOON)
        for one in (request, alone)
    ]
    assert (told[0].workload, told[0].slots) == (name, slots)
    assert (told[1].workload, told[1].slots) == ("", {}), "a TaskRun of its own holds no slot"
