"""What a tree of processes uses: CPU time, memory, wake-ups. Linux only, from /proc."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT, _CPU = 1, slice(11, 15)
"""Places in `stat`, counted behind the name: the parent, and the CPU time with that of ended children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used so far, and what it holds now."""

    cpu_seconds: float
    """Ended children included."""

    pss_mib: float
    """Its share of the memory: a page that four processes hold counts as a quarter of one."""

    wakeups: int
    """How often its threads went to sleep."""


def tree(root: int) -> dict[int, str]:
    """The process and all below it: pid to a name that people know."""
    children: dict[int, list[int]] = {}
    for path in PROC.iterdir():
        if path.name.isdigit() and (fields := _stat(path)):
            children.setdefault(int(fields[_PARENT]), []).append(int(path.name))
    return {pid: _name(pid) for pid in _below(root, children)}


def usage(pid: int) -> Usage:
    """What a process uses. Raises `OSError` if it has ended."""
    fields = _stat(PROC / str(pid))
    if not fields:
        raise ProcessLookupError(pid)
    return Usage(
        cpu_seconds=sum(int(value) for value in fields[_CPU]) / _TICKS,
        pss_mib=_field(PROC / str(pid) / "smaps_rollup", "Pss:") / 1024,
        wakeups=sum(
            _field(task / "status", "voluntary_ctxt_switches:")
            for task in (PROC / str(pid) / "task").iterdir()
        ),
    )


def _below(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in sorted(children.get(pid, ())):
        yield from _below(child, children)


def _stat(path: Path) -> list[str]:
    try:
        text = (path / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # The name before it may contain blanks.


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _name(pid: int) -> str:
    try:
        words = (PROC / str(pid) / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return str(pid)
    if "services.ctl.main" in words:
        at = words.index("services.ctl.main") + 1
        return " ".join(words[at : at + 2]).strip() if words[at] == "run" else words[at]
    module = words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name
    return module.removeprefix("services.")
