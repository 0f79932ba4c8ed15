"""The commands for users and operators: what they see, ask and steer. Each imports what it needs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from services.ctl.cli.completers import (
    complete_name,
    complete_namespace,
    complete_resource,
    complete_spoke,
    complete_workload,
    one_of_these,
)
from shared.runtime.command import CommandError, Exit

__all__ = ["TextOrJson", "WorkloadName", "app", "named", "one_of"]

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
    str,
    typer.Option(
        "--namespace",
        "-n",
        envvar="SLUICE_NAMESPACE",
        autocompletion=complete_namespace,
        help="Of what is asked for.",
    ),
]
TextOrJson = Annotated[
    str,
    typer.Option(
        "--output", "-o", autocompletion=one_of_these("text", "json"), help="text or json."
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces, with a column for it.")
]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Only of this cluster. Default: of all.")
]

WorkloadName = Annotated[
    str,
    typer.Argument(
        metavar="NAMESPACE/NAME",
        autocompletion=complete_workload,
        help="Of the job or of its Workload.",
    ),
]

Configured = Annotated[
    Path | None,
    typer.Option(
        "--configuration",
        envvar="SLUICE_CONFIGURATION",
        help="Kueue's Configuration that quota runs with: fair sharing, and how requests count.",
    ),
]


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
            autocompletion=complete_name, help="Only this one; of workloads also the job's."
        ),
    ] = None,
    namespace: Namespace = "default",
    all_namespaces: AllNamespaces = False,
    selector: Annotated[
        str | None, typer.Option("--selector", "-l", help="Label selector, for example team=a.")
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
    workload: WorkloadName,
    output: TextOrJson = "text",
    forecast: Annotated[
        bool, typer.Option(help="Say when it starts, by playing what may come from what was.")
    ] = True,
    configuration: Configured = None,
    cluster: Cluster = None,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say why a workload waits: what it lacks, who holds that, who is ahead, what would help."""
    import asyncio  # noqa: PLC0415

    from services.ctl.inspect.explain import explain as ask  # noqa: PLC0415

    namespace, name = named(workload)
    output = one_of(output, "text", "json")
    asyncio.run(
        ask(
            namespace,
            name,
            cluster=cluster,
            output=output,
            forecast=forecast,
            configuration=configuration,
            url=nats_url,
            directory=directory,
        )
    )


def named(workload: str) -> tuple[str, str]:
    """Namespace and name. Raises `CommandError` where it is no such pair."""
    namespace, slash, name = workload.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise CommandError(workload, "is no NAMESPACE/NAME", hint="for example team-tenant/build-1")
    return namespace, name


@app.command("who-preempted")
def who_preempted(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAMESPACE/NAME]",
            autocompletion=complete_workload,
            help="Of the job or Workload. Default: all.",
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            autocompletion=complete_namespace,
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
    import asyncio  # noqa: PLC0415

    from services.ctl.inspect.preempted import who_preempted as show  # noqa: PLC0415

    asyncio.run(
        show(
            named(workload) if workload else None,
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
    seconds: Annotated[float, typer.Option(min=0.2, help="Between two looks.")] = 1.0,
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Watch the queues: who waits, what is in use. Without a terminal: one line per queue."""
    import asyncio  # noqa: PLC0415

    from services.ctl.inspect.top import top as show  # noqa: PLC0415

    asyncio.run(show(once=once, seconds=seconds, url=nats_url, directory=directory))


@app.command()
def doctor(
    output: TextOrJson = "text",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Also look whether the services' accounts may do in it what they must."),
    ] = None,
    service_namespace: Annotated[
        str, typer.Option(help="Where the services run, for their accounts.")
    ] = "sluicegate",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Look for what is wrong, and say what to do about it. Exit status 1 if something is."""
    import asyncio  # noqa: PLC0415

    from services.ctl.doctor.command import doctor as examine  # noqa: PLC0415

    output = one_of(output, "text", "json")
    raise typer.Exit(
        asyncio.run(
            examine(
                output=output,
                kubeconfig=kubeconfig,
                service_namespace=service_namespace,
                url=nats_url,
                directory=directory,
            )
        )
    )


Steered = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        autocompletion=one_of_these("clusterqueue", "localqueue", "workload"),
        help="clusterqueue, localqueue, workload.",
    ),
]
SteeredName = Annotated[
    str, typer.Argument(autocompletion=complete_name, help="Of workloads also the job's.")
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        envvar="KUBECONFIG",
        help="The cluster to write to. Default: that of the `sluice dev` of this folder.",
    ),
]


@app.command()
def stop(
    kind: Steered,
    name: SteeredName,
    namespace: Namespace = "default",
    keep_already_running: Annotated[
        bool,
        typer.Option("--keep-already-running", help="Of a queue: let what runs end by itself."),
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
    import asyncio  # noqa: PLC0415

    from services.ctl.admin.steer import steer  # noqa: PLC0415

    sentence = asyncio.run(
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


Changed = Annotated[
    list[Path] | None,
    typer.Option(
        "--filename", "-f", help="Manifests to apply: queues, flavors, jobs. May be repeated."
    ),
]
Removed = Annotated[
    list[str] | None,
    typer.Option("--remove", metavar="KIND/NAME", help="Take an object away. May be repeated."),
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


@app.command()
def simulate(
    filename: Changed = None,
    remove: Removed = None,
    lost_spoke: Annotated[
        str | None,
        typer.Option(
            autocompletion=complete_spoke,
            help="What runs on this spoke has to start again where the others have room.",
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
    cluster: Annotated[str, typer.Option(help="Where changes apply.")] = "hub",
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say what a change would do to the queues: admissions, preemptions, waits, before and after.

    Nothing is written. How long workloads run is learned from those that ended in the last day.
    """
    import asyncio  # noqa: PLC0415

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
    asyncio.run(play(what, output=one_of(output, "text", "json"), save_to=save))


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
    epilog="Exit status: 0 nothing changes, 1 something does, 255 it cannot be said.",
)
def plan(
    filename: Changed = None,
    remove: Removed = None,
    state: State = None,
    rules: NewRules = None,
    configuration: Configured = None,
    cluster: Annotated[str, typer.Option(help="Where changes apply.")] = "hub",
    output: TextOrJson = "text",
    nats_url: NatsUrl = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Say who would be admitted, preempted or evicted at once if these manifests were applied."""
    import asyncio  # noqa: PLC0415

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
        status = asyncio.run(compare(what, output=one_of(output, "text", "json")))
    except CommandError as error:
        error.status = Exit.NO_PLAN
        raise
    except Exception as error:
        # Exit status 1, with which Python ends, would say that something changes.
        raise CommandError("sluice plan", repr(error), status=Exit.NO_PLAN) from error
    raise typer.Exit(status)


@app.command()
def completion(
    shell: Annotated[
        str,
        typer.Argument(
            autocompletion=one_of_these("bash", "zsh", "fish"), help="bash, zsh or fish."
        ),
    ],
) -> None:
    """Print a completion script, for example for `source <(sluice completion bash)`."""
    from services.ctl.cli.completion import script  # noqa: PLC0415

    print(script(shell))


def one_of(output: str, *known: str) -> str:
    """The value of `--output`. Raises `CommandError` where the command has no such form."""
    if output not in known:
        raise CommandError(f"--output {output}", f"must be {' or '.join(known)}")
    return output
