"""The `sluice` command. Every import that costs time is made by the command that needs it."""

import re
import sys
from itertools import pairwise
from typing import Annotated, Final, NoReturn

import typer

from services.ctl.cli.commands import CommandsOnDemand
from shared.runtime.command import CommandError, Exit, environment_error

EPILOG: Final = (
    "Exit status: 0 done, 1 the answer is no (a check failed, a service ended by itself), "
    "2 wrong option, file or manifest, 3 NATS or the cluster does not answer, 130 interrupted. "
    "`plan` has its own: see its help."
)

_OPTION: Final = re.compile(r"--[a-z][a-z-]*")

app = typer.Typer(
    name="sluice",
    cls=CommandsOnDemand,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from services.ctl.cli.queries import version  # noqa: PLC0415

        version()
        raise typer.Exit


@app.callback()
def sluice(
    *,
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="As `version`."),
    ] = False,
) -> None:
    """Admit work to Kubernetes clusters: run Sluicegate, look at it, try it.

    New here? `sluice demo` shows all of it at work, and `sluice COMMAND --help` explains a command.
    """


def main() -> None:
    """Entry point. Expected failures are shown as sentences; ours are shown with their traceback."""
    try:
        _refuse_empty(sys.argv[1:])
        app()
    except CommandError as error:
        _refuse(error)
    except OSError as error:
        known = environment_error(error)
        if known is None:
            raise
        _refuse(known)
    except ValueError as error:
        sentences = _settings_error(error)
        if sentences is None:
            raise
        _complain(*sentences)
        sys.exit(Exit.WRONG_INPUT)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _refuse_empty(arguments: list[str]) -> None:
    """Raise `CommandError` for an empty argument: no name and no file is empty, and a variable often is."""
    for before, argument in pairwise(("", *arguments)):
        option, given, value = argument.partition("=")
        if not argument or (given and not value and _OPTION.fullmatch(option)):
            raise CommandError(
                option or before or "the first argument",
                "an empty text is given",
                hint="was a variable of the shell not set?",
            )


def _refuse(error: CommandError) -> NoReturn:
    _complain(f"sluice: {error}", *([f"  {error.hint}"] if error.hint else []))
    sys.exit(error.status)


def _complain(*lines: str) -> None:
    """Print to standard error, without secrets: a URL of NATS may have a password."""
    from shared.telemetry.redaction import redacted  # noqa: PLC0415

    print(redacted("\n".join(lines)), file=sys.stderr)


def _settings_error(error: ValueError) -> list[str] | None:
    """What was refused of the settings, in the words of the environment, or of Kueue's document."""
    if type(error).__name__ in {"ConfigurationError", "NameTooLongError", "UnusableNameError"}:
        return [f"sluice: {error}"]
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return None
    return [
        f"sluice: setting SLUICE_{'_'.join(str(part) for part in each['loc']).upper()}: "
        f"{each['msg']}, got {str(each.get('input'))[:80]!r}"
        if each["loc"]
        else f"sluice: settings: {each['msg']}"  # A rule about several settings: its input is all of them.
        for each in error.errors()
    ]


if __name__ == "__main__":
    main()
