"""The whole system in a few worlds on every run; `make simulate` plays hundreds."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.ctl.admin import worlds
from services.ctl.admin.worlds import run_worlds
from services.simulator.scenarios import SCENARIOS
from services.simulator.scenarios.kept import KeptWorlds
from services.simulator.scenarios.port import Verdict
from services.simulator.scenarios.runner import UnknownScenarioError, run

PRINT_LOG = (
    "import sys, hashlib; from services.simulator.scenarios import SCENARIOS; "
    "v = SCENARIOS['basic'](int(sys.argv[1])); "
    "print(hashlib.sha256('\\n'.join(v.log).encode()).hexdigest(), len(v.log))"
)


@pytest.mark.parametrize("seed", range(1, 9))
def test_no_workload_is_lost_repeated_or_above_quota(seed: int) -> None:
    assert SCENARIOS["basic"](seed).problems == []


def test_history_depends_on_the_seed_and_not_on_python_hash_seed() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", PRINT_LOG, "25"],
            env={"PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=100,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(told) == 1


def test_second_world_in_a_process_behaves_like_the_first() -> None:
    first, second = SCENARIOS["basic"](3), SCENARIOS["basic"](3)
    assert first.log == second.log
    assert first.log


def test_runner_prints_the_failure_and_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def play(seed: int) -> Verdict:
        problems = ["a quota is exceeded"] if seed == 7 else []
        return Verdict(seed=seed, problems=problems, log=["first", "last words"])

    monkeypatch.setitem(SCENARIOS, "toy", play)
    out = io.StringIO()

    assert run("toy", 3, start=5, jobs=1, out=out) == 1

    said = out.getvalue()
    assert "a quota is exceeded" in said
    assert "last words" in said
    assert "sluice simulate-world --scenario toy --first-seed 7 --seeds 1 --log" in said
    assert said.splitlines()[-1] == "simulate: toy: 2 of 3 seeds ok"


def test_runner_exits_with_zero_when_all_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCENARIOS, "toy", lambda seed: Verdict(seed=seed))
    out = io.StringIO()
    assert run("toy", 3, jobs=1, out=out) == 0
    assert out.getvalue().splitlines()[-1] == "simulate: toy: 3 of 3 seeds ok"


def test_run_that_was_ended_goes_on_with_what_did_not_pass(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played: list[int] = []

    def play(seed: int) -> Verdict:
        played.append(seed)
        problems = ["a quota is exceeded"] if seed == 2 and len(played) < 4 else []
        return Verdict(seed=seed, problems=problems, probes={"put-off": 1})

    def kept(state: str = "abc") -> KeptWorlds:
        return KeptWorlds(tmp_path, state, "toy")

    monkeypatch.setitem(SCENARIOS, "toy", play)
    assert run("toy", 3, jobs=1, kept=kept(), out=io.StringIO()) == 1
    with next(tmp_path.iterdir()).open("a", encoding="utf-8") as file:
        file.write('\n{"seed": 4, "pro')  # The process died while it wrote.
    out = io.StringIO()
    assert run("toy", 4, jobs=1, kept=kept(), out=out) == 0
    assert played == [1, 2, 3, 2, 4]
    assert "2 of 4 passed in an earlier run" in out.getvalue()
    assert "4  put-off" in out.getvalue()
    assert run("toy", 1, jobs=1, kept=kept("another state"), out=io.StringIO()) == 0
    assert played[-1] == 1


def test_worlds_of_an_installed_release_are_not_kept_for_the_repository_of_somebody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for command in (("init", "--quiet"), (*identity, "commit", "--allow-empty", "-qm", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    (tmp_path / "installed").mkdir()
    monkeypatch.setattr(worlds, "_CHECKOUT", tmp_path / "installed")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setitem(SCENARIOS, "toy", lambda seed: Verdict(seed=seed))
    monkeypatch.chdir(tmp_path)
    assert run_worlds("toy", first_seed=1, seeds=2) == 0
    assert [*tmp_path.rglob("*.jsonl")] == []


def test_unknown_scenario_is_refused_with_the_list_of_scenarios() -> None:
    with pytest.raises(UnknownScenarioError, match="no scenario 'nonesuch'; there are: basic"):
        run("nonesuch", 1)
