"""The `sluice` command. Every import that costs time is made by the command that needs it."""

import sys
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Annotated, Final

import typer

from services.ctl.admin.integration import app as integration_app
from services.ctl.cli.commands import TextOrJson, WorkloadName, named, one_of
from services.ctl.cli.commands import app as commands
from services.ctl.inspect.hosts import app as hosts_app
from services.ctl.inspect.spokes import app as spokes_app
from services.ctl.run import Program
from shared.runtime.command import CommandError, Exit

__all__ = ["app", "main"]

EPILOG: Final = (
    "Exit status: 0 done, 1 the answer is no (a check failed, a service ended by itself), "
    "2 wrong option, file or manifest, 3 NATS or the cluster does not answer, 130 interrupted."
)

app = typer.Typer(
    name="sluice",
    help="Admit work to Kubernetes clusters: run Sluicegate, look at it, try it.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
bus_app = typer.Typer(help="The streams of the bus.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bus_app, name="bus")
app.add_typer(hosts_app, name="hosts")
app.add_typer(integration_app, name="integration")
app.add_typer(spokes_app, name="spokes")
app.add_typer(commands)

NatsUrl = Annotated[
    str | None,
    typer.Option(
        "--nats-url",
        envvar=["SLUICE_NATS_URL", "NATS_URL"],
        help="Where NATS is. Default: the `sluice dev` of this folder, else nats://127.0.0.1:4222.",
    ),
]
Directory = Annotated[
    Path, typer.Option("--directory", help="Where logs, certificates and broker data are kept.")
]


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    epilog="Settings: SLUICE_… environment variables; see docs/reference.",
)
def run(context: typer.Context, program: Program) -> None:
    """Run one service as this process, until SIGTERM. The simulator takes options of its own."""
    from services.ctl.run import run_program  # noqa: PLC0415

    raise typer.Exit(run_program(program, context.args))


@app.command()
def dev(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="A cluster to work on; without it, one is simulated.")
    ] = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(help="File or folder of manifests to apply first. May be repeated."),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(help="Folder with the classifier's config.yaml.")
    ] = None,
    webhook: Annotated[
        bool | None,
        typer.Option(
            "--webhook/--no-webhook",
            help="Register the webhook. Default: only in a simulated cluster.",
        ),
    ] = None,
    speed: Annotated[float, typer.Option(min=0.001, help="Of simulated time.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the simulated cluster.")] = 0,
    spokes: Annotated[
        int, typer.Option(min=0, max=20, help="Simulated clusters beside it, to send work to.")
    ] = 0,
    secure: Annotated[
        bool, typer.Option("--secure", help="TLS, and a user of its own for each service on NATS.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show the services' logs.")] = False,
    nats_url: Annotated[
        str | None,
        typer.Option(
            envvar=["SLUICE_NATS_URL", "NATS_URL"],
            help="A NATS server; without it, one is started.",
        ),
    ] = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Run the whole system on this machine until Ctrl-C; a service that dies is started again."""
    import asyncio  # noqa: PLC0415

    from services.ctl.dev.app import EXAMPLE, DevOptions, serve  # noqa: PLC0415
    from services.ctl.dev.spokes import EXAMPLE as SPOKES_EXAMPLE  # noqa: PLC0415

    options = DevOptions(
        directory=directory,
        nats_url=nats_url,
        kubeconfig=kubeconfig,
        manifests=tuple(manifests or ()) or (() if kubeconfig or spokes else (EXAMPLE,)),
        rules=rules or (SPOKES_EXAMPLE if spokes else EXAMPLE) / "classifier",
        spokes=spokes,
        secure=secure,
        webhook=webhook,
        speed=speed,
        seed=seed,
        echo=None if quiet else lambda name, line: print(f"{name:<12}| {line}"),
    )
    raise typer.Exit(asyncio.run(serve(options, lambda text: print(f"sluice dev: {text}"))))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Of the generated load: equal seeds, equal load.")] = 1,
    runs: Annotated[int, typer.Option(min=0, help="How many PipelineRuns.")] = 600,
    jobs: Annotated[int, typer.Option(min=0, help="How many Jobs.")] = 100,
    speed: Annotated[float, typer.Option(min=0.001, help="Of simulated time.")] = 60.0,
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
    secure: Annotated[
        bool, typer.Option("--secure", help="TLS, and a user of its own for each service on NATS.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running at the end.")] = False,
    directory: Directory = Path(".sluice"),
) -> None:
    """Watch the whole system work on a generated load, then check from its log that it did it right.

    The last line begins with `demo: ok` or `demo: failed`.
    """
    import asyncio  # noqa: PLC0415

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
    raise typer.Exit(asyncio.run(demonstrate(options)))


@app.command("history")
def history_command(
    workload: WorkloadName,
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Tell what happened to a workload: every message about it, in order, and its trace id."""
    import asyncio  # noqa: PLC0415

    from services.ctl.inspect.history import show_history  # noqa: PLC0415

    asyncio.run(
        show_history(
            *named(workload),
            as_json=one_of(output, "text", "json") == "json",
            url=nats_url,
            directory=directory,
        )
    )


