"""Classification agrees with the reference: the whole set where it is at hand, else a sample."""

from pathlib import Path

import pytest
import yaml

from services.classifier.cel import CelEngine
from services.classifier.rules import parse_rules
from tests.conformance.classification import compare_expressions, compare_pipeline_runs, main

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "tests" / "conformance" / "samples" / "classification"
WHOLE = ROOT.parent / "shared" / "conformance" / "classification"
SEEDS = ROOT.parent / "shared" / "seeds"
CASES = WHOLE if WHOLE.is_dir() else SAMPLES
CONFIGURATION = ROOT / "deploy" / "examples" / "konflux" / "classifier"


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seed documents are not at hand")
def test_shipped_expressions_equal_those_of_the_seed() -> None:
    document = next(SEEDS.glob("000_*.txt")).read_text()
    quoted = document[document.index("queueName: pipelines-queue\ncel:") :]
    seed = yaml.safe_load(quoted[: quoted.index("What this configuration does")])

    assert yaml.safe_load((CONFIGURATION / "config.yaml").read_text()) == seed


def test_pipeline_run_gets_class_and_requests_of_tekton_kueue() -> None:
    rules = parse_rules((CONFIGURATION / "config.yaml").read_text(), CelEngine())
    cases = yaml.safe_load((CASES / "konflux_cases.yaml").read_text())["cases"]

    outcomes = list(compare_pipeline_runs(cases, rules))

    assert [outcome for outcome in outcomes if not outcome.matches] == []
    assert len(outcomes) == len(cases) > 20


def test_expression_compiles_and_evaluates_as_in_tekton_kueue() -> None:
    cases = yaml.safe_load((CASES / "cel_cases.yaml").read_text())["cases"]

    outcomes = list(compare_expressions(cases, CelEngine()))

    assert [outcome for outcome in outcomes if not outcome.matches] == []
    assert len(outcomes) == len(cases) > 20


def test_command_prints_matches_and_exits_0_only_if_all_match(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["--cases", str(SAMPLES / "cel_cases.yaml"), "--cel"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "classification: 30 of 30 cases match"

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text('cases: [{expr: \'label("a", "b")\', result: compile-error}]')

    assert main(["--cases", str(wrong), "--cel"]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "classification: 0 of 1 cases match"
    assert "expected {'result': 'compile-error'}" in output[1]


def test_the_sample_passes_with_the_shipped_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["--cases", str(SAMPLES / "konflux_cases.yaml"), "--config", str(CONFIGURATION)])

    assert status == 0
    assert capsys.readouterr().out == "classification: 30 of 30 cases match\n"
