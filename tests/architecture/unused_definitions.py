"""Definitions that nobody uses, for the rules that find them."""

from collections.abc import Sequence
from typing import Final

from tests.architecture.sources import Source

UNUSED: Final[dict[str, tuple[str, Sequence[Source], str]]] = {
    "nobody uses a public function": (
        "public_definitions_are_used",
        [
            Source("services/quota/a.py", "def unused(): ...\nunused()"),
            Source("services/quota/b.py", "from services.quota.a import used"),
        ],
        "services/quota/a.py:1: only its module uses unused",
    ),
    "a test alone keeps a function alive": (
        "public_definitions_are_used",
        [Source("services/quota/a.py", "def f(): ..."), Source("tests/test_a.py", "a.f()")],
        "services/quota/a.py:1: only tests use f",
    ),
    "nobody reads a private constant": (
        "private_definitions_are_read",
        [Source("services/quota/a.py", "_FIT: Final = 1\n_PREEMPT: Final = 2\nx = _FIT")],
        "services/quota/a.py:2: nothing reads _PREEMPT",
    ),
    "nobody calls a private function": (
        "private_definitions_are_read",
        [Source("services/quota/a.py", "def _ident(): ...")],
        "services/quota/a.py:1: nothing reads _ident",
    ),
    "an attribute is written only": (
        "private_definitions_are_read",
        [
            Source(
                "services/quota/a.py",
                "class A:\n    def __init__(self, x, y):\n        self._x, self._y = x, y\n        self._x()",
            )
        ],
        "services/quota/a.py:3: nothing reads _y",
    ),
    "nobody calls a method that is private": (
        "private_definitions_are_read",
        [Source("services/quota/a.py", "class A:\n    def _f(self): ...")],
        "services/quota/a.py:2: nothing reads _f",
    ),
    "a count is counted only": (
        "private_definitions_are_read",
        [
            Source("services/quota/a.py", "class A:\n    def f(self):\n        self._n += 1"),
            Source("services/quota/b.py", "x._n"),
        ],
        "services/quota/a.py:3: nothing reads _n",
    ),
    "nobody reads a constant, whose name is an attribute elsewhere that is written": (
        "public_constants_are_used",
        [
            Source("services/quota/a.py", "WEIGHT: Final = 2"),
            Source("services/quota/b.py", "x.WEIGHT = 1"),
        ],
        "services/quota/a.py:1: nothing reads WEIGHT",
    ),
    "nobody reads a type alias": (
        "public_constants_are_used",
        [Source("services/quota/a.py", "Cell = tuple[str, str]")],
        "services/quota/a.py:1: nothing reads Cell",
    ),
    "only a test reads a constant": (
        "public_constants_are_used",
        [
            Source("services/quota/a.py", "WEIGHT = 2"),
            Source("tests/test_a.py", "from services.quota.a import WEIGHT"),
        ],
        "services/quota/a.py:1: only tests read WEIGHT",
    ),
    "a method calls only itself": (
        "public_methods_are_used",
        [Source("services/quota/a.py", "class A:\n    def walk(self): self.child.walk()")],
        "services/quota/a.py:2: nothing reads walk",
    ),
    "nobody reads a property, whose name is a variable elsewhere": (
        "public_methods_are_used",
        [
            Source("services/quota/a.py", "class A:\n    @property\n    def size(self): ..."),
            Source("services/quota/b.py", "size = 1\nprint(size)"),
        ],
        "services/quota/a.py:3: nothing reads size",
    ),
    "only a test calls a method": (
        "public_methods_are_used",
        [
            Source("services/quota/a.py", "class A:\n    def size(self): ..."),
            Source("tests/test_a.py", "assert A().size() == 1"),
        ],
        "services/quota/a.py:2: only tests read size",
    ),
}
"""By case the rule, the files and the beginning of what the rule says."""
