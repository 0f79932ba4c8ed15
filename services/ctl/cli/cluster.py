"""The commands that write to a cluster: `stop`, `resume`, `install` and `uninstall`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.ctl.cli.completers import complete_name, one_of_these
from services.ctl.cli.options import (
    Context,
    DevDirectory,
    Directory,
    Kubeconfig,
    chosen,
    finite,
    namespace_option,
    run_async,
    usable_namespace,
)
from shared.runtime.command import CommandError, Exit

if TYPE_CHECKING:
    from services.ctl.connect.cluster import ClusterChoice

app = typer.Typer(rich_markup_mode=None)

Steered = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        autocompletion=one_of_these("clusterqueue", "localqueue", "workload"),
        help="clusterqueue, localqueue, workload.",
    ),
]
SteeredName = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_name,
        help="Name of the object; for a workload also that of its job.",
    ),
]
SteeredNamespace = Annotated[
    str,
    namespace_option("Namespace of the LocalQueue or workload."),
]


@app.command()
def stop(
    kind: Steered,
    name: SteeredName,
    namespace: SteeredNamespace = "default",
    keep_already_running: Annotated[
        bool,
        typer.Option(
            "--keep-already-running", help="For queues: let running workloads end by themselves."
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Stop a queue (and evict what runs), or take a workload out of it."""
    cluster = chosen(kubeconfig, context, directory)
    _steer(kind, name, namespace, cluster, stop=True, keep=keep_already_running)


@app.command()
def resume(
    kind: Steered,
    name: SteeredName,
    namespace: SteeredNamespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Let a stopped queue admit again, or a deactivated workload compete again."""
    cluster = chosen(kubeconfig, context, directory)
    _steer(kind, name, namespace, cluster, stop=False, keep=False)


def _steer(
    kind: str,
    name: str,
    namespace: str,
    cluster: "ClusterChoice",
    *,
    stop: bool,
    keep: bool,
) -> None:
    from services.ctl.admin.steer import steer  # noqa: PLC0415

    sentence = run_async(
        steer(
            kind,
            name,
            namespace=namespace,
            stop=stop,
            keep_running=keep,
            cluster=cluster,
        )
    )
    print(sentence)


@app.command()
def install(
    manifests: Annotated[
        list[Path] | None, typer.Option(help="File or folder to apply. May be repeated.")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            envvar="KUBECONFIG", help="The cluster. Default in a pod: its service account."
        ),
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
        typer.Option(
            envvar="SLUICE_WEBHOOK_URL",
            help="URL at which the API server reaches the classifier; registers it.",
        ),
    ] = None,
    authority: Annotated[
        Path | None, typer.Option(help="CA of the classifier's certificate (ca.crt).")
    ] = None,
    wait_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            callback=finite,
            help="How long to wait for the API server and for the CA file.",
        ),
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
        float,
        typer.Option(
            min=0, callback=finite, help="How long to wait for the services' pods to end."
        ),
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
        problem = "--plan and --yes contradict each other" if yes else "needs --plan or --yes"
        raise CommandError("uninstall", problem, hint="start with --plan")
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
