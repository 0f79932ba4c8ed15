"""Prometheus' own evaluation, where its `promtool` is on the PATH."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from tests.monitoring.promql import Vector
from tests.monitoring.recording import Labels, Recording, series_of, text_of

__all__ = ["PROMTOOL", "answers", "run"]

PROMTOOL: Final = shutil.which("promtool")

_QUESTION: Final = re.compile(r'expr: "(?P<expr>.*)", time: (?P<seconds>\d+)s?\S*,')
_SAMPLE: Final = re.compile(r"(\{(?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*\}) (\S+?)(?:, |$)")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it."""
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)


def answers(
    expressions: Iterable[str], recording: Recording, at: int, folder: Path
) -> dict[str, Vector]:
    """What Prometheus answers to each, of the same recording at the same moment.

    It is asked to expect nothing, and so says of each what it got instead.
    """
    wanted = list(expressions)
    step = f"{recording.step_seconds:g}s"
    path = folder / "questions.yaml"
    path.write_text(yaml.safe_dump(_questions(wanted, recording, at, step)))
    ran = run("test", "rules", str(path))
    found: dict[str, Vector] = {expression: {} for expression in wanted}
    lines = iter((ran.stdout + ran.stderr).splitlines())
    for line in lines:
        if (question := _QUESTION.search(line)) is not None:
            expected, got = next(lines), next(lines)
            assert expected.strip() == "exp: nil", expected
            found[yaml.safe_load(f'"{question["expr"]}"')] = dict(_samples(got))
    return found


def _questions(expressions: list[str], recording: Recording, at: int, step: str) -> Any:
    values = (
        (text_of(series.labels), " ".join("_" if v is None else repr(v) for v in series.values))
        for series in recording.series
    )
    return {
        "evaluation_interval": step,
        "tests": [
            {
                "interval": step,
                "input_series": [{"series": text, "values": each} for text, each in values],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": f"{at}s"} for expression in expressions
                ],
            }
        ],
    }


def _samples(line: str) -> Iterator[tuple[Labels, float]]:
    for labels, value in _SAMPLE.findall(line.partition("got: ")[2]):
        yield series_of(labels.replace('", ', '",')), float(value)
