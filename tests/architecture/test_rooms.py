"""ARCHITECTURE.md and CONTRIBUTING.md name what exists, and every folder of a service."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from services.ctl.programs import SERVICES
from shared.bus.admin.permissions import reads_of

ROOT = Path(__file__).parents[2]
ARCHITECTURE, CONTRIBUTING = ROOT / "docs" / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"
QUOTED = re.compile(r"`([^`\n]+)`")
NAME_OF_FILE = re.compile(r"`(\w+)`(?: \([^)]*\))? of `([\w/.-]+\.(?:py|yaml))`")
WRITTEN_OUT = re.compile(r"[ <*]|\{cluster\}")
"""Commands, and patterns of names."""


@cache
def tree() -> tuple[list[str], str, frozenset[str]]:
    """Files and folders, the text of all sources, and its words."""
    tops = ("services", "shared", "tests", "deploy", "docs")
    paths = [p for top in tops for p in (ROOT / top).rglob("*") if "__pycache__" not in p.parts]
    paths += [p for p in ROOT.iterdir() if p.is_file()]
    own = Path(__file__)
    code = [p for p in paths if p.suffix in {".py", ".yaml", ".toml", ""} and p != own]
    text = "\n".join(p.read_text(errors="replace") for p in code if p.is_file())
    return (
        [f"/{p.relative_to(ROOT).as_posix()}" for p in paths],
        text,
        frozenset(re.findall(r"\w+", text)),
    )


def written_out(word: str) -> Iterator[str]:
    """`a/{b,c}.yaml` is two names."""
    before, brace, rest = word.partition("{")
    among, _, after = rest.partition("}")
    yield from (before + one + after for one in among.split(",")) if brace else (word,)


def names_nothing(word: str) -> bool:
    paths, text, words = tree()
    place = f"/{word.rstrip('/')}"
    if any(path.endswith(place) for path in paths):
        return False
    if "/" in word and re.fullmatch(r"[\w/-]+/|[\w/.-]+\.(py|yaml|md)", word):
        return True
    return word not in words and (word.isidentifier() or word not in text)


def unknown_in(page: str) -> list[str]:
    words = {word for word in QUOTED.findall(page) if not WRITTEN_OUT.search(word)}
    return sorted(
        one for word in words for one in written_out(word) if names_nothing(one)
    ) + sorted(
        f"{name} of {path}"
        for name, path in NAME_OF_FILE.findall(page)
        if not any(
            defines(name, (ROOT / each[1:]).read_text())
            for each in tree()[0]
            if each.endswith(f"/{path}")
        )
    )


def defines(name: str, text: str) -> bool:
    """Whether a module or a document defines it: an import does not."""
    return bool(
        re.search(rf"^ *(?:(?:async )?def |class |- )?{name}\b(?!,| as )", text, re.MULTILINE)
    )


@pytest.mark.parametrize("page", [ARCHITECTURE, CONTRIBUTING], ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    assert unknown_in(page.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "`services/quota/nowhere.py`",
        "`nowhere/` holds",
        "`_NO_SUCH_NAME`",
        "`deploy/kubernetes/base/{watcher,nobody}/rbac.yaml`",
        "`ANSWERED_BY` of `shared/contracts/windows.py`",
        "`REJECTION_REMEDIES` of `services/quota/engine/views/explanation.py`",
    ],
)
def test_what_does_not_exist_is_found(line: str) -> None:
    assert unknown_in(line)


def row_of(folder: str) -> str:
    """What the table of rooms says is inside of a folder."""
    [row] = re.findall(
        rf"^\|[^|]*`{folder}`[^|]*\| (.*) \|$", ARCHITECTURE.read_text(), re.MULTILINE
    )
    return str(row)


PACKAGES = sorted(path.parent.name for path in (ROOT / "services").glob("*/__init__.py"))


@pytest.mark.parametrize("service", PACKAGES)
def test_row_of_a_service_names_each_of_its_folders(service: str) -> None:
    inside = row_of(f"services/{service}")
    folders = [path.parent.name for path in (ROOT / "services" / service).glob("*/__init__.py")]
    assert [name for name in folders if f"{name}/" not in inside] == []


@pytest.mark.parametrize("service", [service.value for service in SERVICES])
def test_table_of_services_has_the_logs_that_each_may_read(service: str) -> None:
    said = row_of(service).partition(" | ")[0]
    assert {word for word in QUOTED.findall(said) if word.isupper()} == set(reads_of(service) or ())
