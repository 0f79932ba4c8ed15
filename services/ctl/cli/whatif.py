"""The commands that try something and write nothing: `simulate`, `plan` and `mutate`."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from services.ctl.cli.completers import complete_object, complete_spoke
from services.ctl.cli.options import (
    ChangedCluster,
    Configured,
    Directory,
    NatsUrl,
    TextOrJson,
    one_of,
    run_async,
)
from shared.runtime.command import CommandError, Exit

app = typer.Typer(rich_markup_mode=None)

Changed = Annotated[
    list[Path] | None,
    typer.Option(
        "--filename", "-f", help="Manifests to apply: queues, flavors, jobs. May be repeated."
    ),
]
Removed = Annotated[
    list[str] | None,
    typer.Option(
        "--remove",
        metavar="KIND/NAME",
        autocompletion=complete_object,
        help="Take an object away. May be repeated.",
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        help="What to start from: a file that --save wrote, or a folder of manifests. Default: the "
        "live state."
    ),
]
NewRules = Annotated[
    Path | None,
    typer.Option("--rules", help="Folder with the config.yaml that new jobs go through."),
]


@app.command(epilog="Exit status: 0 done, 1 a new job can never start.")
def simulate(
    filename: Changed = None,
    remove: Removed = None,
    lost_spoke: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_spoke,
            help="Suppose that this spoke is lost: what runs there starts again on others with room.",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Play again what was submitted in the last 30m, 24h or 7d, with the run times that "
            "it had. Default: what waits and runs now.",
        ),
    ] = None,
    state: State = None,
    save: Annotated[
        Path | None, typer.Option(help="Write what was read to this file, for --state.")
    ] = None,
    rules: NewRules = None,
    configuration: Configured = None,
    cluster: ChangedCluster = "hub",
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say what a change would do to the queues: admissions, preemptions, waits, before and after.

    Nothing is written. How long workloads run is learned from those that ended in the last day.
    """
    from services.ctl.inspect.whatif import WhatIf, span_of  # noqa: PLC0415
    from services.ctl.inspect.whatif import simulate as play  # noqa: PLC0415

    what = WhatIf(
        manifests=tuple(filename or ()),
        remove=tuple(remove or ()),
        lost_spoke=lost_spoke,
        state=state,
        log=None if log is None else span_of(log),
        rules=rules,
        configuration=configuration,
        cluster=cluster,
        url=nats_url,
        directory=directory,
    )
    status = run_async(play(what, output=one_of(output, "text", "json"), save_to=save))
    raise typer.Exit(status)


class _Plan(TyperCommand):
    """Ends with the same status for a wrong option as for all else that is wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As any command does."""
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            error.exit_code = Exit.NO_PLAN
            raise


@app.command(
    cls=_Plan,
    epilog="Exit status: 0 nothing changes, 1 something does or a job can never start, 255 unknown.",
)
def plan(
    filename: Changed = None,
    remove: Removed = None,
    state: State = None,
    rules: NewRules = None,
    configuration: Configured = None,
    cluster: ChangedCluster = "hub",
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say who would be admitted, preempted or evicted at once if these manifests were applied."""
    from services.ctl.inspect.whatif import WhatIf  # noqa: PLC0415
    from services.ctl.inspect.whatif import plan as compare  # noqa: PLC0415

    try:
        what = WhatIf(
            manifests=tuple(filename or ()),
            remove=tuple(remove or ()),
            state=state,
            rules=rules,
            configuration=configuration,
            cluster=cluster,
            url=nats_url,
            directory=directory,
        )
        status = run_async(compare(what, output=one_of(output, "text", "json")))
    except CommandError as error:
        error.status = Exit.NO_PLAN
        raise
    except Exception as error:
        # Exit status 1, with which Python ends, would say that something changes.
        raise CommandError("sluice plan", repr(error), status=Exit.NO_PLAN) from error
    raise typer.Exit(status)


@app.command()
def mutate(
    pipelinerun_file: Annotated[Path, typer.Option(help="The object, as YAML or JSON.")],
    config_dir: Annotated[Path, typer.Option(help="Folder with the classifier's config.yaml.")],
) -> None:
    """Print what the webhook would make of a PipelineRun or Job. Nothing needs to run."""
    from services.ctl.admin.mutate import mutated_yaml  # noqa: PLC0415

    print(mutated_yaml(pipelinerun_file, config_dir), end="")
