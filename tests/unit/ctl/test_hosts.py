"""`sluice hosts`: platforms, waits, and the quota that fits a host configuration."""

from datetime import UTC, datetime, timedelta
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from services.ctl.inspect.hosts import platform_lines, platforms_of, quota_of
from services.ctl.main import app
from services.provisioner.config.provider_types import GROUP
from shared.contracts.messages.hosts import HostSlot, HostState, Machine, PlatformState
from tests.unit.provisioner.harness import HOST_CONFIG

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_quota_equals_the_slots_of_all_platforms() -> None:
    groups, errors = quota_of(
        {
            **HOST_CONFIG,
            "dynamic-platforms": "linux/arm64,linux-big/arm64",
            "dynamic.linux-big-arm64.type": "aws",
            "dynamic.linux-big-arm64.ssh-secret": "aws-ssh",
            "dynamic.linux-big-arm64.max-instances": "7",
            "dynamic.linux-big-arm64.region": "us-east-1",
            "dynamic.linux-big-arm64.ami": "ami-1",
            "dynamic.linux-big-arm64.instance-type": "m6g.large",
            "dynamic.linux-big-arm64.aws-secret": "aws-account",
        },
        flavor="machines",
    )
    [group] = groups
    [flavor] = group["flavors"]
    assert flavor["name"] == "machines"
    assert {one["name"]: one["nominalQuota"] for one in flavor["resources"]} == {
        "linux-arm64": 2,
        "linux-s390x": 4,
        "linux-ppc64le": 2,
        "linux-big-arm64": 7,
        "aws-ip": 7,
        "linux-x86-64": 1000,
        "local": 1000,
        "localhost": 1000,
    }
    assert errors == {}


def test_platforms_are_split_into_groups_of_16_resources() -> None:
    names = ",".join(f"linux-{letter}/arm64" for letter in "abcdefghijklmnopqrst")
    groups, _ = quota_of({"local-platforms": names}, flavor="machines")
    assert [len(group["coveredResources"]) for group in groups] == [16, 4]
    assert [group["flavors"][0]["name"] for group in groups] == ["machines-1", "machines-2"]


def test_quota_command_prints_groups_and_configuration_errors(tmp_path: Path) -> None:
    data = {**HOST_CONFIG, "dynamic.linux-arm64.max-instances": "many"}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "host-config"},
        "data": data,
    }
    path = tmp_path / "host-config.yaml"
    path.write_text(yaml.safe_dump(config))

    result = CliRunner().invoke(app, ["hosts", "quota", str(path)])

    assert result.exit_code == 1
    printed = yaml.safe_load(result.stdout)
    assert "linux-s390x" in printed["resourceGroups"][0]["coveredResources"]
    assert "linux-arm64" not in printed["resourceGroups"][0]["coveredResources"]
    assert "max-instances: invalid value 'many'" in result.stderr


def test_machine_type_of_an_installed_package_counts_as_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = {
        **HOST_CONFIG, "dynamic.linux-arm64.type": "mine", "dynamic.linux-arm64.ssh-secret": "key",
    }  # fmt: skip
    _, errors = quota_of(data, flavor="machines")
    assert "expect 'aws', 'ibmz', or 'ibmp', got 'mine'" in errors["linux/arm64"]
    installed = EntryPoints([EntryPoint(name="mine", value="nowhere:KIND", group=GROUP)])
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: installed.select(group=group))
    groups, errors = quota_of(data, flavor="machines")
    assert errors == {}
    assert "linux-arm64" in groups[0]["coveredResources"]


@pytest.mark.parametrize("content", ["{}", "kind: Secret\napiVersion: v1\nmetadata: {name: a}"])
def test_a_file_without_a_host_configuration_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(content)
    assert CliRunner().invoke(app, ["hosts", "quota", str(path)]).exit_code != 0


def test_hosts_lists_waiting_task_runs_with_reasons() -> None:
    record = PlatformState(
        cluster="hub", platform="linux/ppc64le", at=NOON,
        seats=[
            HostSlot(uid="u-1", namespace="team-a", name="one", host="power-1", address="10.0.0.1"),
            HostSlot(uid="slot:w:1", namespace="team-a", name="run", host="power-1", address="10.0.0.1",
                 state="held"),
        ],
    )  # fmt: skip
    machine = Machine(
        name="m-1", provider="fake", state="launching", holder="u-3", task_run="team-a:three",
        launched_at=NOON, deadline=NOON,
    )  # fmt: skip
    other = PlatformState(cluster="hub", platform="linux/arm64", at=NOON, machines=[machine])
    waiting = HostState(
        cluster="hub", namespace="team-a", name="two", uid="u-2", platform="linux/ppc64le",
        state="waiting", message="all hosts of linux/ppc64le are busy", at=NOON,
    )  # fmt: skip
    starting = HostState(
        cluster="hub", namespace="team-a", name="three", uid="u-3", platform="linux/arm64",
        state="launching", host="m-1", at=NOON,
    )  # fmt: skip
    shown = platforms_of([record, other], [waiting, starting], {"hub": HOST_CONFIG})

    lines = platform_lines(shown, NOON + timedelta(seconds=90))

    table = {line.split()[0]: line.split()[1:] for line in lines[1:8]}
    assert table["linux/ppc64le"] == ["static", "2", "1", "0", "0", "1", "90s"]
    assert table["linux/arm64"] == ["dynamic", "2", "0", "1", "1", "1", "90s"]
    assert table["local"][:2] == ["local", "<none>"]
    assert lines[-3:] == [
        "team-a/three waits for linux/arm64: machine m-1 is starting",
        "team-a/run keeps a place for linux/ppc64le on power-1",
        "team-a/two waits for linux/ppc64le: all hosts of linux/ppc64le are busy",
    ]


def test_hosts_of_a_system_without_machines_are_a_sentence() -> None:
    (line,) = platform_lines(platforms_of([], [], {}), NOON)
    assert line.startswith("No platforms: no cluster has a ConfigMap host-config")
