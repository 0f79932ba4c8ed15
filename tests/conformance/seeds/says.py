"""Which test holds which paragraph of the seed documents, and the README that says so.

    python -m tests.conformance.seeds.says [--write]

`paragraphs.yaml` lists every paragraph; a test names the lines that it holds by `@says("004:26")`.
Tests are found by reading the files, so that this needs none of what they import. Without
`--write` nothing is written, and the exit status is 1 if the README is not what it should be.
"""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

__all__ = ["FOLDER", "Paragraph", "main", "mapped", "readme", "says"]

FOLDER: Final = Path(__file__).parent
README: Final = FOLDER / "README.md"
PLACE: Final = re.compile(r"(?P<seed>00[0-4]):(?P<first>\d+)(?:-(?P<last>\d+))?")

TITLES: Final[Mapping[str, str]] = {
    "000": "PipelineRun scheduling with Kueue",
    "001": "Kueue for Kelos",
    "002": "TEP-0135: coscheduling PipelineRun pods",
    "003": "Kueue: quota and fair shares of GPUs",
    "004": "Workload",
}

Test = TypeVar("Test", bound=Callable[..., Any])


def says(*places: str) -> Callable[[Test], Test]:
    """Mark a test as holding what the seeds say there: `003:88`, `004:52-54`.

    Raises `ValueError` for a place that is none.
    """
    for place in places:
        _place(place)
    return lambda test: test


@dataclass(slots=True, kw_only=True)
class Paragraph:
    """A paragraph of a seed, and who holds it."""

    seed: str
    first: int
    last: int
    says: str
    nothing: str
    tests: list[str] = field(default_factory=list)
    """`<file>::<test>`, in the order of files and lines."""


def _place(place: str) -> tuple[str, int, int]:
    found = PLACE.fullmatch(place)
    if found is None:
        raise ValueError(f"{place!r} is no place in a seed; write 004:26 or 004:52-54")
    first = int(found["first"])
    return found["seed"], first, int(found["last"] or first)


def mapped() -> list[Paragraph]:
    """All paragraphs with their tests. Raises `ValueError` where a test names lines of none."""
    listed = yaml.safe_load((FOLDER / "paragraphs.yaml").read_text())
    paragraphs = [
        Paragraph(
            seed=seed[:3],
            first=int(str(one["lines"]).split("-")[0]),
            last=int(str(one["lines"]).split("-")[-1]),
            says=one["says"],
            nothing=one.get("nothing", ""),
        )
        for seed, ones in listed.items()
        for one in ones
    ]
    for test, places in _tests():
        for place in places:
            _note(paragraphs, test, place)
    return paragraphs


def _note(paragraphs: list[Paragraph], test: str, place: str) -> None:
    seed, first, last = _place(place)
    held = [p for p in paragraphs if p.seed == seed and p.first <= last and first <= p.last]
    if not held:
        raise ValueError(f"{test} says {place}, where no paragraph is")
    for paragraph in held:
        if test not in paragraph.tests:
            paragraph.tests.append(test)


def _tests() -> Iterator[tuple[str, list[str]]]:
    for path in sorted(FOLDER.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                places = [
                    ast.literal_eval(argument)
                    for decorator in node.decorator_list
                    if isinstance(decorator, ast.Call)
                    and isinstance(decorator.func, ast.Name)
                    and decorator.func.id == says.__name__
                    for argument in decorator.args
                ]
                if places:
                    yield f"{path.name}::{node.name}", places


def readme() -> str:
    """Return what the README should be."""
    paragraphs = mapped()
    parts = [HEAD]
    for seed, title in TITLES.items():
        parts.append(f"\n## {seed}: {title}\n\n| lines | what it says | held by |\n|---|---|---|\n")
        parts += [_row(p) for p in paragraphs if p.seed == seed]
    return "".join(parts)


def _row(paragraph: Paragraph) -> str:
    lines = (
        str(paragraph.first)
        if paragraph.first == paragraph.last
        else f"{paragraph.first}-{paragraph.last}"
    )
    held = [f"[{_sentence(test)}]({test.partition('::')[0]})" for test in paragraph.tests]
    if not held:
        held = [f"nothing to hold: {paragraph.nothing}"]
    return f"| {lines} | {paragraph.says} | {'<br>'.join(held)} |\n"


def _sentence(test: str) -> str:
    return test.partition("::")[2].removeprefix("test_").replace("_", " ")


HEAD: Final = """\
# What the seed documents say, and which test holds it

Five documents are what Sluicegate is measured by (what each paragraph asks for is in
`paragraphs.yaml`). Each test here is named by the sentence that it holds, and each row says who
holds a paragraph. They run on the whole system in simulated worlds (`stage.py`): an API server,
the services, virtual time, no mocks.

A test says what it holds by `@says("004:26")`: document and lines. This page is made of that and of
`paragraphs.yaml` by `python -m tests.conformance.seeds.says --write`; `test_readme.py` fails where
it is not up to date, and where a line of a document belongs to no paragraph. Tests of spokes are in
`test_spokes_*.py`, of machines in `test_machines_*.py`.
"""


def main(arguments: list[str] | None = None) -> int:
    """Check or write the README; return the exit status."""
    parser = argparse.ArgumentParser(prog="says", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write README.md")
    options = parser.parse_args(arguments)
    wanted = readme()
    if options.write:
        README.write_text(wanted)
        return 0
    return 0 if README.read_text() == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
