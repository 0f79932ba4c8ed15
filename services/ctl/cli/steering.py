"""The commands that write one field of an object in the cluster: `stop` and `resume`."""

from pathlib import Path
from typing import Annotated

import typer

from services.ctl.cli.completers import complete_name, one_of_these
from services.ctl.cli.options import Directory, Kubeconfig, Namespace, run_async

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
    directory: Directory = Path(".sluice"),
) -> None:
    """Stop a queue (and evict what runs), or take a workload out of it."""
    _steer(kind, name, namespace, kubeconfig, directory, stop=True, keep=keep_already_running)


@app.command()
def resume(
    kind: Steered,
    name: SteeredName,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Let a stopped queue admit again, or a deactivated workload compete again."""
    _steer(kind, name, namespace, kubeconfig, directory, stop=False, keep=False)


def _steer(
    kind: str,
    name: str,
    namespace: str,
    kubeconfig: Path | None,
    directory: Path,
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
            kubeconfig=kubeconfig,
            directory=directory,
        )
    )
    print(sentence)
