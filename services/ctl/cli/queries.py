"""The commands that show something: `get`, `explain`, `top`, `doctor`, `status` and their neighbours."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from services.ctl.cli.completers import (
    complete_name,
    complete_namespace,
    complete_resource,
    complete_workload,
    one_of_these,
)
from services.ctl.cli.options import (
    AllNamespaces,
    Cluster,
    Configured,
    Context,
    DevDirectory,
    Directory,
    Namespace,
    NamespaceOfName,
    NatsUrl,
    TextOrJson,
    WorkloadName,
    finite,
    one_of,
    parse_name,
    run_async,
    usable_namespace,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
def get(
    resource: Annotated[
        str,
        typer.Argument(
            autocompletion=complete_resource,
            help="workloads (wl), clusterqueues (cq), localqueues (lq), cohorts (co), flavors (rf), "
            "hosts or spokes (mkc).",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete_name,
            help="Show only the object of this name; a workload also by the name of its job.",
        ),
    ] = None,
    namespace: Namespace = "default",
    all_namespaces: AllNamespaces = False,
    selector: Annotated[
        str | None,
        typer.Option(
            "--selector",
            "-l",
            help="Label selector, for example team=a. Workloads: labels of the job when it changed last.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            autocompletion=one_of_these("table", "wide", "json", "yaml", "name"),
            help="table, wide, json, yaml or name.",
        ),
    ] = "table",
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Then print each row that changes, until Ctrl-C.")
    ] = False,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Rows only.")] = False,
    cluster: Cluster = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Show workloads, queues, cohorts, flavors, hosts or spokes, from the latest messages on NATS."""
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
    run_async(show(query, watch=watch, url=nats_url, directory=directory))


@app.command()
def explain(
    workload: WorkloadName,
    namespace: NamespaceOfName = None,
    output: TextOrJson = "text",
    forecast: Annotated[
        bool, typer.Option(help="Estimate when it starts, from how long earlier workloads ran.")
    ] = True,
    forecast_seconds: Annotated[
        float, typer.Option(min=0.1, callback=finite, help="How long the forecast may take.")
    ] = 2.0,
    configuration: Configured = None,
    cluster: Cluster = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say why a workload waits: what it lacks, who holds that, who is ahead, what would help."""
    from services.ctl.inspect.explain import explain as ask  # noqa: PLC0415

    output = one_of(output, "text", "json")
    run_async(
        ask(
            *parse_name(workload, namespace),
            cluster=cluster,
            output=output,
            forecast=forecast,
            forecast_seconds=forecast_seconds,
            configuration=configuration,
            url=nats_url,
            directory=directory,
        )
    )


@app.command("history")
def history_command(
    workload: WorkloadName,
    namespace: NamespaceOfName = None,
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
            *parse_name(workload, namespace),
            as_json=one_of(output, "text", "json") == "json",
            every=every,
            url=nats_url,
            directory=directory,
        )
    )


@app.command("who-preempted")
def who_preempted(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAMESPACE/NAME]",
            autocompletion=complete_workload,
            help="Name of the job or Workload. Default: all.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            autocompletion=complete_namespace,
            callback=usable_namespace,
            help="Only victims of this namespace.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", autocompletion=one_of_these("table", "json"), help="table or json."
        ),
    ] = "table",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """List who was evicted for whom, as far as the log of decisions goes back."""
    from services.ctl.inspect.preempted import who_preempted as show  # noqa: PLC0415

    run_async(
        show(
            parse_name(workload) if workload else None,
            namespace=namespace,
            output=one_of(output, "table", "json"),
            url=nats_url,
            directory=directory,
        )
    )


@app.command()
def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print one line per queue, and end.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.2, callback=finite, help="Seconds between two updates.")
    ] = 1.0,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Watch the queues: who waits, what is in use. Without a terminal: one line per queue."""
    from services.ctl.inspect.top import top as show  # noqa: PLC0415

    run_async(show(once=once, seconds=seconds, url=nats_url, directory=directory))


@app.command()
def doctor(
    output: TextOrJson = "text",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Also check in this cluster that the services' accounts have the rights that they need."
        ),
    ] = None,
    context: Context = None,
    service_namespace: Annotated[
        str, typer.Option(help="Namespace of the services, for their ServiceAccounts.")
    ] = "sluicegate",
    configuration: Configured = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Look for what is wrong, and say what to do about it. Exit status 1 if something is."""
    from services.ctl.doctor.command import doctor as examine  # noqa: PLC0415

    output = one_of(output, "text", "json")
    raise typer.Exit(
        run_async(
            examine(
                output=output,
                kubeconfig=kubeconfig,
                context=context,
                service_namespace=service_namespace,
                document=configuration,
                url=nats_url,
                directory=directory,
            )
        )
    )


@app.command()
def status(
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say on one screen whether it is healthy, what waits, and what to do. Exit status 1 if not healthy."""
    from services.ctl.inspect.status import status as show  # noqa: PLC0415

    output = one_of(output, "text", "json")
    raise typer.Exit(run_async(show(output=output, url=nats_url, directory=directory)))


@app.command("support-bundle")
def support_bundle(
    out: Annotated[
        Path | None,
        typer.Option(help="File to write. Default: sluice-support-DATE.tar.gz in this folder."),
    ] = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Write what somebody who helps has to see into one file: states, findings, logs; no secrets."""
    from services.ctl.inspect.support_bundle import write_bundle  # noqa: PLC0415

    file = out or Path(f"sluice-support-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")
    missing = run_async(write_bundle(file, url=nats_url, directory=directory))
    for line in missing:
        print(f"sluice: {line}", file=sys.stderr)
    print(f"wrote {file}; look into it before you send it: it names workloads and queues")


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as distribution_version  # noqa: PLC0415

    print(f"sluice {distribution_version('sluicegate')}")
