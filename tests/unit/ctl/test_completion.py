"""Completion: what a shell is given, and what it offers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.ctl.get.completion import script
from shared.runtime.command import CommandError

NOBODY = "nats://127.0.0.1:9"


def run(*arguments: str, **environment: str) -> str:
    """What it prints."""
    return subprocess.run(
        [Path(sys.executable).with_name("sluice"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    ).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_exists_for_each_shell(shell: str) -> None:
    assert "_SLUICE_COMPLETE" in script(shell)


def test_completion_of_unknown_shell_is_refused() -> None:
    with pytest.raises(CommandError, match="tcsh: is no shell that is known: bash, zsh, fish"):
        script("tcsh")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sluice expl", ["explain"]),
        ("sluice get c", ["clusterqueues", "cohorts"]),
        ("sluice get cq ", []),
        ("sluice get wl -o ", ["table", "wide", "json", "yaml", "name"]),
        ("sluice explain -o ", ["text", "json"]),
        ("sluice explain ", []),
        ("sluice stop l", ["localqueue"]),
        ("sluice completion z", ["zsh"]),
        ("sluice plan --remove C", ["ClusterQueue/", "Cohort/"]),
        ("sluice plan --remove ClusterQueue/", []),
        ("sluice uninstall --context ", []),
        ("sluice plan --cluster ", []),
        ("sluice simulate-world --scenario late-d", ["late-decisions"]),
    ],
)
def test_completion_without_nats_still_offers_fixed_words(line: str, offered: list[str]) -> None:
    text = run(
        _SLUICE_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
        NATS_URL=NOBODY,
        KUBECONFIG="",
    )
    assert text.split() == offered


def test_contexts_are_those_of_the_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("contexts: [{name: prod-eu}, {name: prod-us}, {name: laptop}]")
    text = run(
        _SLUICE_COMPLETE="complete_bash",
        COMP_WORDS="sluice doctor --context prod",
        COMP_CWORD="3",
        KUBECONFIG=str(file),
    )
    assert text.split() == ["prod-eu", "prod-us"]
