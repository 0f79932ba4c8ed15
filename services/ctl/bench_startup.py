"""`make bench-startup`: CPU time that quick commands take from start to end.

The last line is ``startup: <the most expensive command> <CPU ms> ms``.
"""

import resource
import subprocess
import sys
from statistics import median
from typing import Final

NOBODY: Final = ("--nats-url", "nats://127.0.0.1:9")
COMMANDS: Final = (
    ("--help",),
    ("get", "--help"),
    ("completion", "bash"),
    ("get", "workloads", *NOBODY),
    ("hosts", *NOBODY),
    ("dead", "list", *NOBODY),
)
RUNS: Final = 10


def _cpu_seconds() -> float:
    """User and system time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_ms(command: tuple[str, ...]) -> float:
    before = _cpu_seconds()
    subprocess.run(  # noqa: S603 - it is this program itself
        [sys.executable, "-m", "services.ctl.main", *command], check=False, capture_output=True
    )
    return 1000 * (_cpu_seconds() - before)


def main() -> int:
    """Run each command several times; print the median CPU time of each."""
    medians = {
        " ".join(command): median(_cpu_ms(command) for _ in range(RUNS)) for command in COMMANDS
    }
    for name, ms in medians.items():
        print(f"sluice {name}: {ms:.0f} ms")
    worst = max(medians, key=lambda name: medians[name])
    print(f"startup: sluice {worst} {medians[worst]:.0f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
