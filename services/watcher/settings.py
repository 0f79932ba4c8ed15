"""Everything an operator may set for the watcher, with its default."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from services.watcher.scopes import KNOWN, resource_name
from shared.settings.kube import KubeSettings


def _separated(value: object) -> object:
    """Split ``a, b`` at its commas: an environment variable need not contain JSON."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _known(value: tuple[str, ...]) -> tuple[str, ...]:
    for name in value:
        if name not in KNOWN:
            raise ValueError(f"{name!r} is not watched; there are {', '.join(KNOWN)}")
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_separated)]


class WatcherSettings(KubeSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    kinds: Annotated[Names, AfterValidator(_known)] = tuple(
        resource_name(kind) for kind in KNOWN.values() if kind.plural != "nodes"
    )
    """The kinds to watch: ``<plural>.<group>``, separated by commas. Nodes change every few seconds and
    are left out unless named."""

    release_quota: Literal["podsGone", "jobGone"] = "podsGone"
    """When the quota of a job that is deleted while it runs is free: when its pods are gone, or with the job,
    as Kueue has it. The first needs the right to list pods; without it the second holds."""

    namespaces: Names = ()
    """The namespaces to watch, separated by commas; none: all."""
