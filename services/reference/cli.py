"""`docs/reference/cli.md`: every command of `sluice`, as its help says it."""

from collections.abc import Iterator
from typing import Any, Final

from typer.main import get_command

from services.ctl.main import app
from services.reference.lifecycle import member_docstrings
from shared.runtime.command import Exit

NAME: Final = "sluice"

_INTRODUCTION: Final = """\
Commands that look (`get`, `explain`, `history`, `who-preempted`, `top`, `hosts`, `doctor`, `simulate`,
`plan`) read what services say on NATS and write nothing; `stop` and `resume` write to the cluster. Where
NATS is comes from `--nats-url`, else from `SLUICE_NATS_URL` or `NATS_URL`, else from the `sluice dev` of this
folder. Results go to standard output, all else to standard error; colours are for terminals only, and never
where `NO_COLOR` is set.
"""


def cli_page(generated: str) -> str:
    """The page. `generated` says how it is made."""
    lines = ["# Commands", "", generated, "", _INTRODUCTION, "## Exit statuses", ""]
    lines += ["| status | |", "|---|---|", *_statuses(), ""]
    lines += ["## Completion", "", *_COMPLETION]
    for path, command in _commands((NAME,), get_command(app)):
        lines += ["", *_command(path, command)]
    return "\n".join(lines) + "\n"


_COMPLETION: Final = (
    "`sluice completion bash` (or `zsh`, `fish`) prints a script; sourcing it in the shell's start-up",
    "file completes commands, options, and the names of what there is.",
)


def _statuses() -> Iterator[str]:
    for status, text in member_docstrings(Exit).items():
        yield f"| {status.value} | {text} |"


def _commands(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands; those of a group come after it."""
    if len(path) > 1:
        yield path, command
    for name, below in sorted((getattr(command, "commands", None) or {}).items()):
        if not below.hidden:
            yield from _commands((*path, name), below)


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    context = command.make_context(" ".join(path), [], resilient_parsing=True)
    yield f"## `{' '.join(path)}`"
    yield ""
    yield f"`{' '.join((*path, *command.collect_usage_pieces(context)))}`"
    yield ""
    yield " ".join((command.help or "").split())
    rows = [*_rows(command.get_params(context), context)]
    if rows:
        yield from ("", "| | |", "|---|---|", *rows)
    if command.epilog:
        yield from ("", command.epilog)


def _rows(parameters: list[Any], context: Any) -> Iterator[str]:
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            names, text = (" ".join(part.split()).replace("|", "\\|") for part in record)
            yield f"| `{names}` | {text} |"
