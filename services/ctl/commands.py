"""The commands for users and operators: what they see, ask and steer. Each imports what it needs."""

from pathlib import Path
from typing import Annotated

import typer

from services.ctl.errors import CommandError

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)

NatsUrl = Annotated[
    str | None,
    typer.Option(
        "--nats-url",
        envvar=["SLUICE_NATS_URL", "NATS_URL"],
        help="Where NATS is. Default: the `sluice dev` of this folder, else nats://127.0.0.1:4222.",
    ),
]
Directory = Annotated[Path, typer.Option("--directory", help="Of the `sluice dev` that is meant.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", envvar="SLUICE_NAMESPACE", help="Of what is asked for.")
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces, with a column for it.")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Only of this cluster. Default: of all.")
]


@app.command()
def get(
    resource: Annotated[
        str,
        typer.Argument(
            help="workloads (wl), clusterqueues (cq), localqueues (lq), cohorts (co), flavors (rf), "
            "hosts or spokes (mkc)."
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(help="Only this one; of workloads also the job's.")
    ] = None,
    namespace: Namespace = "default",
    all_namespaces: AllNamespaces = False,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", help="Label selector, for example team=a.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="table, wide, json, yaml or name.")
    ] = "table",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Then print each row that changes, until Ctrl-C.")
    ] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Rows only.")] = False,
    cluster: Cluster = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Show workloads, queues, cohorts, flavors, hosts or spokes, as the streams say they are."""
    import asyncio  # noqa: PLC0415

    from services.ctl.get.command import Query  # noqa: PLC0415
    from services.ctl.get.command import get as show  # noqa: PLC0415

    query = Query.of(
        resource,
        output=output,
        name=name,
        namespace=None if all_namespaces else namespace,
        cluster=cluster,
        labels=selector,
        header=not no_headers,
    )
    asyncio.run(show(query, watch=watch, url=nats_url, directory=directory))


@app.command()
def explain(
    workload: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="Of the job or of its Workload.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
    cluster: Cluster = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say why a workload waits: what it lacks, who holds that, who is ahead, what would help."""
    import asyncio  # noqa: PLC0415

    from services.ctl.explain import explain as ask  # noqa: PLC0415

    namespace, name = _named(workload)
    if output not in {"text", "json"}:
        raise CommandError(f"--output {output}", "must be text or json")
    asyncio.run(
        ask(namespace, name, cluster=cluster, output=output, url=nats_url, directory=directory)
    )


def _named(workload: str) -> tuple[str, str]:
    namespace, slash, name = workload.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise CommandError(workload, "is no NAMESPACE/NAME", hint="for example team-tenant/build-1")
    return namespace, name
