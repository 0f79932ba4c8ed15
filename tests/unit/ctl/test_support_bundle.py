"""`sluice support-bundle`: it is whole although NATS is away, and holds no secret."""

import tarfile
from pathlib import Path

import pytest

from services.ctl.inspect.support_bundle import LOG_BYTES_MAX
from shared.runtime.command import Exit
from shared.telemetry.redaction import REDACTED
from tests.unit.ctl.whatif_objects import Sluice

NOWHERE = ("--nats-url", "nats://joe:hidden@127.0.0.1:9")
SEED = "SUA" + "B" * 55


def test_without_nats_the_bundle_has_the_logs_and_says_what_could_not_be_read(
    tmp_path: Path, sluice: Sluice
) -> None:
    logs = tmp_path / "dev" / "logs"
    logs.mkdir(parents=True)
    (logs / "quota.log").write_text(f"leads\nseed {SEED}\n")
    long = f"password={'hidden' * LOG_BYTES_MAX}\nlast\n"
    (logs / "watcher.log").write_text(long[-LOG_BYTES_MAX - 9 :])
    file = tmp_path / "bundle.tar.gz"
    command = ("support-bundle", "--out", file, "--directory", tmp_path / "dev", *NOWHERE)

    status, out, err = sluice(*command)

    assert status == Exit.OK
    assert f"wrote {file}" in out
    assert "doctor.txt: " in err
    assert "workloads.txt: " in err
    assert "hidden" not in out + err
    texts = unpacked(file)
    assert texts["bundle/logs/quota.log"] == f"leads\nseed {REDACTED}\n"
    assert texts["bundle/logs/watcher.log"] == "last\n", "it begins with a whole line"
    assert "sluice " in texts["bundle/about.txt"]
    assert texts["bundle/status.txt"].startswith("could not be read: NATS at ")
    assert not any("hidden" in text for text in texts.values())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["bundle.tar.gz"]

    status, _, err = sluice(*command)

    assert status == Exit.WRONG_INPUT
    assert f"{file}: is there already" in err


@pytest.mark.parametrize("state", ["[]", "{", '{"nats_url": 1}'])
def test_bundle_is_made_although_the_state_of_dev_is_broken(
    tmp_path: Path, sluice: Sluice, state: str
) -> None:
    (tmp_path / "state.json").write_text(state)
    file = tmp_path / "bundle.tar.gz"

    status, _, err = sluice("support-bundle", "--out", file, "--directory", tmp_path)

    assert status == Exit.OK
    assert f"{tmp_path}/state.json: is not what `sluice dev` writes" in err
    assert "could not be read" in unpacked(file)["bundle/status.txt"]


@pytest.mark.parametrize("command", ["get wl", "status", "bus apply", "history team/a"])
def test_error_of_a_command_has_no_password(sluice: Sluice, command: str) -> None:
    status, out, err = sluice(*command.split(), *NOWHERE)

    assert status == Exit.UNREACHABLE
    assert f"NATS at nats://{REDACTED}@127.0.0.1:9" in err
    assert "hidden" not in out + err


def unpacked(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        return {
            member.name: opened.read().decode()
            for member in archive
            if (opened := archive.extractfile(member)) is not None
        }
