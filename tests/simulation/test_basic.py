"""The whole system in a few worlds on every run; `make simulate` plays hundreds."""

import io
import subprocess
import sys

import pytest

from services.simulator.scenarios import SCENARIOS
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


def test_unknown_scenario_is_refused_with_the_list_of_scenarios() -> None:
    with pytest.raises(UnknownScenarioError, match="no scenario 'nonesuch'; there are: basic"):
        run("nonesuch", 1)
