"""`sluice integration`: tries an Integration document on an object, without a cluster."""

import json
from pathlib import Path
from typing import Annotated

import typer

from shared.runtime.command import CommandError, Exit

app = typer.Typer(
    help="How kinds that can wait are read: Integration documents.",
    epilog="Exit status of `check`: 0 the document is in order and reads the object, 1 it is in order but "
    "does not mean the object or fails on it, 2 a file is wrong.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="An Integration document.")],
    obj: Annotated[
        Path | None, typer.Option("--object", help="An object of the kind, as a manifest.")
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="text or json.")] = "text",
) -> None:
    """Type-check a document, and show what it makes of an object: pod sets, state, patches."""
    from services.ctl.admin import integration as admin  # noqa: PLC0415
    from services.whatif.manifests import load_documents  # noqa: PLC0415

    if output not in {"text", "json"}:
        raise CommandError(f"--output {output}", "must be text or json")
    integrations = admin.load_integrations(file)
    for integration in integrations if output == "text" else ():
        print(
            f"{file}: Integration {integration.name} is in order: {admin.described(integration.kind)}"
        )
    if obj is None:
        return
    documents = load_documents(obj)
    if len(documents) != 1 or not isinstance(documents[0][1], dict):
        raise CommandError(str(obj), f"must hold one object, has {len(documents)} documents")
    found = admin.finding_of(integrations, admin.with_metadata(obj, documents[0][1]))
    if output == "json":
        print(
            json.dumps(
                {name: getattr(found, name) for name in admin.CheckResult.__slots__}, indent=2
            )
        )
    else:
        print("\n".join(admin.check_lines(str(obj), found)))
    if not found.ok:
        raise typer.Exit(Exit.FAILED)


@app.command("list")
def list_() -> None:
    """List the kinds that can wait without any Integration object."""
    from services.ctl.admin.integration import list_lines  # noqa: PLC0415

    print("\n".join(list_lines()))
