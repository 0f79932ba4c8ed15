"""Reads the JSON reports that the suites write, and says what counts. Pure."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

Verdict = Literal["passed", "failed", "not applicable", "not run"]
Results = dict[str, str]
"""Name of each spec of a suite to `passed`, `not run`, or the first line of its failure."""

PASSED: Final = "passed"
NOT_RUN: Final = "not run"
NOT_APPLICABLE: Final = Path(__file__).with_name("not_applicable.yaml")
DIFFERENCES: Final = Path(__file__).with_name("differences.yaml")
SEPARATOR: Final = " / "
WHY_CHARACTERS_MAX: Final = 160
_UNRUN: Final = frozenset({"skipped", "pending"})
_VOLATILE: Final = re.compile(r"0x[0-9a-f]+|\d+\.\d+s\b|\S*/test/integration/")
"""Addresses, durations and folders: what differs from run to run and from machine to machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Specs that do not count, or count and do not pass, and why."""

    heading: str
    reason: str
    specs: tuple[str, ...]
    """Parts of the specs' full names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One spec of a suite, as it ended."""

    name: str
    verdict: Verdict
    why: str = ""
    """Of a failure: its first line. Of one that is not applicable: the heading of its exclusion."""


def results(report: Iterable[Mapping[str, Any]]) -> Results:
    """Name to result of each spec; a name that comes again gets a number."""
    found: Results = {}
    for suite in report:
        for each in suite.get("SpecReports") or []:
            if each.get("LeafNodeType") == "It":
                found[_unused(_name(each), found)] = _result(each)
    return found


def _name(report: Mapping[str, Any]) -> str:
    containers = report.get("ContainerHierarchyTexts") or []
    return SEPARATOR.join([*containers, str(report.get("LeafNodeText"))])


def _unused(name: str, found: Results) -> str:
    number, unused = 1, name
    while unused in found:
        number += 1
        unused = f"{name} #{number}"
    return unused


def _result(report: Mapping[str, Any]) -> str:
    state = str(report.get("State"))
    if state == PASSED or state in _UNRUN:
        return PASSED if state == PASSED else NOT_RUN
    message = str((report.get("Failure") or {}).get("Message", "")).strip()
    first = _VOLATILE.sub("", message.splitlines()[0]) if message else ""
    return f"{state}: {first[:WHY_CHARACTERS_MAX]}" if first else state


def merged(before: Mapping[str, str], after: Mapping[str, str]) -> Results:
    """What is known after a run of some of a suite's specs: the others keep their results."""
    known = {name: before.get(name, NOT_RUN) for name in after}
    return known | {name: result for name, result in after.items() if result != NOT_RUN}


def specs(found: Mapping[str, str], excluded: Iterable[Exclusion]) -> list[Spec]:
    """Each spec with its verdict; what is excluded does not count whether it ran or not."""
    return list(_specs(found, tuple(excluded)))


def _specs(found: Mapping[str, str], excluded: tuple[Exclusion, ...]) -> Iterator[Spec]:
    for name, result in found.items():
        for exclusion in excluded:
            if explains(exclusion, name):
                yield Spec(name=name, verdict="not applicable", why=exclusion.heading)
                break
        else:
            if result in {PASSED, NOT_RUN}:
                yield Spec(name=name, verdict="passed" if result == PASSED else "not run")
            else:
                yield Spec(name=name, verdict="failed", why=result)


def exclusions() -> tuple[Exclusion, ...]:
    """What `not_applicable.yaml` lists."""
    return _listed(NOT_APPLICABLE)


def differences() -> tuple[Exclusion, ...]:
    """What `differences.yaml` lists: specs that count and do not pass, with the reason."""
    return _listed(DIFFERENCES)


def explains(reason: Exclusion, name: str) -> bool:
    """Whether the spec of this full name is listed under this reason."""
    return any(part in name for part in reason.specs)


def _listed(path: Path) -> tuple[Exclusion, ...]:
    document: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
    return tuple(
        Exclusion(heading=heading, reason=one["reason"], specs=tuple(one["specs"]))
        for heading, one in document.items()
    )


def skip_pattern(excluded: Iterable[Exclusion]) -> str:
    """A regular expression for `--ginkgo.skip`: Ginkgo joins containers and text by spaces."""
    parts = (part for exclusion in excluded for part in exclusion.specs)
    return "|".join(re.escape(part.replace(SEPARATOR, " ")).replace("\\ ", " ") for part in parts)


def read(path: Path) -> list[dict[str, Any]]:
    """The report of a suite; empty if it wrote none."""
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def counts(found: Iterable[Spec]) -> dict[Verdict, int]:
    """How many specs have each verdict."""
    number: dict[Verdict, int] = dict.fromkeys(("passed", "failed", "not applicable", "not run"), 0)
    for spec in found:
        number[spec.verdict] += 1
    return number


def summary(found: Iterable[Spec]) -> str:
    """The last line of a run. A spec that did not run has not passed."""
    number = counts(found)
    applicable = number["passed"] + number["failed"] + number["not run"]
    excluded = number["not applicable"]
    return f"kueue suites: {number['passed']} of {applicable} specs pass, {excluded} not applicable"
