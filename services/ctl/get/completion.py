"""Shell completion: the script for a shell, and the names that it offers."""

import asyncio
import os
from pathlib import Path
from typing import Final

import yaml

from services.ctl.connect.reader import nats_url_of, open_reader, utc_now
from services.ctl.get.command import read
from services.ctl.get.resources import resource_named
from shared.contracts.subjects import Stream, synced_filter
from shared.runtime.command import CommandError

SHELLS: Final = ("bash", "zsh", "fish")
PATIENCE_SECONDS: Final = 1.0
"""How long Tab waits for NATS."""


def script(shell: str) -> str:
    """The script that a shell must source, for instance ``source <(sluice completion bash)``."""
    if shell not in SHELLS:
        raise CommandError(shell, f"is no shell that is known: {', '.join(SHELLS)}")
    # Documented, though typer does not list it among its exports.
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # noqa: PLC0415

    text: str = get_completion_script(
        prog_name="sluice", complete_var="_SLUICE_COMPLETE", shell=shell
    )
    return text


def names(
    word: str, namespace: str | None, *, url: str | None, directory: Path
) -> list[tuple[str, str, str]]:
    """Namespace, name and job of the objects of a kind.

    Empty if NATS does not answer: Tab must not print errors.
    """
    resource = resource_named(word)
    if resource is None:
        return []

    async def found() -> list[tuple[str, str, str]]:
        async with asyncio.timeout(PATIENCE_SECONDS), open_reader(url, directory) as reader:
            inputs = resource.inputs(None, namespace if resource.namespaced else None)
            snapshot = await read(reader, inputs)
        rows = resource.rows(snapshot, utc_now())
        return sorted({(row.ident.namespace, row.ident.name, row.alias) for row in rows})

    try:
        return asyncio.run(found())
    except (CommandError, TimeoutError):
        return []


def clusters(*, url: str | None, directory: Path) -> list[str]:
    """Names of the clusters that a watcher has listed; empty if NATS does not answer."""

    async def found() -> list[str]:
        async with asyncio.timeout(PATIENCE_SECONDS), open_reader(url, directory) as reader:
            return sorted((await read(reader, [(Stream.OBSERVED, synced_filter())])).synced)

    try:
        return asyncio.run(found())
    except (CommandError, TimeoutError):
        return []


def contexts(given: object) -> list[str]:
    """Names of the contexts of a kubeconfig, or of that of `KUBECONFIG`; empty if it is not one."""
    path = given or os.environ.get("KUBECONFIG")
    if not path:
        return []
    try:
        document = yaml.safe_load(Path(str(path)).read_text(encoding="utf-8"))
        return sorted(str(one["name"]) for one in document["contexts"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, RecursionError):
        return []


def where(parameters: dict[str, object]) -> tuple[str | None, Path]:
    """NATS URL and folder of a half-typed command line."""
    directory = Path(str(parameters.get("directory") or ".sluice"))
    # Commands that write to the cluster have no `--nats-url`, but complete names as well.
    named = (parameters.get("nats_url"), *map(os.environ.get, ("SLUICE_NATS_URL", "NATS_URL")))
    given = next((str(url) for url in named if url), None)
    return nats_url_of(given, directory), directory
