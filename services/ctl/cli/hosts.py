"""`sluice hosts`: where builds get their machines, and the quota that fits them."""

from pathlib import Path
from typing import Annotated

import typer

from services.ctl.cli.options import Directory, NatsUrl, run_async
from shared.runtime.command import CommandError, Exit

app = typer.Typer(
    help="Where builds get their machines, and who waits for one.", rich_markup_mode=None
)


@app.callback(invoke_without_command=True)
def hosts(
    context: typer.Context, nats_url: NatsUrl = None, directory: Directory = Path(".sluice")
) -> None:
    """Show each platform: its places, who is on them, who waits and why."""
    if context.invoked_subcommand is not None:
        return
    from services.ctl.inspect.hosts import show_hosts  # noqa: PLC0415

    run_async(show_hosts(nats_url, directory))


@app.command(short_help="Print quota for as many builds as there are places.")
def quota(
    file: Annotated[Path, typer.Argument(help="The host-config: a ConfigMap, as YAML or JSON.")],
    flavor: Annotated[
        str, typer.Option(help="Name of the flavors; a number is added where one is too few.")
    ] = "platform-group",
) -> None:
    """Print the resource groups of a ClusterQueue that admits as many builds as there are places."""
    import yaml  # noqa: PLC0415

    from services.ctl.inspect.hosts import quota_of  # noqa: PLC0415
    from services.whatif.manifests import load_manifests  # noqa: PLC0415

    maps = [m.object for m in load_manifests([file]) if m.object.get("kind") == "ConfigMap"]
    if len(maps) != 1:
        raise CommandError(str(file), f"has {len(maps)} ConfigMaps, one is meant")
    groups, errors = quota_of(maps[0].get("data") or {}, flavor=flavor)
    print(yaml.safe_dump({"resourceGroups": groups}, sort_keys=False), end="")
    for what, error in sorted(errors.items()):
        typer.echo(f"sluice: {what}: {error}", err=True)
    if errors:
        raise typer.Exit(Exit.FAILED)
