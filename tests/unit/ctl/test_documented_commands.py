"""What the documents' sentences say in passing of `sluice`: commands and options that exist.

Commands in blocks are run (`tests/e2e/test_documents.py`); those within a sentence often stand for more
than can be run, so here only their words are looked up.
"""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from services.ctl.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
PAGES.remove(ROOT / "docs" / "reference" / "cli.md")  # It is made from the commands.
INLINE = re.compile(r"`(?:\.venv/bin/)?(sluice [^`]+)`")


def mentions() -> Iterator[tuple[str, str]]:
    """Page, and command."""
    for path in PAGES:
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for found in INLINE.finditer(text):
            yield str(path.relative_to(ROOT)), " ".join(found[1].split())


def problem_of(line: str) -> str:
    """Which word is none of `sluice`; empty: all are."""
    command: Any = get_command(app)
    options: set[str] = {"--help"}
    for word in shlex.split(line.replace("…", ""))[1:]:
        if getattr(command, "commands", None) and not word.startswith("-"):
            below = command.commands.get(word)
            if below is None and not command.invoke_without_command:
                return f"there is no command {word}"
            command = below or command
        elif word.startswith("-") and word != "-":
            options |= {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
            if word.partition("=")[0] not in options and not command.ignore_unknown_options:
                return f"there is no option {word}"
    return ""


def test_commands_and_options_named_in_docs_exist() -> None:
    said = list(mentions())
    assert len(said) > 30
    assert [f"{page}: `{line}`: {why}" for page, line in said if (why := problem_of(line))] == []


PROGRAM = re.compile(r"`(?:\.venv/bin/)?(make|python -m) ([\w.-]+)[^`]*`")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_make_targets_and_modules_named_in_docs_exist() -> None:
    said = [
        (path.relative_to(ROOT), program, name)
        for path in PAGES
        for program, name in PROGRAM.findall(path.read_text())
    ]
    assert len(said) > 20
    assert [each for each in said if not exists(*each[1:])] == []


def exists(program: str, name: str) -> bool:
    return name in TARGETS if program == "make" else find_spec(name) is not None


FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def leads_to(page: Path) -> set[Path]:
    """The files and folders of this repository that a page links to; code has no links."""
    text = FENCED.sub("", page.read_text())
    return {(page.parent / link).resolve() for link in LINK.findall(text)}


def test_every_link_in_docs_has_a_target() -> None:
    broken = {str(page.relative_to(ROOT)): leads_to(page) for page in PAGES}
    broken = {page: {at for at in found if not at.exists()} for page, found in broken.items()}
    assert {page: found for page, found in broken.items() if found} == {}


@pytest.mark.parametrize("folder", ["tutorial", "how-to", "reference", "explanation", "runbooks"])
def test_the_readme_leads_to_every_page(folder: str) -> None:
    pages = [*(ROOT / "docs" / folder).glob("*.md")]
    if folder == "runbooks":
        pages = [ROOT / "docs" / folder / "README.md"]
    assert [str(page) for page in pages if page not in leads_to(ROOT / "README.md")] == []


def test_the_list_of_runbooks_leads_to_each() -> None:
    pages = {*(ROOT / "docs" / "runbooks").glob("*.md")}
    index = ROOT / "docs" / "runbooks" / "README.md"
    assert pages - leads_to(index) == {index}


def test_unknown_command_in_docs_is_found() -> None:
    assert problem_of("sluice get workloads -n a --all-namespaces") == ""
    assert problem_of("sluice frobnicate") == "there is no command frobnicate"
    assert problem_of("sluice bus aply") == "there is no command aply"
    assert problem_of("sluice get workloads --al") == "there is no option --al"