@bus_app.command("apply")
def bus_apply(
    rebuild: Annotated[
        list[str] | None, typer.Option(help="View to make anew from its log. May be repeated.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1, max=5, help="Servers that keep each stream; default: as it is, 1 at first."
        ),
    ] = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Make the streams what deploy/nats/streams.yaml says. Applying twice changes nothing."""
    import asyncio  # noqa: PLC0415

    from services.ctl.connect.bus import apply_bus  # noqa: PLC0415

    report = asyncio.run(
        apply_bus(nats_url, directory, rebuild=tuple(rebuild or ()), replicas=replicas)
    )
    print(report)
    if not report.ok:
        raise typer.Exit(Exit.FAILED)


@bus_app.command("backup")
def bus_backup(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="New, or empty.")],
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Write all streams to a folder, each as `nats stream backup` does. Nothing has to stop."""
    import asyncio  # noqa: PLC0415

    from services.ctl.admin.backup import backup_to  # noqa: PLC0415

    asyncio.run(backup_to(target, url=nats_url, directory=directory))


@bus_app.command("restore")
def bus_restore(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="What a backup wrote.")],
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Make all streams from a backup, on a server that has none of them."""
    import asyncio  # noqa: PLC0415

    from services.ctl.admin.backup import restore_from  # noqa: PLC0415

    asyncio.run(restore_from(source, url=nats_url, directory=directory))


@bus_app.command("permissions")
def bus_permissions(
    keys: Annotated[
        Path, typer.Option(help="Folder with the users' seeds; those that are missing are made.")
    ] = Path("nats-keys"),
    spoke: Annotated[list[str] | None, typer.Option(help="A spoke. May be repeated.")] = None,
    cluster: Annotated[str, typer.Option(help="Name of the hub: its SLUICE_CLUSTER.")] = "hub",
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a ConfigMap and the users' Secrets instead.")
    ] = False,
    nats_url: Annotated[
        str,
        typer.Option(
            envvar=["SLUICE_NATS_URL", "NATS_URL"],
            help="Where people find the server: each user's context for the nats command says it.",
        ),
    ] = "nats://127.0.0.1:4222",
) -> None:
    """Print nats-server's configuration of who may do what: deploy/nats/permissions.yaml, and keys."""
    from services.ctl.setup.permissions import manifests, rendered  # noqa: PLC0415
    from shared.settings.environment import nats_access  # noqa: PLC0415

    configuration, users = rendered(
        keys, spoke or [], cluster=cluster, url=nats_url, tls=nats_access()
    )
    print(manifests(configuration, keys, users) if kubernetes else configuration, end="")


@bus_app.command("leaf")
def bus_leaf(
    url: Annotated[str, typer.Argument(help="Of the hub's port for leaf nodes: tls://HOST:7422.")],
    key: Annotated[
        Path | None, typer.Option(help="The spoke's seed: nats-keys/spoke-NAME.nk.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="Of the hub's certificate.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="To show to the hub.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Of that certificate.")] = None,
) -> None:
    """Print the configuration of a spoke's own NATS server, which dials the hub's. It holds the seed."""
    from shared.bus.admin.accounts import leaf_configuration  # noqa: PLC0415
    from shared.settings.access import Access  # noqa: PLC0415

    access = Access(nkey=key, ca=ca, certificate=certificate, private_key=private_key)
    try:
        print(leaf_configuration(url, access), end="")
    except ValueError as error:
        raise CommandError("--key", str(error)) from error


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
    spokes: Annotated[
        int, typer.Option(min=0, max=20, help="Apply what the hub of so many spokes needs.")
    ] = 0,
    definitions: Annotated[
        bool, typer.Option("--definitions", help="Apply the definitions of kinds that are missing.")
    ] = False,
    webhook_url: Annotated[
        str | None, typer.Option(help="Where the classifier answers: registers it there.")
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(help="CA of the classifier's certificate (ca.crt).")
    ] = None,
    wait_seconds: Annotated[float, typer.Option(help="For API server and CA to be there.")] = 120,
) -> None:
    """Apply manifests to a cluster and register the admission webhook. May be repeated."""
    import asyncio  # noqa: PLC0415

    from services.ctl.setup.install import install as install_all  # noqa: PLC0415

    done = asyncio.run(
        install_all(
            kubeconfig=kubeconfig,
            manifests=manifests or [],
            spokes=spokes,
            definitions=definitions,
            webhook_url=webhook_url,
            authority=authority,
            wait_seconds=wait_seconds,
        )
    )
    print("\n".join(f"applied {title}" for title in done))


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
    print(f"sluice {distribution_version('sluicegate')}")


def main() -> None:
    """Entry point. Expected failures are shown as sentences; ours are shown with their traceback."""
    try:
        app()
    except CommandError as error:
        print(f"sluice: {error}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(error.status)
    except ValueError as error:
        sentences = _settings_error(error)
        if sentences is None:
            raise
        print("\n".join(sentences), file=sys.stderr)
        sys.exit(Exit.WRONG_INPUT)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


def _settings_error(error: ValueError) -> list[str] | None:
    """What was refused of the settings, in the words of the environment, or of Kueue's document."""
    if type(error).__name__ == "ConfigurationError":
        return [f"sluice: {error}"]
    if type(error).__name__ != "ValidationError" or not hasattr(error, "errors"):
        return None
    return [
        f"sluice: setting SLUICE_{'_'.join(str(part) for part in each['loc']).upper()}: "
        f"{each['msg']}, got {str(each.get('input'))[:80]!r}"
        if each["loc"]
        else f"sluice: settings: {each['msg']}"  # Of several together: its input is all of them.
        for each in error.errors()
    ]


if __name__ == "__main__":
    main()
