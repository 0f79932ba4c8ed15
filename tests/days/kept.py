"""How many bytes the objects of a simulated process take: all that can be reached from its tasks."""

import gc
import logging
import sys
from collections.abc import Iterable, Iterator
from io import IOBase
from types import CodeType, ModuleType
from typing import Any, Final

_SHARED: Final = (ModuleType, CodeType, type, logging.Logger, IOBase)
"""Code, loggers and files, which every process of a world has in common."""

_OURS: Final = ("services.", "shared.")
_WORLDS: Final = ("services.simulator", "shared.testing")
_SERVERS: Final = (
    "services.simulator",
    "shared.testing.world.links",
    "shared.testing.world.loop",
    "shared.testing.world.memory_server",
    "shared.testing.world.memory_streams",
    "shared.testing.world.world",
    "structlog",  # A logger knows where it prints, and so what else runs in this process.
)
"""Modules of what is outside of a process: the cluster, the bus server, the world itself, and loggers."""


def kept_bytes(roots: Iterable[object]) -> int:
    """Return what `roots` keep alive, in bytes, without code and without the world's servers."""
    seen = {id(getattr(module, "__dict__", None)) for module in list(sys.modules.values())}
    total, waiting = 0, list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, _SHARED):
            continue
        if str(type(thing).__module__).startswith(_SERVERS):  # Some of C have none.
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        waiting += (each for each in gc.get_referents(thing) if id(each) not in seen)
    return total


def module_contents() -> Iterator[Any]:
    """Yield what the services' modules and their classes hold, such as caches of functions."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(_OURS) or name.startswith(_WORLDS):
            continue
        for thing in list(vars(module).values()):
            yield from list(vars(thing).values()) if isinstance(thing, type) else (thing,)
