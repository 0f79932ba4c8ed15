"""The commands that start programs: `dev`, `demo`, `run` and `simulate-world`."""

from pathlib import Path
from typing import Annotated

import typer

from services.ctl.cli.completers import complete_scenario
from services.ctl.cli.options import Context, DevDirectory, finite, run_async
from services.ctl.programs import Program
from shared.runtime.command import print_line

DevCluster = Annotated[
    Path | None, typer.Option(help="A cluster to work on; without it, one is simulated.")
]
DevManifests = Annotated[
    list[Path] | None,
    typer.Option(help="File or folder of manifests to apply first. May be repeated."),
]
DevRules = Annotated[Path | None, typer.Option(help="Folder with the classifier's config.yaml.")]
DevWebhook = Annotated[
    bool | None,
    typer.Option(
        "--webhook/--no-webhook", help="Register the webhook. Default: only in a simulated cluster."
    ),
]
DevSpokes = Annotated[
    int,
    typer.Option(
        min=0,
        max=20,
        help="How many simulated clusters to start beside it, to which it sends work.",
    ),
]
DevNatsUrl = Annotated[
    str | None,
    typer.Option(
        envvar=["SLUICE_NATS_URL", "NATS_URL"], help="A NATS server; without it, one is started."
    ),
]
Speed = Annotated[
    float,
    typer.Option(
        min=0.001, callback=finite, help="Speed of simulated time: 60 is a minute a second."
    ),
]
Processes = Annotated[
    bool, typer.Option("--processes", help="One process for each service, as in a deployment.")
]
Secure = Annotated[
    bool, typer.Option("--secure", help="TLS, and a user of its own for each service on NATS.")
]

ProgramName = Annotated[Program, typer.Argument(metavar="PROGRAM", help=f"{', '.join(Program)}.")]

app = typer.Typer(rich_markup_mode=None)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Settings: SLUICE_… environment variables; see docs/reference.",
)
def run(context: typer.Context, program: ProgramName) -> None:
    """Run one service as this process, or `all`, until SIGTERM. The simulator takes options of its own."""
    from services.ctl.run import run_program  # noqa: PLC0415

    raise typer.Exit(run_program(program, context.args))


@app.command()
def dev(
    kubeconfig: DevCluster = None,
    context: Context = None,
    manifests: DevManifests = None,
    rules: DevRules = None,
    webhook: DevWebhook = None,
    speed: Speed = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the simulated cluster.")] = 0,
    spokes: DevSpokes = 0,
    processes: Processes = False,
    secure: Secure = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show the services' logs.")] = False,
    nats_url: DevNatsUrl = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Run the whole system on this machine until Ctrl-C; what dies is started again."""

    def say(text: str) -> None:
        print_line(f"sluice dev: {text}")

    say(f"starting, with files in {directory}")  # At once: the imports take a moment.
    from services.ctl.dev.app import EXAMPLE, DevOptions, serve  # noqa: PLC0415
    from services.ctl.setup.spokes import SPOKES_EXAMPLE  # noqa: PLC0415

    options = DevOptions(
        directory=directory,
        nats_url=nats_url,
        kubeconfig=kubeconfig,
        context=context,
        manifests=tuple(manifests or ()) or (() if kubeconfig or spokes else (EXAMPLE,)),
        rules=rules or (SPOKES_EXAMPLE if spokes else EXAMPLE) / "classifier",
        spokes=spokes,
        processes=processes,
        secure=secure,
        webhook=webhook,
        speed=speed,
        seed=seed,
        echo=None if quiet else lambda name, line: print_line(f"{name:<12}| {line}"),
        progress=say,
    )
    raise typer.Exit(run_async(serve(options, say)))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the load: equal seeds, equal load.")] = 1,
    runs: Annotated[int, typer.Option(min=0, help="How many PipelineRuns.")] = 600,
    jobs: Annotated[int, typer.Option(min=0, help="How many Jobs.")] = 100,
    speed: Speed = 60.0,
    pipelineruns: Annotated[
        Path | None,
        typer.Option(
            help="Create these instead of a generated load: a file or folder of PipelineRuns, or a "
            "file of cases with what is expected of each."
        ),
    ] = None,
    spokes: Annotated[
        int, typer.Option(min=0, max=20, help="Send everything to so many simulated spokes.")
    ] = 0,
    secure: Secure = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running at the end.")] = False,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Watch the whole system work on a generated load, then check from its log that it did it right.

    The last line begins with `demo: ok` or `demo: failed`.
    """
    from services.ctl.demo.app import DemoOptions, demonstrate  # noqa: PLC0415

    options = DemoOptions(
        seed=seed,
        runs=runs,
        jobs=jobs,
        speed=speed,
        pipelineruns=pipelineruns,
        spokes=spokes,
        secure=secure,
        keep=keep,
        directory=directory,
    )
    raise typer.Exit(run_async(demonstrate(options)))


@app.command("simulate-world")
def simulate_world(
    scenario: Annotated[
        str, typer.Option(autocompletion=complete_scenario, help="Which world.")
    ] = "basic",
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds, from --first-seed on.")] = 200,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 1,
    log: Annotated[bool, typer.Option("--log", help="Print what happened in each.")] = False,
) -> None:
    """Run all services in simulated worlds, with crashes, duplicates and delays, one per seed."""
    from services.ctl.admin.worlds import run_worlds  # noqa: PLC0415

    raise typer.Exit(run_worlds(scenario, first_seed=first_seed, seeds=seeds, show_log=log))
