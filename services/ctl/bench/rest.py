"""`make bench-rest`: what `sluice dev` costs while nothing happens.

It starts `sluice dev`, waits until it is ready and has settled, and measures all of its processes,
nats-server and the simulated cluster included. The line before the last leaves out what only a laptop has,
the simulated cluster and the supervisor. The last line is ``rest: <CPU> % of a core, <PSS> MiB``.
"""

import asyncio
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from services.ctl.bench.processes import Usage, tree, usage
from shared.runtime.command import Exit

READY: Final = "ready; Ctrl-C stops everything"
SETTLE_SECONDS: Final = 20.0
"""From ready to the first look: views are read and statuses written once after a start."""

START_SECONDS: Final = 300.0

LAPTOP_ONLY: Final = frozenset({"dev", "run simulator"})
"""What `sluice run all` in a cluster does not have."""


async def measured(arguments: Sequence[str], *, minutes: float) -> tuple[float, list[str], str]:
    """Start `sluice dev`, measure it; return seconds until it was ready, a table, and the last line."""
    with tempfile.TemporaryDirectory(prefix="sluice-rest-") as folder:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with running_dev(("--directory", folder, *arguments)) as dev:
            start_seconds = loop.time() - began
            started = {pid: used.cpu_seconds for pid, used in _look(dev.pid).items()}
            await asyncio.sleep(SETTLE_SECONDS)
            names, before, at = tree(dev.pid), _look(dev.pid), loop.time()
            await asyncio.sleep(minutes * 60)
            after, seconds = _look(dev.pid), loop.time() - at
    lines = [f"ready after {start_seconds:.1f} s and {sum(started.values()):.1f} s of CPU"]
    table, last = report(names, before, after, seconds=seconds)
    return start_seconds, [*lines, *table], last


@asynccontextmanager
async def running_dev(arguments: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A `sluice dev` that is ready, until the context ends. Raises `RuntimeError` if it ends before."""
    dev = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.ctl.main", "dev", "--quiet", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        await _wait_ready(dev)
        yield dev
    finally:
        if dev.returncode is None:
            dev.send_signal(signal.SIGTERM)
        await dev.communicate()


async def _wait_ready(dev: asyncio.subprocess.Process) -> None:
    assert dev.stdout is not None
    printed: list[str] = []
    async with asyncio.timeout(START_SECONDS):
        async for line in dev.stdout:
            printed.append(line.decode(errors="replace").rstrip())
            if READY in printed[-1]:
                return
    raise RuntimeError("sluice dev ended:\n" + "\n".join(printed))


def _look(root: int) -> dict[int, Usage]:
    found = {}
    for pid in tree(root):
        try:
            found[pid] = usage(pid)
        except OSError:
            continue  # It has ended meanwhile.
    return found


def report(
    names: Mapping[int, str],
    before: Mapping[int, Usage],
    after: Mapping[int, Usage],
    *,
    seconds: float,
) -> tuple[list[str], str]:
    """A line for each kind of process, and the last line."""
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for pid, now in after.items():
        then = before.get(pid, Usage(cpu_seconds=0.0, pss_mib=0.0, wakeups=0))
        cpu = 100 * (now.cpu_seconds - then.cpu_seconds) / seconds
        rows[names.get(pid, str(pid))].append(
            (cpu, now.pss_mib, (now.wakeups - then.wakeups) / seconds)
        )
    lines = [f"{'process':<32}{'% of a core':>12}{'PSS MiB':>10}{'wake-ups/s':>12}"]
    for name, each in sorted(rows.items()):
        cpu, pss, woken = (sum(column) for column in zip(*each, strict=True))
        title = name if len(each) == 1 else f"{name} ({len(each)})"
        lines.append(f"{title:<32}{cpu:>12.2f}{pss:>10.1f}{woken:>12.1f}")
    deployed = [name for name in rows if name not in LAPTOP_ONLY]
    lines.append(f"services and nats-server: {_sum(rows, deployed)}")
    return lines, f"rest: {_sum(rows, rows)}"


def _sum(rows: Mapping[str, list[tuple[float, float, float]]], names: Iterable[str]) -> str:
    """CPU and memory of these processes, in words."""
    found = [row for name in names for row in rows[name]]
    cpu, pss = (sum(row[column] for row in found) for column in (0, 1))
    return f"{cpu:.2f} % of a core, {pss:.0f} MiB"


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="python -m services.ctl.bench.rest", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to measure")
    parser.add_argument("dev", nargs="*", help="options of `sluice dev`, after --")
    return parser.parse_args()


def main() -> int:
    """Measure, print, and say nothing of whether it is little enough."""
    arguments = _arguments()
    _, lines, last = asyncio.run(measured(arguments.dev, minutes=arguments.minutes))
    print("\n".join([*lines, last]))
    return Exit.OK


if __name__ == "__main__":
    sys.exit(main())
