"""The alert rules: each fires when it should and not when it should not, and says what to do."""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.monitoring.asked import ROOT, RULES, every_rule, labels_of_series
from tests.monitoring.promql import Vector, evaluate, metrics_in
from tests.monitoring.promtool import PROMTOOL, run
from tests.monitoring.recording import NAME, Recording, Series, read, series_of, values_of

TESTS: Final = Path(__file__).with_name("rules.test.yaml")
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
UNITS: Final = {"s": 1, "m": 60, "h": 3600}
Json = dict[str, Any]


def seconds(duration: str) -> int:
    return int(duration[:-1]) * UNITS[duration[-1]]


CASES: Final[list[Json]] = yaml.safe_load(TESTS.read_text())["tests"]
EVERY_SECONDS: Final = seconds(yaml.safe_load(TESTS.read_text())["evaluation_interval"])
BY_NAME: Final = {rule["alert"]: rule for rule in every_rule()}


def firing(rule: Json, recording: Recording, at: int) -> set[frozenset[tuple[str, str]]]:
    """Labels of the alerts that have been so for as long as the rule wants."""
    since: dict[frozenset[tuple[str, str]], int] = {}
    for now in range(0, at + 1, EVERY_SECONDS):
        answer = evaluate(rule["expr"], recording, now)
        assert isinstance(answer, dict), "a rule asks for a vector"
        since = {labels: since.get(labels, now) for labels in _alerts(rule, answer)}
    wanted = seconds(rule.get("for", "0s"))
    return {labels for labels, began in since.items() if at - began >= wanted}


def _alerts(rule: Json, answer: Vector) -> set[frozenset[tuple[str, str]]]:
    return {
        frozenset(({**dict(labels), **rule["labels"]}.items()) - {(NAME, dict(labels).get(NAME))})
        for labels in answer
    }


def recording_of(case: Json) -> Recording:
    return Recording(
        float(seconds(case["interval"])),
        tuple(
            Series(series_of(one["series"]), values_of(one["values"]))
            for one in case["input_series"]
        ),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_alert_fires_in_its_case_only(case: Json) -> None:
    recording = recording_of(case)
    for question in case["alert_rule_test"]:
        expected = {
            frozenset(one["exp_labels"].items()) for one in question.get("exp_alerts") or []
        }
        rule, at = BY_NAME[question["alertname"]], seconds(question["eval_time"])
        assert firing(rule, recording, at) == expected, (
            f"{rule['alert']} at {question['eval_time']}"
        )


def test_each_alert_has_a_firing_and_a_silent_case() -> None:
    shown: dict[str, set[bool]] = defaultdict(set)
    for case in CASES:
        for question in case["alert_rule_test"]:
            shown[question["alertname"]].add(bool(question.get("exp_alerts")))
    assert shown == {name: {True, False} for name in BY_NAME}
    assert len(BY_NAME) >= 15


def test_rules_use_declared_metrics_and_labels() -> None:
    known = labels_of_series()
    for rule in every_rule():
        for metric, labels in metrics_in(rule["expr"]):
            assert metric in known, f"{rule['alert']}: nobody tells {metric}"
            assert labels <= known[metric] | {"job", "instance", "le"}, f"{rule['alert']}: {labels}"


def test_healthy_system_fires_no_alert() -> None:
    recording = read()
    last = int(recording.step_seconds * (len(recording.series[0].values) - 1))
    for rule in every_rule():
        at_once = {**rule, "for": "0s"}
        assert firing(at_once, recording, last - last % EVERY_SECONDS) == set(), rule["alert"]


def test_each_alert_has_a_runbook() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("Sluicegate*.md")}
    assert pages == BY_NAME.keys()
    for name, rule in BY_NAME.items():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"critical", "warning"}
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        for heading in ("## What it means", "## What to look at", "## What to do"):
            assert f"\n{heading}\n" in text, f"{name} lacks {heading}"
        assert name in (RUNBOOKS / "README.md").read_text()


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on the PATH: Prometheus is not asked")
def test_promtool_accepts_the_rules_and_their_tests(tmp_path: Path) -> None:
    for what, path in (("rules", RULES), ("config", RULES.with_name("prometheus.yaml"))):
        checked = run("check", what, str(path))
        assert checked.returncode == 0, checked.stdout + checked.stderr
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # It compares them too, and what they say is no question here.
    bare = tmp_path / "rules.yaml"
    bare.write_text(yaml.safe_dump(rules))
    tests = tmp_path / "rules.test.yaml"
    tests.write_text(
        yaml.safe_dump({**yaml.safe_load(TESTS.read_text()), "rule_files": [str(bare)]})
    )
    tested = run("test", "rules", str(tests))
    assert tested.returncode == 0, tested.stdout + tested.stderr
