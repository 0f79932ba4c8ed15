"""``python -m tests.fuzz EXAMPLES [words]``: a line for each border whose name holds them; `make fuzz`."""

import logging
import os
import sys
from math import ceil

import structlog

from tests.fuzz.border import Border, Result, probe
from tests.fuzz.table import borders


def _main(examples: int, words: str, seed: int) -> int:
    """Probe the chosen borders; the exit code."""
    chosen = [border for border in borders() if words in border.name]
    total = sum(border.weight for border in chosen)
    results: list[tuple[Border, Result]] = []
    for border in chosen:
        share = ceil(examples * border.weight / total)
        result = probe(border, share, number=seed)
        results.append((border, result))
        problem = result.problem or result.delay
        state = "held  " if problem is None else "BROKEN"
        _say(f"  {state} {border.name}: {result.examples} examples, slowest {result.slowest:.3f} s")
        if problem is not None:
            _say(f"    {problem}")
    crashed = sum((result.problem or result.delay) is not None for _, result in results)
    count = sum(result.examples for _, result in results)
    slowest = max((result.slowest for _, result in results), default=0.0)
    _say(
        f"fuzz: {count} examples over {len(chosen)} parsers, {crashed} crashed, slowest {slowest:.2f} s"
    )
    return 1 if crashed or not chosen else 0


def _say(line: str) -> None:
    sys.stdout.write(line.encode(errors="backslashreplace").decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    sys.exit(_main(int(sys.argv[1]), " ".join(sys.argv[2:]), seed=int(os.environ.get("SEED", "1"))))
