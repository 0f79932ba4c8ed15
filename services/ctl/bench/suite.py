"""`make bench`: every benchmark, one table, and how it compares with an earlier run.

Each benchmark is a process; its last line is its result. Beside it stands how long a fixed loop took just
before: if the loop is slower than in the run that is compared, so was the machine.
"""

import json
import os
import re
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from shared.runtime.command import Exit

BENCHMARKS: Final = {
    "engine": ("services.quota.bench",),
    "webhook": ("services.classifier.bench",),
    "bus": ("shared.bus.bench",),
    "startup": ("services.ctl.bench.startup",),
    "rest": ("services.ctl.bench.rest", "--minutes", "2"),
    "cluster": ("services.ctl.bench_cluster", "--load", "baseline", "--scale", "0.1"),
    "latency": ("services.ctl.bench.latency", "--minutes", "1"),
    "pods": ("services.ctl.bench.pods",),
    "spokes": ("services.simulator.bench.spokes",),
    "whatif": ("services.ctl.bench.whatif",),
    "restart": ("services.ctl.bench_restart", "--scale", "0.1"),
}
LOOPS: Final = 2_000_000
SECONDS_MAX: Final = 1800.0
_NUMBER: Final = re.compile(r"\d[\d,]*(?:\.\d+)?")

Result = dict[str, Any]


def _calibration_ms() -> float:
    """CPU milliseconds of a fixed loop: the less, the faster is the machine."""
    began, total = time.process_time(), 0
    for number in range(LOOPS):
        total += number & 7
    return 1000 * (time.process_time() - began)


def _measured(command: tuple[str, ...]) -> Result:
    """Run a benchmark to its end; its last line, and how fast the machine was before it."""
    calibration = _calibration_ms()
    try:
        done = subprocess.run(  # noqa: S603 - our own modules
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        lines, status = done.stdout.strip().splitlines() or [""], done.returncode
    except subprocess.TimeoutExpired:
        lines, status = [f"not done after {SECONDS_MAX:.0f} s"], int(Exit.FAILED)
    return {"result": lines[-1], "status": status, "calibration_ms": round(calibration, 1)}


def compared(result: Result, before: Result | None) -> str:
    """Each number of a result divided by that of an earlier run; empty if they do not correspond."""
    if before is None:
        return ""
    now, then = (_numbers(str(each["result"])) for each in (result, before))
    if len(now) != len(then):
        return ""
    ratios = [f"{a / b:.2f}" if b else "-" for a, b in zip(now, then, strict=True)]
    machine = float(result["calibration_ms"]) / float(before["calibration_ms"])
    return f"x {' '.join(ratios)} (loop x {machine:.2f})"


def _numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in _NUMBER.findall(text)]


def main() -> int:
    """Run them, print a line for each, write JSON. The status is that of the worst."""
    parser = ArgumentParser(prog="python -m services.ctl.bench.suite", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--out", type=Path, default=Path("dist/bench.json"))
    parser.add_argument("--compare", type=Path, help="JSON of an earlier run, as of a release")
    arguments = parser.parse_args()
    earlier = {} if arguments.compare is None else json.loads(arguments.compare.read_text())
    results: dict[str, Result] = {}
    for name in arguments.only:
        results[name] = _measured(BENCHMARKS[name])
        line = (
            f"{name:<9}{results[name]['calibration_ms']:>7.1f} ms loop  {results[name]['result']}"
        )
        print(f"{line}  {compared(results[name], earlier.get(name))}".rstrip(), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    failed = [name for name, each in results.items() if each["status"] != 0]
    print(f"bench: {len(results)} on {os.cpu_count()} cores, failed: {', '.join(failed) or 'none'}")
    return Exit.FAILED if failed else Exit.OK


if __name__ == "__main__":
    sys.exit(main())
