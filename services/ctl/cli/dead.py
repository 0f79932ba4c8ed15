"""`sluice dead`: the messages that a service gave up on, and what to do about them."""

from pathlib import Path
from typing import Annotated

import typer

from services.ctl.cli.completers import one_of_these
from services.ctl.cli.options import Directory, NatsUrl, TextOrJson, finite, one_of, run_async
from shared.runtime.command import CommandError, Exit

app = typer.Typer(
    help="Dead letters: messages that a service gave up on, with the reason.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Letters = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LETTER...",
        help="NUMBER of `sluice dead list`, or NAMESPACE/NAME for all letters about it.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="Every open letter.")]


@app.command("list")
def list_letters(
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", autocompletion=one_of_these("table", "json"), help="table or json."
        ),
    ] = "table",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """List the open letters, the oldest first."""
    from services.ctl.admin.dead_reading import show_list  # noqa: PLC0415

    as_json = one_of(output, "table", "json") == "json"
    run_async(show_list(as_json=as_json, url=nats_url, directory=directory))


@app.command(short_help="Show a letter whole, and what to do about it.")
def show(
    letter: Annotated[
        str, typer.Argument(metavar="LETTER", help="NUMBER, or NAMESPACE/NAME of what it is about.")
    ],
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Show a letter whole: reason, message, what quota holds for its workload, what to do."""
    from services.ctl.admin.dead_reading import show_letters  # noqa: PLC0415

    as_json = one_of(output, "text", "json") == "json"
    run_async(show_letters(letter, as_json=as_json, url=nats_url, directory=directory))


@app.command(short_help="Ask the service to handle it again.")
def retry(
    letters: Letters = None,
    every: All = False,
    wait_seconds: Annotated[
        float,
        typer.Option(
            min=0, callback=finite, help="How long to wait for the service; 0: do not wait."
        ),
    ] = 10.0,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Ask the service to handle it again: the newest message of its subject.

    Exit status 1 if it gave up again.

    Mend the cause first. Needs a user of NATS that may write, as `operator`.
    """
    from services.ctl.admin.dead_letters import retry_letters  # noqa: PLC0415

    done = run_async(
        retry_letters(_named(letters, every), wait_seconds, url=nats_url, directory=directory)
    )
    if not done:
        raise typer.Exit(Exit.FAILED)


@app.command()
def drop(
    letters: Letters = None,
    every: All = False,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Give up on letters for good. This changes no workload and no quota.

    Needs the user `operator` of NATS.
    """
    from services.ctl.admin.dead_letters import drop_letters  # noqa: PLC0415

    run_async(drop_letters(_named(letters, every), url=nats_url, directory=directory))


def _named(letters: list[str] | None, every: bool) -> list[str] | None:
    """The letters that were named; None: all. Raises `CommandError` for both or neither."""
    if bool(letters) == every:
        text = "excludes LETTER" if every else "or LETTER must say which letters are meant"
        raise CommandError("--all", text, hint="`sluice dead list` shows their numbers")
    return None if every else letters
