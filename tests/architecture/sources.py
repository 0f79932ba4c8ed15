"""The source files that the house rules look at, parsed once."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CODE: Final = ("services", "shared")
PATTERNS: Final = (
    "services/**/*.py",
    "shared/**/*.py",
    "tests/**/*.py",
    "*.md",
    "Makefile",
    "compose.yaml",
    "docs/**/*.md",
    "deploy/**/*.md",
    "deploy/**/*.yaml",
    "tests/**/*.md",
    "tests/**/*.yaml",
    "*.toml",
)
NOT_OURS: Final = ("tests/architecture/",)
"""These rules name what they forbid."""


@dataclass(frozen=True)
class Source:
    """One Python file, by its path below the root of the repository."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, walked once for all rules."""
        return tuple(ast.walk(self.tree))

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders and the file name."""
        return tuple(self.path.split("/"))

    @property
    def folder(self) -> str:
        """The path of the folder."""
        return self.path.rpartition("/")[0]

    @property
    def module(self) -> str:
        """The dotted import name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def service(self) -> str:
        """``services/<name>`` or ``shared/<name>``: whose room this is."""
        return "/".join(self.parts[:2])

    @property
    def is_package(self) -> bool:
        """Whether this is an `__init__.py`."""
        return self.parts[-1] == "__init__.py"

    def inside(self, *folders: str) -> bool:
        """Whether the file is one of these, or in one of these folders."""
        return any(self.path == folder or self.path.startswith(f"{folder}/") for folder in folders)

    def classes(self) -> Iterator[ast.ClassDef]:
        """Every class, also those inside of others."""
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    def docstrings(self) -> set[int]:
        """The `id` of each constant node that is a docstring (also those below a field)."""
        return {
            id(node.value)
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }

    def strings(self) -> Iterator[ast.Constant]:
        """Every string literal that is no docstring."""
        docstrings = self.docstrings()
        for node in self.nodes:
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if id(node) not in docstrings:
                yield node


def is_bench(file: Source) -> bool:
    """Whether it is part of a benchmark: that writes manifests as users do."""
    return any(re.fullmatch(r"bench|bench\.py|bench_\w+\.py", part) for part in file.parts)


class House:
    """Everything that the rules look at."""

    def __init__(self, files: Iterable[Source]) -> None:
        files = tuple(files)
        self.code: Final = tuple(file for file in files if file.inside(*CODE))
        """What runs."""

        self.tests: Final = tuple(f for f in files if f.inside("tests") and f.path.endswith(".py"))
        self.all: Final = files
        """With pages and manifests."""


@cache
def house() -> House:
    """The repository as it lies on the disk."""
    paths = sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()})
    names = ((path.relative_to(ROOT).as_posix(), path) for path in paths)
    return House(
        Source(name, path.read_text()) for name, path in names if not name.startswith(NOT_OURS)
    )
