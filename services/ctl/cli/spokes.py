"""`sluice spokes`: the state of every spoke, and the declaration that one of them is lost."""

from pathlib import Path
from typing import Annotated

import typer

from services.ctl.cli.completers import complete_spoke
from services.ctl.cli.options import (
    Context,
    Directory,
    Kubeconfig,
    NatsUrl,
    chosen,
    run_async,
)
from shared.runtime.command import CommandError, Exit

app = typer.Typer(
    help="Spokes: which are connected, and which are given up as lost.", rich_markup_mode=None
)

Spoke = Annotated[
    str, typer.Argument(autocompletion=complete_spoke, help="Name of its MultiKueueCluster.")
]


@app.callback(invoke_without_command=True)
def spokes(
    context: typer.Context, nats_url: NatsUrl = None, directory: Directory = Path(".sluice")
) -> None:
    """Show each spoke: whether it is connected, what it was given, what is free there.

    Exit status 1 if one is not connected.
    """
    if context.invoked_subcommand is not None:
        return
    from services.ctl.inspect.spokes import show_spokes  # noqa: PLC0415

    if not run_async(show_spokes(nats_url, directory)):
        raise typer.Exit(Exit.FAILED)


@app.command(short_help="Declare that nothing runs on a spoke any more.")
def lost(
    spoke: Spoke,
    reason: Annotated[str, typer.Option(help="Why nothing can run there any more.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Declare that nothing runs on a spoke any more: what was there may start elsewhere.

    Only for a spoke that is off for good: whatever goes on running there runs twice.
    """
    if not reason.strip():
        raise CommandError("--reason", "is empty: say how it is known that nothing runs there")
    print(_declare(spoke, reason, kubeconfig, context, directory))


@app.command()
def found(
    spoke: Spoke,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Take back that a spoke is lost: it may be given work again."""
    print(_declare(spoke, None, kubeconfig, context, directory))


def _declare(
    spoke: str, reason: str | None, kubeconfig: Path | None, context: str | None, directory: Path
) -> str:
    from services.ctl.admin.lost_spoke import declare_lost  # noqa: PLC0415

    return run_async(declare_lost(spoke, reason, chosen(kubeconfig, context, directory)))
