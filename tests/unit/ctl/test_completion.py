"""Completion: what a shell is given, and what it offers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.ctl.cli.completion import script
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
def test_each_shell_gets_a_script(shell: str) -> None:
    assert "_SLUICE_COMPLETE" in script(shell)


def test_other_shells_are_refused() -> None:
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
    ],
)
def test_words_are_completed_also_where_nobody_can_be_asked(line: str, offered: list[str]) -> None:
    text = run(
        _SLUICE_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(line.count(" ")),
        NATS_URL=NOBODY,
    )
    assert text.split() == offered
