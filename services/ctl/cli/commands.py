"""The commands of `sluice`, and where each is defined: only the one that is asked for is imported."""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Entry:
    """One command."""

    module: str
    """Below `services.ctl.cli`: its `app` has this command, or is it if both have one name."""

    line: str
    """What the list of commands says of it: short, because a longer text would be cut off."""


SECTIONS: Final = {
    "See what happens": {
        "status": Entry("queries", "One screen: is it healthy, what waits, what to do"),
        "get": Entry("queries", "Workloads, queues, cohorts, flavors, hosts or spokes"),
        "explain": Entry("queries", "Why a workload waits, and what would help"),
        "top": Entry("queries", "The queues, live"),
        "history": Entry("queries", "What happened to a workload, in order"),
        "who-preempted": Entry("queries", "Which workload was evicted for which other one"),
        "hosts": Entry("hosts", "Machines for builds, and who waits for one"),
        "spokes": Entry("spokes", "Clusters that work is sent to"),
    },
    "Find and repair what is wrong": {
        "doctor": Entry("queries", "Look for faults, and say what to do about each"),
        "dead": Entry("dead", "Messages that a service gave up on"),
        "support-bundle": Entry("queries", "One file for who helps you, without secrets"),
    },
    "Try a change; nothing is written": {
        "plan": Entry("whatif", "What a change would do at once"),
        "simulate": Entry("whatif", "What a change would do until all work has ended"),
        "mutate": Entry("whatif", "What the webhook would make of a job"),
        "integration": Entry("integration", "Documents that make a kind of job wait"),
    },
    "Change a cluster": {
        "stop": Entry("cluster", "Stop a queue, or take a workload out of it"),
        "resume": Entry("cluster", "Let a queue or workload go on"),
        "install": Entry("cluster", "Apply manifests, and register the webhook"),
        "uninstall": Entry("cluster", "Give a cluster back"),
    },
    "Run it": {
        "dev": Entry("running", "The whole system on this machine, until Ctrl-C"),
        "demo": Entry("running", "The whole system under a load, and a check of its work"),
        "run": Entry("running", "One service, as this process"),
        "bus": Entry("bus", "Streams and users of NATS"),
        "simulate-world": Entry("running", "All services in simulated worlds with faults"),
    },
    "About this command": {
        "completion": Entry("completers", "Completion for bash, zsh or fish"),
        "version": Entry("queries", "The version"),
    },
}
"""Headings of the list of commands, to what stands below them."""

ENTRIES: Final = {name: entry for section in SECTIONS.values() for name, entry in section.items()}

Command = Any
"""A command of Typer's own Click, which it does not export."""


class _OnDemand(MutableMapping[str, Command]):
    """Name of each command to the command, which is imported when it is first asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        if name not in self._loaded:
            self._loaded[name] = _load(name, ENTRIES[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ENTRIES)

    def __len__(self) -> int:
        return len(ENTRIES)


def _load(name: str, entry: Entry) -> Command:
    app: typer.Typer = import_module(f"services.ctl.cli.{entry.module}").app
    if entry.module == name:
        group = typer.main.get_group(app)
        group.name = name
        return group
    for info in app.registered_commands:
        if name == (info.name or getattr(info.callback, "__name__", "")):
            return typer.main.get_command_from_info(
                info, pretty_exceptions_short=True, rich_markup_mode=None
            )
    raise KeyError(name)


class CommandsOnDemand(TyperGroup):
    """Imports one command, not all, and lists them under headings."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": _OnDemand()})

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        """Their names, as they are listed."""
        del ctx
        return list(ENTRIES)

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands. Nothing is imported for it."""
        del ctx
        width = max(map(len, ENTRIES))  # One width for all sections.
        for heading, entries in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name.ljust(width), entry.line) for name, entry in entries.items()]
                )
