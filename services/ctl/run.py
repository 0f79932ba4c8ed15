"""`sluice run <service>`: one service as this process, or all of them."""

import importlib
import sys
from collections.abc import Sequence

from services.ctl.programs import Program
from shared.runtime.command import CommandError, Exit


def run_program(program: Program, arguments: Sequence[str]) -> int:
    """Import the program's module and call its `main`; return its exit status."""
    if program is Program.SIMULATOR:
        # The simulator parses its own options: it is also started as `python -m services.simulator`.
        sys.argv = ["sluice run simulator", *arguments]
        module = importlib.import_module("services.simulator.command")
    elif arguments:
        raise CommandError(
            " ".join(arguments),
            f"{program} takes no arguments",
            hint="services read their settings from the environment: SLUICE_…",
        )
    elif program is Program.PAIRS:
        # It is part of ctl, because it starts other programs as `sluice dev` does.
        module = importlib.import_module("services.ctl.pairs")
    elif program is Program.ALL:
        module = importlib.import_module("services.ctl.one_process")
    else:
        module = importlib.import_module(f"services.{program.value}.app")
    return int(module.main() or Exit.OK)
