"""`sluice spokes`: how each spoke stands, and an operator's word that one of them is lost."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.ctl.cli.completers import complete_spoke
from services.ctl.cli.options import Directory, Kubeconfig, NatsUrl
from shared.contracts.kube.names import LOST
from shared.runtime.command import CommandError, Exit

if TYPE_CHECKING:
    from shared.kube.port import Kube

__all__ = ["app", "declared"]

app = typer.Typer(
    help="How the spokes stand, and whether one is given up as lost.", rich_markup_mode=None
)

Spoke = Annotated[
    str, typer.Argument(autocompletion=complete_spoke, help="Name of its MultiKueueCluster.")
]


@app.callback(invoke_without_command=True)
def spokes(
    context: typer.Context, nats_url: NatsUrl = None, directory: Directory = Path(".sluice")
) -> None:
    """Show each spoke: whether it is heard, what it was given, what is free there. 1: one is not heard."""
    import asyncio  # noqa: PLC0415

    if context.invoked_subcommand is None and not asyncio.run(_show(nats_url, directory)):
        raise typer.Exit(Exit.FAILED)


@app.command()
def lost(
    spoke: Spoke,
    reason: Annotated[str, typer.Option(help="Why nothing can run there any more.")],
    kubeconfig: Kubeconfig = None,
    directory: Directory = Path(".sluice"),
) -> None:
    """Declare that nothing runs on a spoke any more: what was there may start elsewhere.

    Only for a spoke that is off for good: whatever goes on running there runs twice.
    """
    if not reason.strip():
        raise CommandError("--reason", "is empty: say how it is known that nothing runs there")
    print(_declare(spoke, reason, kubeconfig, directory))


@app.command()
def found(
    spoke: Spoke, kubeconfig: Kubeconfig = None, directory: Directory = Path(".sluice")
) -> None:
    """Take that back: the spoke may be given work again."""
    print(_declare(spoke, None, kubeconfig, directory))


async def _show(nats_url: str | None, directory: Path) -> bool:
    from services.ctl.connect.reader import current, lookout  # noqa: PLC0415
    from services.ctl.get.command import Query, read, show  # noqa: PLC0415

    query = Query.of("spokes", output="wide", namespace=None)
    async with lookout(nats_url, directory) as look:
        rows = query.rows(await read(look, query.inputs()), current())
    if not rows:
        print("No MultiKueueCluster names a spoke.")
        return True
    print("\n".join(show(query, rows)))
    connected = [column.title for column in query.resource.columns].index("CONNECTED")
    return all(row.cells[connected] == str(True) for row in rows)


def _declare(spoke: str, reason: str | None, kubeconfig: Path | None, directory: Path) -> str:
    import asyncio  # noqa: PLC0415

    from services.ctl.connect.reader import kubeconfig_of  # noqa: PLC0415
    from shared.kube.client import HttpKube  # noqa: PLC0415

    async def declare() -> str:
        kube = HttpKube.from_kubeconfig(str(kubeconfig_of(kubeconfig, directory)))
        try:
            return await declared(kube, spoke, reason)
        finally:
            await kube.close()

    return asyncio.run(declare())


async def declared(kube: "Kube", spoke: str, reason: str | None) -> str:
    """Write it on the MultiKueueCluster; None: nobody says so any more. Return a sentence."""
    from shared.contracts.kube.kinds import MULTIKUEUE_CLUSTER  # noqa: PLC0415
    from shared.kube.port import KubeError, NotFoundError, UnavailableError  # noqa: PLC0415

    title = f"multikueuecluster {spoke}"
    try:
        obj = await kube.get(MULTIKUEUE_CLUSTER, None, spoke)
        known: Mapping[str, str] = obj["metadata"].get("annotations") or {}
        if known.get(LOST) == reason:
            return f"{title} is {_words(reason)} already"
        # The uid keeps a new object of the same name from being meant.
        metadata = {"uid": obj["metadata"]["uid"], "annotations": {LOST: reason}}
        await kube.patch(MULTIKUEUE_CLUSTER, None, spoke, {"metadata": metadata})
    except NotFoundError as error:
        raise CommandError(title, "not found in the cluster", status=Exit.FAILED) from error
    except UnavailableError as error:
        raise CommandError(title, str(error), status=Exit.UNREACHABLE) from error
    except KubeError as error:
        raise CommandError(title, f"refused: {error}", status=Exit.FAILED) from error
    return f"{title} is {_words(reason)}"


def _words(reason: str | None) -> str:
    return "not given up" if reason is None else f"given up as lost: {reason}"
