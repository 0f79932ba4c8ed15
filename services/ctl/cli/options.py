"""Options and arguments that several commands share."""

import math
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from services.ctl.cli.completers import (
    complete_cluster,
    complete_context,
    complete_namespace,
    complete_workload,
    one_of_these,
)
from shared.contracts.kube.names import is_dns_label
from shared.contracts.refs import NamespacedName
from shared.runtime.command import CommandError
from shared.settings.access import LOCAL_NATS

if TYPE_CHECKING:
    from services.ctl.connect.cluster import ClusterChoice

T = TypeVar("T")


def usable_namespace(context: typer.Context, given: str | None) -> str | None:
    """The value of `--namespace`. Raises `CommandError` for text that no namespace has as its name."""
    if given is None or context.resilient_parsing or is_dns_label(given):
        return given
    raise CommandError(
        "--namespace",
        f"{given!r} is no name of a namespace",
        hint="give a name such as team-a (lower-case letters, digits and '-'), or leave the option out",
    )


def namespace_option(text: str) -> Any:
    """The option ``-n``, with this help text."""
    return typer.Option(
        "--namespace",
        "-n",
        envvar="SLUICE_NAMESPACE",
        callback=usable_namespace,
        autocompletion=complete_namespace,
        help=text,
    )


def finite(context: typer.Context, given: float) -> float:
    """The value of an option in seconds or the like; `nan` and `inf` pass every range."""
    if math.isfinite(given):
        return given
    raise typer.BadParameter(f"{given} is not a number that can be used here.", ctx=context)


NatsUrl = Annotated[
    str | None,
    typer.Option(
        "--nats-url",
        envvar=["SLUICE_NATS_URL", "NATS_URL"],
        help=f"URL of NATS. Default: that of the `sluice dev` in this folder, else {LOCAL_NATS}.",
    ),
]
Directory = Annotated[
    Path, typer.Option("--directory", help="Folder in which `sluice dev` keeps its state.")
]
DevDirectory = Annotated[
    Path, typer.Option("--directory", help="Where logs, certificates and broker data are kept.")
]
Namespace = Annotated[
    str,
    namespace_option("Only objects in this namespace."),
]
TextOrJson = Annotated[
    str,
    typer.Option(
        "--output", "-o", autocompletion=one_of_these("text", "json"), help="text or json."
    ),
]
AllNamespaces = Annotated[
    bool,
    typer.Option(
        "--all-namespaces", "-A", help="Show all namespaces, with a column for the namespace."
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        autocompletion=complete_cluster,
        help="Only this cluster. Default: all clusters.",
    ),
]
ChangedCluster = Annotated[
    str,
    typer.Option(
        "--cluster", autocompletion=complete_cluster, help="Cluster that the change is made in."
    ),
]

WorkloadName = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE/NAME",
        autocompletion=complete_workload,
        help="Namespace and name of the job or of its Workload.",
    ),
]
NamespaceOfName = Annotated[
    str | None,
    namespace_option("Namespace of a workload that is given by its name alone."),
]

Configured = Annotated[
    Path | None,
    typer.Option(
        "--configuration",
        envvar="SLUICE_CONFIGURATION",
        help="Kueue's Configuration that quota runs with: fair sharing, and how requests count.",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        help="The cluster to write to. Default: that of the `sluice dev` in this folder.",
    ),
]

Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        autocompletion=complete_context,
        help="Context of the kubeconfig. Default: its current one.",
    ),
]


def chosen(kubeconfig: Path | None, context: str | None, directory: Path) -> "ClusterChoice":
    """The cluster that these options choose."""
    from services.ctl.connect.cluster import ClusterChoice  # noqa: PLC0415

    return ClusterChoice(kubeconfig=kubeconfig, context=context, directory=directory)


def parse_name(workload: str, given: str | None = None) -> NamespacedName:
    """Namespace and name of ``NAMESPACE/NAME``, or of a name in the namespace that is `given` beside it.

    Raises `CommandError` for any other text.
    """
    full = workload if given is None or "/" in workload else f"{given}/{workload}"
    namespace, slash, name = full.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise CommandError(
            repr(workload),
            "must be NAMESPACE/NAME, or NAME beside --namespace",
            hint="for example team-tenant/build-1",
        )
    if given is not None and namespace != given:
        raise CommandError(
            repr(workload),
            f"names namespace {namespace!r}, and --namespace says {given!r}",
            hint="give one of them; a kind before the name is not needed",
        )
    if not is_dns_label(namespace):
        raise CommandError(
            repr(workload), f"{namespace!r} is no name of a namespace", hint="a name such as team-a"
        )
    from shared.contracts.subjects import NAME_BYTES_MAX  # noqa: PLC0415

    if len(name.encode()) > NAME_BYTES_MAX:
        raise CommandError(
            repr(f"{workload[:60]}…"),
            f"the name has more than {NAME_BYTES_MAX} bytes, which Kubernetes allows",
            hint="`sluice get workloads -A` lists what there is",
        )
    return NamespacedName(namespace, name)


def one_of(output: str, *known: str) -> str:
    """The value of `--output`. Raises `CommandError` if the command has no such format."""
    if output not in known:
        raise CommandError(f"--output {output}", f"must be {' or '.join(known)}")
    return output


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work. Commands that need no event loop start without loading asyncio."""
    import asyncio  # noqa: PLC0415

    return asyncio.run(work)
