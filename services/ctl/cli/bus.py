"""`sluice bus`: streams, backups, users and leaf nodes of NATS."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from services.ctl.cli.options import DevDirectory, NatsUrl, run_async
from shared.runtime.command import CommandError, Exit
from shared.settings.access import LOCAL_NATS

_LEAF_URL: Final = re.compile(r"(tls|nats|nats-leaf|wss?)://[^/\s,]+(/\S*)?")

app = typer.Typer(
    help="Streams and users of NATS: declare, back up, restore, move.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("apply", short_help="Create or update streams and durable consumers.")
def bus_apply(
    rebuild: Annotated[
        list[str] | None,
        typer.Option(
            help="Make this view (latest message of each subject) anew from its log. May be repeated."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1, max=5, help="Servers that keep each stream; default: as it is, 1 at first."
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            envvar="SLUICE_CLUSTER", help="Name of the hub whose durable consumers are made."
        ),
    ] = "hub",
    nats_url: NatsUrl = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Create or update streams and durable consumers as deploy/nats declares them. May be repeated."""
    from services.ctl.connect.bus import apply_bus  # noqa: PLC0415

    report = run_async(
        apply_bus(
            nats_url, directory, rebuild=tuple(rebuild or ()), replicas=replicas, cluster=cluster
        )
    )
    print(report)
    if not report.ok:
        raise typer.Exit(Exit.FAILED)


@app.command("backup", short_help="Write all streams to a folder.")
def bus_backup(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="New, or empty.")],
    nats_url: NatsUrl = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Write all streams to a folder, each as `nats stream backup` does. Nothing has to stop."""
    from services.ctl.admin.backup import backup_to  # noqa: PLC0415

    run_async(backup_to(target, url=nats_url, directory=directory))


@app.command("restore", short_help="Make all streams from a backup.")
def bus_restore(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="What a backup wrote.")],
    nats_url: NatsUrl = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Make all streams from a backup, on a server that has none of them."""
    from services.ctl.admin.backup import restore_from  # noqa: PLC0415

    run_async(restore_from(source, url=nats_url, directory=directory))


@app.command("migrate", short_help="Move all streams to a server with users, or commit them.")
def bus_migrate(
    source: Annotated[
        str | None, typer.Option("--from", help="Server without users that has the streams now.")
    ] = None,
    commit: Annotated[
        bool,
        typer.Option(
            "--commit",
            help="Commit all streams to this release's format: no release with a lower one serves them "
            "from then on.",
        ),
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    nats_url: NatsUrl = None,
    directory: DevDirectory = Path(".sluice"),
) -> None:
    """Move all streams from an open server to one with users, sequences and durables included.

    With --commit nothing is moved: it ends the time in which you can go back to the release before.
    """
    from services.ctl.admin.backup import commit_format, migrate_from  # noqa: PLC0415

    if commit == (source is not None):
        raise CommandError("migrate", "needs either --from or --commit")
    if plan == yes:
        raise CommandError("migrate", "needs --plan or --yes")
    if source is None:
        run_async(commit_format(url=nats_url, directory=directory, yes=yes))
    else:
        run_async(migrate_from(source, url=nats_url, directory=directory, yes=yes))


@app.command("permissions", short_help="Make users and keys, and print who may do what.")
def bus_permissions(
    keys: Annotated[
        Path, typer.Option(help="Folder with the users' seeds; those that are missing are made.")
    ] = Path("nats-keys"),
    spoke: Annotated[list[str] | None, typer.Option(help="A spoke. May be repeated.")] = None,
    cluster: Annotated[str, typer.Option(help="Name of the hub: its SLUICE_CLUSTER.")] = "hub",
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a ConfigMap and the users' Secrets instead.")
    ] = False,
    rotate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER",
            help="Make a new key for this user; NATS accepts the former one, too, until --retire. May be "
            "repeated.",
        ),
    ] = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(
            metavar="USER", help="Stop accepting the former key of this user. May be repeated."
        ),
    ] = None,
    nats_url: Annotated[
        str,
        typer.Option(
            envvar=["SLUICE_NATS_URL", "NATS_URL"],
            help="Where people find the server: each user's context for the nats command says it.",
        ),
    ] = LOCAL_NATS,
) -> None:
    """Print nats-server's configuration of who may do what: deploy/nats/permissions.yaml, and keys."""
    from services.ctl.setup.permissions import (  # noqa: PLC0415
        manifests,
        rendered,
        retire_key,
        rotate_key,
    )
    from shared.settings.environment import nats_access  # noqa: PLC0415

    for user in rotate or ():
        rotate_key(keys, user)
    for user in retire or ():
        retire_key(keys, user)

    configuration, users = rendered(
        keys, spoke or [], cluster=cluster, url=nats_url, tls=nats_access()
    )
    print(manifests(configuration, keys, users) if kubernetes else configuration, end="")


@app.command("leaf", short_help="Print the configuration of a spoke's NATS server.")
def bus_leaf(
    url: Annotated[
        str, typer.Argument(help="URL of the hub's port for leaf nodes: tls://HOST:7422.")
    ],
    key: Annotated[
        Path | None, typer.Option(help="The spoke's seed: nats-keys/spoke-NAME.nk.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="File with the CA of the hub's certificate.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="File with the client certificate.")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="File with the private key of that certificate.")
    ] = None,
) -> None:
    """Print the configuration of a spoke's own NATS server, which dials the hub's. It holds the seed."""
    from shared.bus.admin.accounts import leaf_configuration  # noqa: PLC0415
    from shared.settings.access import Access  # noqa: PLC0415

    if not _LEAF_URL.fullmatch(url):
        hint = "give the hub's port for leaf nodes, such as tls://nats.example.com:7422"
        raise CommandError(url, "is no URL of a server", hint=hint)
    access = Access(nkey=key, ca=ca, certificate=certificate, private_key=private_key)
    try:
        print(leaf_configuration(url, access), end="")
    except ValueError as error:
        raise CommandError("--key", str(error)) from error


@app.command("disconnect", short_help="Close leaf nodes whose key is no longer accepted.")
def bus_disconnect(nats_url: NatsUrl = None, directory: DevDirectory = Path(".sluice")) -> None:
    """Close leaf nodes of spokes whose key is no longer accepted. Needs the key of `operator` or `bus`."""
    from services.ctl.admin.leaf_nodes import disconnect_retired  # noqa: PLC0415

    run_async(disconnect_retired(url=nats_url, directory=directory))
