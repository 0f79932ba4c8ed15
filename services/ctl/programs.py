"""The programs that `sluice run` starts, and those that a deployment consists of."""

from enum import StrEnum
from typing import Final


class Program(StrEnum):
    """The programs that `sluice run` starts."""

    WATCHER = "watcher"
    CLASSIFIER = "classifier"
    QUOTA = "quota"
    DISPATCHER = "dispatcher"
    PROVISIONER = "provisioner"
    PATCHER = "patcher"
    CONSOLE = "console"
    TRACER = "tracer"
    PAIRS = "pairs"
    SIMULATOR = "simulator"
    ALL = "all"


SERVICES: Final = tuple(
    program
    for program in Program
    if program not in {Program.TRACER, Program.PAIRS, Program.SIMULATOR, Program.ALL}
)
"""What a deployment consists of. The tracer runs only where traces are collected, and pairs only where
the hub has kubeconfigs of spokes. The simulator stands in for a cluster."""
