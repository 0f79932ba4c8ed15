"""What `make bench-rest` makes of two looks at the processes."""

import asyncio
import os
import sys

from services.ctl.bench.processes import Usage, tree, usage
from services.ctl.bench.rest import report


def used(cpu: float, pss: float, wakeups: int) -> Usage:
    return Usage(cpu_seconds=cpu, pss_mib=pss, wakeups=wakeups)


def test_the_last_line_sums_what_all_processes_used_between_two_looks() -> None:
    names = {1: "dev", 2: "nats-server", 3: "worker", 4: "worker"}
    before = {1: used(5.0, 90, 10), 2: used(1.0, 20, 0), 3: used(0.5, 9, 0)}
    after = {1: used(5.1, 40, 110), 2: used(1.5, 20, 400), 3: used(0.5, 10, 0), 4: used(0.2, 10, 0)}
    lines, last = report(names, before, after, seconds=100)
    assert last == "rest: 0.80 % of a core, 80 MiB"
    assert lines[-1] == "services and nats-server: 0.70 % of a core, 40 MiB"
    assert [line.split() for line in lines[1:-1]] == [
        ["dev", "0.10", "40.0", "1.0"],
        ["nats-server", "0.50", "20.0", "4.0"],
        ["worker", "(2)", "0.20", "20.0", "0.0"],
    ]


async def test_a_tree_has_the_children_of_a_process_and_their_memory() -> None:
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
    child = await asyncio.create_subprocess_exec(*sleeper)
    try:
        assert tree(os.getpid()).keys() >= {os.getpid(), child.pid}
        assert tree(child.pid).keys() == {child.pid}
        assert usage(child.pid).pss_mib > 0
        assert usage(os.getpid()).cpu_seconds > 0
    finally:
        child.kill()
        await child.wait()
