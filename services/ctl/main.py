"""The `sluice` command. Every import that costs time is made by the command that needs it."""

import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from services.ctl.cli.bus import app as bus_app
from services.ctl.cli.completers import app as completion_app
from services.ctl.cli.dead import app as dead_app
from services.ctl.cli.hosts import app as hosts_app
from services.ctl.cli.integration import app as integration_app
from services.ctl.cli.options import (
    Context,
    DevDirectory,
    Kubeconfig,
    NatsUrl,
    TextOrJson,
    WorkloadName,
    chosen,
    named,
    one_of,
    run_async,
    usable_namespace,
)
from services.ctl.cli.queries import app as queries_app
from services.ctl.cli.spokes import app as spokes_app
from services.ctl.cli.steering import app as steering_app
from services.ctl.cli.whatif import app as whatif_app
from services.ctl.programs import Program
from shared.runtime.command import CommandError, Exit, print_line, surroundings_error

EPILOG: Final = (
    "Exit status: 0 done, 1 the answer is no (a check failed, a service ended by itself), "
    "2 wrong option, file or manifest, 3 NATS or the cluster does not answer, 130 interrupted."
)

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
    float, typer.Option(min=0.001, help="Speed of simulated time: 60 is a minute a second.")
]
Processes = Annotated[
    bool, typer.Option("--processes", help="One process for each service, as in a deployment.")
]
Secure = Annotated[
    bool, typer.Option("--secure", help="TLS, and a user of its own for each service on NATS.")
]

app = typer.Typer(
    name="sluice",
    help="Admit work to Kubernetes clusters: run Sluicegate, look at it, try it.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(bus_app, name="bus")
app.add_typer(dead_app, name="dead")
app.add_typer(hosts_app, name="hosts")
app.add_typer(integration_app, name="integration")
app.add_typer(spokes_app, name="spokes")
app.add_typer(queries_app)
app.add_typer(steering_app)
app.add_typer(whatif_app)
app.add_typer(completion_app)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Settings: SLUICE_… environment variables; see docs/reference.",
)
def run(context: typer.Context, program: Program) -> None:
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


@app.command("history")
def history_command(
    workload: WorkloadName,
    every: Annotated[
        bool, typer.Option("--all", help="Every message, with its place in the logs.")
    ] = False,
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Tell what happened to a workload, in order, and its trace id."""
    from services.ctl.inspect.history import show_history  # noqa: PLC0415

    run_async(
        show_history(
            *named(workload),
            as_json=one_of(output, "text", "json") == "json",
            every=every,
            url=nats_url,
            directory=directory,
        )
    )


@app.command()
def mutate(
    pipelinerun_file: Annotated[Path, typer.Option(help="The object, as YAML or JSON.")],
    config_dir: Annotated[Path, typer.Option(help="Folder with the classifier's config.yaml.")],
) -> None:
    """Print what the webhook would make of a PipelineRun or Job. Nothing needs to run."""
    from services.ctl.admin.mutate import mutated_yaml  # noqa: PLC0415

    print(mutated_yaml(pipelinerun_file, config_dir), end="")


@app.command()
def install(
    manifests: Annotated[
        list[Path] | None, typer.Option(help="File or folder to apply. May be repeated.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The cluster; default: the service account of the pod.")
    ] = None,
    context: Context = None,
    spokes: Annotated[
        int,
        typer.Option(
            min=0,
            max=20,
            help="Also apply the queues and checks that a hub with so many spokes needs.",
        ),
    ] = 0,
    definitions: Annotated[
        bool, typer.Option("--definitions", help="Apply the definitions of kinds that are missing.")
    ] = False,
    webhook_url: Annotated[
        str | None,
        typer.Option(help="URL at which the API server reaches the classifier; registers it."),
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(help="CA of the classifier's certificate (ca.crt).")
    ] = None,
    wait_seconds: Annotated[
        float, typer.Option(help="How long to wait for the API server and for the CA file.")
    ] = 120,
) -> None:
    """Apply manifests to a cluster and register the admission webhook. May be repeated."""
    from services.ctl.setup.install import install as install_all  # noqa: PLC0415

    done = run_async(
        install_all(
            kubeconfig=kubeconfig,
            context=context,
            manifests=manifests or [],
            spokes=spokes,
            definitions=definitions,
            webhook_url=webhook_url,
            authority=authority,
            wait_seconds=wait_seconds,
        )
    )
    print("\n".join(f"applied {title}" for title in done))


@app.command()
def uninstall(
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without it nothing is written.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done.")] = False,
    waiting: Annotated[
        str | None,
        typer.Option(help="Jobs that wait: release starts them, leave keeps them suspended."),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", callback=usable_namespace, help="Namespace of the services."
        ),
    ] = "sluicegate",
    wait_seconds: Annotated[
        float, typer.Option(help="How long to wait for the services' pods to end.")
    ] = 120,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Give a cluster back: stop the services, remove finalizers, start or leave waiting jobs.

    Exit status 1 if something is left to do. Running jobs go on running. May be repeated. Manifests and
    definitions stay: delete them afterwards.
    """
    from services.ctl.setup.uninstall import choice_of  # noqa: PLC0415
    from services.ctl.setup.uninstall import uninstall as give_back  # noqa: PLC0415

    if yes == plan:
        raise CommandError("uninstall", "needs --plan or --yes", hint="start with --plan")
    done = run_async(
        give_back(
            yes=yes,
            waiting=choice_of(waiting),
            namespace=namespace,
            wait_seconds=wait_seconds,
            cluster=chosen(kubeconfig, context, directory),
        )
    )
    if not done:
        raise typer.Exit(Exit.FAILED)


@app.command("simulate-world")
def simulate_world(
    scenario: Annotated[str, typer.Option(help="Which world.")] = "basic",
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds, from --first-seed on.")] = 200,
    first_seed: Annotated[int, typer.Option(help="The first of them.")] = 1,
    log: Annotated[bool, typer.Option("--log", help="Print what happened in each.")] = False,
) -> None:
    """Run all services in simulated worlds, with crashes, duplicates and delays, one per seed."""
    from services.ctl.admin.worlds import run_worlds  # noqa: PLC0415

    raise typer.Exit(run_worlds(scenario, first_seed=first_seed, seeds=seeds, show_log=log))


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as distribution_version  # noqa: PLC0415

    print(f"sluice {distribution_version('sluicegate')}")


def main() -> None:
    """Entry point. Expected failures are shown as sentences; ours are shown with their traceback."""
    try:
        app()
    except CommandError as error:
        _refuse(error)
    except OSError as error:
        told = surroundings_error(error)
        if told is None:
            raise
        _refuse(told)
    except ValueError as error:
        sentences = _settings_error(error)
        if sentences is None:
            raise
        _complain(*sentences)
        sys.exit(Exit.WRONG_INPUT)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


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
