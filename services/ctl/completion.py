"""Completion: the script for a shell, and what it is told about names that exist."""

import asyncio
from pathlib import Path
from typing import Final

from services.ctl.errors import CommandError
from services.ctl.get.command import read
from services.ctl.get.resources import resource_named
from services.ctl.lookout import current, lookout, nats_url_of

__all__ = ["SHELLS", "names", "script"]

SHELLS: Final = ("bash", "zsh", "fish")
PATIENCE_SECONDS: Final = 1.0
"""Somebody pressed Tab and waits."""


def script(shell: str) -> str:
    """What a shell must source, for instance ``source <(sluice completion bash)``."""
    if shell not in SHELLS:
        raise CommandError(shell, f"is no shell that is known: {', '.join(SHELLS)}")
    # Documented, though typer does not list it among its exports.
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # noqa: PLC0415

    text: str = get_completion_script(
        prog_name="sluice", complete_var="_SLUICE_COMPLETE", shell=shell
    )
    return text


def names(word: str, namespace: str, *, url: str | None, directory: Path) -> list[str]:
    """Names of what there is. Nothing where nobody can be asked: completion must not complain."""
    resource = resource_named(word)
    if resource is None:
        return []

    async def found() -> list[str]:
        async with asyncio.timeout(PATIENCE_SECONDS), lookout(url, directory) as look:
            inputs = resource.inputs(None, namespace if resource.namespaced else None)
            picture = await read(look, inputs)
        return sorted({row.ident[2] for row in resource.rows(picture, current())})

    try:
        return asyncio.run(found())
    except (CommandError, TimeoutError):
        return []


def where(parameters: dict[str, object]) -> tuple[str | None, Path]:
    """NATS and folder from a half-typed command line."""
    directory = Path(str(parameters.get("directory") or ".sluice"))
    given = parameters.get("nats_url")
    return nats_url_of(None if given is None else str(given), directory), directory
