"""``python -m tests.controllers [pattern]``: one line for each row; `make test-controllers`.

The pattern is a regular expression: a scenario is chosen if it is found in one of its rows, or in its
namespace. The last line is ``controllers: N of N hold``.
"""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from tests.controllers import programs
from tests.controllers.run import Run, chosen
from tests.controllers.scenario import Verdict
from tests.controllers.servers import network

SHOWN: Final = 4
MODULE: Final = "tests.controllers"
KEEP: Final = "CONTROLLERS_FOLDER"
"""Names a folder that keeps what the programs wrote; without it all of that is deleted at the end."""


def main() -> int:
    """Run what was chosen; 0 if every row holds, or if the programs are not there."""
    found = programs.find()
    missing = found if isinstance(found, str) else network.missing()
    if missing is not None or isinstance(found, str):
        _say(f"controllers: not run: {missing}")
        return 0
    network.enter(MODULE, sys.argv[1:])
    scenarios = chosen(" ".join(sys.argv[1:]))
    verdicts: list[Verdict] = []
    rows = sum(len(one.rows()) for one in scenarios)
    folder = Path(os.environ.get(KEEP) or tempfile.mkdtemp(prefix="controllers-"))
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(found, folder, scenarios, report=_reporter(verdicts, rows), say=_sayer())
    try:
        asyncio.run(run.play())
    finally:
        if KEEP not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)
    held = sum(not verdict.problems for verdict in verdicts)
    _say(f"controllers: {held} of {rows} hold")
    return 0 if held == rows > 0 else 1


def _reporter(verdicts: list[Verdict], rows: int) -> Callable[[Verdict], None]:
    def report(verdict: Verdict) -> None:
        verdicts.append(verdict)
        word = "BROKEN" if verdict.problems else "holds "
        _say(f"  {len(verdicts):>3} of {rows}  {word}  {verdict.row}")
        for problem in verdict.problems[:SHOWN]:
            _say(f"        {problem}")

    return report


def _sayer() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda text: _say(f"{text} (after {time.monotonic() - began:.0f} s)")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    sys.exit(main())
