"""What a command that takes long tells on standard error meanwhile, and what one that does not."""

import io
import sys
import threading
from contextlib import redirect_stderr
from pathlib import Path

import pytest
import yaml

from services.ctl.connect import progress as told
from services.ctl.connect.progress import progress
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.ctl.bad_input import NO_SERVER
from tests.unit.ctl.whatif_objects import CONFIGURATION_KINDS, Sluice, cluster_queue, job


class Terminal(io.StringIO):
    """Standard error that says when it has a number of lines."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def write(self, text: str) -> int:
        with self.changed:
            self.changed.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.getvalue(), PATIENCE_SECONDS)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Whatever takes long tells it at once, and again and again."""
    monkeypatch.setattr(told, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(told, "AGAIN_SECONDS", 0.001)
    return Terminal()


def test_work_that_is_done_at_once_tells_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ctl.connect.progress.FIRST_SECONDS", 3600.0)
    with progress("counting") as note:
        note("counting on")

    assert capsys.readouterr() == ("", "")


def test_work_that_takes_long_tells_what_it_does_now_and_for_how_long(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("counting") as note:
        terminal.wait_for("sluice: counting (0 s)\nsluice: counting (0 s)\n")
        note("adding up")
        terminal.wait_for("sluice: adding up (0 s)\n")
    ended = terminal.getvalue()

    assert not [each for each in threading.enumerate() if each.name == "progress"]
    assert terminal.getvalue() == ended, "nothing is told behind the end"


def test_progress_does_not_go_into_what_the_work_prints_elsewhere(terminal: Terminal) -> None:
    printed = io.StringIO()
    with redirect_stderr(terminal), progress("making a part"), redirect_stderr(printed):
        terminal.wait_for("sluice: making a part (0 s)\n")

    assert printed.getvalue() == ""


def test_work_goes_on_where_nobody_can_be_told(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress("counting"):
        terminal.wait_for("counting")
        terminal.close()
        done = 1 + 1

    assert done == 2


def test_process_without_standard_error_tells_nobody(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with progress("counting"):
        assert not [each for each in threading.enumerate() if each.name == "progress"]

    assert capsys.readouterr().out == ""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a second."""
    monkeypatch.setattr(told, "FIRST_SECONDS", 0.0)


COMMANDS = {
    "simulate": (("simulate", "--state", "{state}"), "sluice: reading what waits and runs ("),
    "plan": (
        ("plan", "--state", "{state}", "-f", "{job}"),
        "sluice: reading what waits and runs (",
    ),
    "install": (
        ("install", "--kubeconfig", "{nobody}", "--wait-seconds", "1"),
        "sluice: waiting for the API server (",
    ),
    "support-bundle": (
        ("support-bundle", "--out", "{state}/b.tar.gz", "--nats-url", "nats://127.0.0.1:9"),
        "sluice: reading the logs (",
    ),
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("command", "sentence"), COMMANDS.values(), ids=COMMANDS)
def test_command_that_may_take_long_says_so(
    tmp_path: Path, sluice: Sluice, command: tuple[str, ...], sentence: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    objects = [*CONFIGURATION_KINDS, cluster_queue(4), *(job(f"j{n}", 1) for n in range(50))]
    (state / "queues.yaml").write_text(yaml.safe_dump_all(objects))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job("one", 1)))
    (tmp_path / "nobody").write_text(NO_SERVER)
    places = {"state": state, "job": tmp_path / "job.yaml", "nobody": tmp_path / "nobody"}

    _, out, err = sluice(*(argument.format(**places) for argument in command))

    assert sentence in err
    assert sentence not in out
