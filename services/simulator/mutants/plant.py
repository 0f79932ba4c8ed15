"""Patches one attribute for as long as a mutant is played."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from services.simulator.scenarios.tenants.rights import Write
from services.simulator.scenarios.tenants.scenario import written_often


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One mechanism, taken out."""

    name: str
    """What is taken out, in a few words."""

    adr: int
    """The decision that speaks of the mechanism."""

    where: str
    """``module:Class.attribute`` or ``module:attribute``, as the code that uses it sees it."""

    make: Callable[[Any], Any]
    """Returns what replaces the original."""

    of_instances: bool = False
    """True if only instances have the attribute; the replacement is a property."""

    scenarios: tuple[str, ...]
    """Scenarios that try the mechanism, the likeliest first."""

    is_rare: bool = False
    """Fewer than one world in forty shows it: CI, which plays a part of the mutants, leaves it out."""

    often: Write | None = None
    """The write of a tenant that shows it, where that one is rare: it is then every second one."""

    besides: "Mutant | None" = None
    """A second mechanism that covers this one, and is taken out along with it. A find is a seed that passes
    with either of them: each is a defence. None: this one has none behind it."""


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Replace the attribute, and put the original back. Raises `AttributeError` if there is none."""
    with (
        nullcontext() if mutant.besides is None else planted(mutant.besides),
        nullcontext() if mutant.often is None else written_often(mutant.often),
        _replaced(mutant),
    ):
        yield


@contextmanager
def _replaced(mutant: Mutant) -> Iterator[None]:
    module_name, _, path = mutant.where.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module_name)
    for one in owners:
        owner = getattr(owner, one)
    inherited = name not in vars(owner)
    original: Any = None
    if not mutant.of_instances:
        original = getattr(owner, name) if inherited else vars(owner)[name]
    setattr(owner, name, mutant.make(original))
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
