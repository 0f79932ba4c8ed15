"""The commands that write one field of an object in the cluster: `stop` and `resume`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.ctl.cli.completers import complete_name, one_of_these
from services.ctl.cli.options import (
    Context,
    Directory,
    Kubeconfig,
    Namespace,
    chosen,
    run_async,
)

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


@app.command()
def stop(
    kind: Steered,
    name: SteeredName,
    namespace: Namespace = "default",
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
    namespace: Namespace = "default",
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
