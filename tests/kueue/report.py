"""Reads the JSON reports that the suites write. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

Verdict = Literal["passed", "failed", "not applicable"]

NOT_APPLICABLE: Final = Path(__file__).with_name("not_applicable.yaml")
_UNRUN: Final = frozenset({"skipped", "pending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One spec of a suite, as it ended."""

    name: str
    verdict: Verdict
    why: str = ""
    """Of a failure: its first line. Of one that is not applicable: the heading of its exclusion."""


def specs(report: Iterable[Mapping[str, Any]], exclusions: Mapping[str, list[str]]) -> list[Spec]:
    """The specs that ran, and those that are excluded whether they ran or not."""
    return [
        spec
        for suite in report
        for each in suite.get("SpecReports") or []
        if each.get("LeafNodeType") == "It"
        for spec in _spec(each, exclusions)
    ]


def _spec(report: Mapping[str, Any], exclusions: Mapping[str, list[str]]) -> Iterator[Spec]:
    containers = report.get("ContainerHierarchyTexts") or []
    name = " / ".join([*containers, str(report.get("LeafNodeText"))])
    for heading, parts in exclusions.items():
        if any(part in name for part in parts):
            yield Spec(name=name, verdict="not applicable", why=heading)
            return
    state = report.get("State")
    if state in _UNRUN:
        return
    message = str((report.get("Failure") or {}).get("Message", "")).strip()
    why = message.splitlines()[0] if message else str(state)
    passed = state == "passed"
    yield Spec(name=name, verdict="passed" if passed else "failed", why="" if passed else why)


def exclusions() -> dict[str, list[str]]:
    """Heading to the parts of names that `not_applicable.yaml` lists."""
    found: dict[str, list[str]] = yaml.safe_load(NOT_APPLICABLE.read_text())
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """The report of a suite; empty if it wrote none."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def summary(found: Iterable[Spec]) -> str:
    """The last line of a run."""
    counts = dict.fromkeys(("passed", "failed", "not applicable"), 0)
    for spec in found:
        counts[spec.verdict] += 1
    applicable = counts["passed"] + counts["failed"]
    excluded = counts["not applicable"]
    return f"kueue suites: {counts['passed']} of {applicable} specs pass, {excluded} not applicable"
