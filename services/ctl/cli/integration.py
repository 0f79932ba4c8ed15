"""`sluice integration`: tries an Integration document on an object, without a cluster."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from shared.runtime.command import CommandError, Exit

app = typer.Typer(
    help="Integration documents: how Sluicegate reads a kind of job that can wait.",
    epilog="Exit status of `check` and `try`: 0 the document is in order and reads the object, 1 it is in "
    "order but does not mean the object, refuses it or fails on it, 2 a file is wrong.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


Output = Annotated[str, typer.Option("--output", "-o", help="text or json.")]
Definition = Annotated[
    Path | None,
    typer.Option(
        "--crd", help="The kind's CustomResourceDefinition: paths are checked against it."
    ),
]


@app.command(short_help="Type-check a document, and try it on an object.")
def check(
    file: Annotated[Path, typer.Argument(help="An Integration document.")],
    obj: Annotated[
        Path | None, typer.Option("--object", help="An object of the kind, as a manifest.")
    ] = None,
    output: Output = "text",
    crd: Definition = None,
) -> None:
    """Type-check a document, and show what it makes of an object: pod sets, state, patches."""
    _try(file, obj, crd, output)


@app.command("try")
def try_(
    file: Annotated[Path, typer.Argument(help="An Integration document.")],
    obj: Annotated[Path, typer.Option("--object", help="An object of the kind, as a manifest.")],
    output: Output = "text",
    crd: Definition = None,
) -> None:
    """Show what a document makes of an object.

    Whether it is recognised, refused or held, what it requests, how it is started, and when it has ended.
    """
    _try(file, obj, crd, output)


@app.command(short_help="Write a first document for a kind from its schema.")
def init(
    crd: Annotated[
        Path, typer.Argument(help="A CustomResourceDefinition, as `kubectl get crd NAME -o yaml`.")
    ],
) -> None:
    """Write a first document for a kind from its schema, to standard output."""
    from services.ctl.admin.draft_integration import draft  # noqa: PLC0415

    print(draft(_one_object(crd), str(crd)), end="")


def _one_object(file: Path) -> dict[str, Any]:
    from services.whatif.manifests import load_documents  # noqa: PLC0415

    documents = load_documents(file)
    if len(documents) != 1 or not isinstance(documents[0][1], dict):
        raise CommandError(str(file), f"must hold one object, has {len(documents)} documents")
    found: dict[str, Any] = documents[0][1]
    return found


def _try(file: Path, obj: Path | None, crd: Path | None, output: str) -> None:
    from services.ctl.admin import integration as admin  # noqa: PLC0415

    if output not in {"text", "json"}:
        raise CommandError(f"--output {output}", "must be text or json")
    integrations = admin.load_integrations(file)
    if crd is not None:
        admin.check_definition(integrations, _one_object(crd), file=file, source=str(crd))
    for integration in integrations if output == "text" else ():
        print(
            f"{file}: Integration {integration.name} is in order: {admin.described(integration.kind)}"
        )
    if obj is None:
        return
    found = admin.finding_of(integrations, admin.with_metadata(obj, _one_object(obj)))
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
