"""House rules that no linter knows. Each failure says what to do instead."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.architecture.rules import FUNCTION_LINES_MAX

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for top in ("services", "shared") for path in (ROOT / top).rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]

MODULE_LINES_MAX = 500

CLOCKS = (
    r"services/\w+/(app|__main__|command|bench)\.py|services/ctl/.*"
    r"|shared/runtime/service\.py|shared/bus/bench\.py"
    # A command of an operator: it dates the streams that it makes.
    r"|shared/bus/admin/apply\.py"
    # Outside of a world the memory bus keeps real time.
    r"|shared/testing/world/(wire|memory_server)\.py"
)
ENVIRONMENT = r"shared/settings/.*|services/ctl/.*|services/simulator/(app|__main__)\.py"
BANNED = {
    "datetime.now(": (CLOCKS, "take `now` as an argument"),
    "os.environ": (ENVIRONMENT, "read the environment in shared/settings"),
    "unittest.mock": ("", "write a fake in shared/testing that keeps the port's promises"),
    ".publish_async(": ("", "it never resolves on an error: use shared.bus.nats.publisher"),
    "FIXME": ("", "settle it before it lands"),
    "TODO": ("", "settle it before it lands, or file an issue"),
    "NotImplementedError": ("", "a port is a Protocol; nothing is left unimplemented"),
    ".subscriber(": ("shared/bus/.*", "register with `Bus.work`: the ack policy is in one place"),
    "NatsBroker(": (
        r"shared/bus/(nats/broker|admin/asyncapi)\.py",
        "use the broker factory: it sets the ack policy",
    ),
}
"""Text to (pattern of the files where it may stand, what to do instead)."""

VAGUE = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_a_module_is_small_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= MODULE_LINES_MAX, "split the module along a seam of the domain"
    assert ast.get_docstring(tree), "say in one line what the module is for"
    assert path.name not in VAGUE, "name the module after what is in it"
    for function in functions(tree):
        lines = (function.end_lineno or 0) - function.lineno + 1
        assert lines <= FUNCTION_LINES_MAX, f"{function.name} has {lines} lines: split it"


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_nothing_banned_is_used(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    text = unwrapped(path.read_text())
    for pattern, (allowed_in, instead) in BANNED.items():
        if allowed_in and re.fullmatch(allowed_in, name):
            continue
        assert pattern not in text, f"{pattern!r} is banned: {instead}"


def unwrapped(text: str) -> str:
    """The text with each chain of calls in one line."""
    return re.sub(r"\s*\n\s*\.", ".", text)


def test_call_that_is_wrapped_over_lines_is_found() -> None:
    assert "datetime.now(" in unwrapped("at = (\n    datetime\n    .now(UTC)\n)")


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_no_error_vanishes(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ExceptHandler) or not _is_broad(node):
            continue
        only = node.body[0]
        vanishes = len(node.body) == 1 and isinstance(only, ast.Pass | ast.Continue)
        assert not vanishes, f"line {node.lineno}: a broad except that drops the error"


def _is_broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
    )


def test_shared_has_named_packages_only() -> None:
    loose = [path.name for path in (ROOT / "shared").glob("*.py") if path.name != "__init__.py"]
    assert loose == [], "a module that two services need belongs to a package with a name"


def test_no_other_distribution_owns_our_import_names() -> None:
    owners = packages_distributions()
    for name in ("services", "shared"):
        assert set(owners.get(name, [])) <= {"sluicegate"}, f"{owners[name]} also install {name!r}"


def test_every_service_is_listed_for_import_linter() -> None:
    listed = (ROOT / ".importlinter").read_text()
    for package in (ROOT / "services").iterdir():
        if (package / "__init__.py").exists():
            assert re.search(rf"\b{package.name}\b", listed), (
                f"list {package.name} in .importlinter"
            )


def test_long_worlds_are_where_the_makefile_looks_for_them() -> None:
    """Whoever runs them does not collect the other tests, which takes longer than one of them."""
    command = (ROOT / "Makefile").read_text()
    marked = {
        path.relative_to(ROOT).parts[1]
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(r"pytest\.mark\.long", path.read_text())
    }
    found = re.search(r"pytest -m long ((?:tests/\w+ )+)", command)
    assert found is not None
    assert marked == {path.removeprefix("tests/") for path in found.group(1).split()}


def test_each_adr_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")]
    assert sorted(numbers) == sorted(set(numbers)), "two that came at one time: renumber the later"
