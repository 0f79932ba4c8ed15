"""`sluice support-bundle`: it is whole although NATS is away, and holds no secret."""

import tarfile
from pathlib import Path

import pytest

from services.ctl.inspect.support_bundle import REDACTED, redacted
from shared.runtime.command import Exit
from tests.unit.ctl.whatif_objects import Sluice

NOWHERE = ("--nats-url", "nats://joe:hidden@127.0.0.1:9")
SEED = "SUA" + "B" * 55

SECRETS = {
    "a seed of NATS": (f"seed {SEED} read", f"seed {REDACTED} read"),
    "a private key": (
        "a\n-----BEGIN EC PRIVATE KEY-----\nabc\n-----END EC PRIVATE KEY-----\nb",
        f"a\n{REDACTED}\nb",
    ),
    "a private key that was cut": ("-----BEGIN PRIVATE KEY-----\nabc", REDACTED),
    "a token": ("token eyJhbGciOi.eyJzdWIi.c2ln sent", f"token {REDACTED} sent"),
    "a header": ("Authorization: Bearer abc123", f"Authorization: Bearer {REDACTED}"),
    "a password in an address": ("nats://joe:pw@host:4222", f"nats://{REDACTED}@host:4222"),
    "a password in a query": ("?password=abc&x=1", f"?password={REDACTED}"),
    "nothing": ("team/build-1 waits for 2 cpu", "team/build-1 waits for 2 cpu"),
}


@pytest.mark.parametrize(("text", "left"), SECRETS.values(), ids=SECRETS)
def test_secrets_are_redacted(text: str, left: str) -> None:
    assert redacted(text) == left


def test_without_nats_the_bundle_has_the_logs_and_says_what_could_not_be_read(
    tmp_path: Path, sluice: Sluice
) -> None:
    logs = tmp_path / "dev" / "logs"
    logs.mkdir(parents=True)
    (logs / "quota.log").write_text(f"leads\nseed {SEED}\n")
    file = tmp_path / "bundle.tar.gz"
    command = ("support-bundle", "--out", file, "--directory", tmp_path / "dev", *NOWHERE)

    status, out, err = sluice(*command)

    assert status == Exit.OK
    assert f"wrote {file}" in out
    assert "doctor.txt: " in err
    assert "workloads.txt: " in err
    with tarfile.open(file) as archive:
        texts = {
            member.name: opened.read().decode()
            for member in archive
            if (opened := archive.extractfile(member)) is not None
        }
    assert texts["bundle/logs/quota.log"] == f"leads\nseed {REDACTED}\n"
    assert "sluice " in texts["bundle/about.txt"]
    assert texts["bundle/status.txt"].startswith("could not be read: NATS at ")
    assert not any("hidden" in text for text in texts.values())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["bundle.tar.gz"]

    status, _, err = sluice(*command)

    assert status == Exit.WRONG_INPUT
    assert f"{file}: is there already" in err
