"""Which types of machines this installation has, and the accounts in which it has them.

A type is the value of `dynamic.<platform>.type`. A package adds one by an entry point of the group
`sluicegate.providers`: its name is the type, and it loads to a `ProviderKind`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final
from urllib.parse import parse_qsl

import structlog

from services.provisioner.config.credentials import Secrets
from services.provisioner.providers.keys import NO_RULES, Keys
from services.provisioner.providers.port import Provider

__all__ = ["GROUP", "ProviderKind", "Registry", "UnknownProviderError", "installed_kinds"]

log = structlog.get_logger(__name__)

GROUP: Final = "sluicegate.providers"


class UnknownProviderError(LookupError):
    """A record names a provider that this installation does not have (any more)."""

    def __init__(self, type_: str, known: frozenset[str]) -> None:
        super().__init__(f"no provider '{type_}' here; there are: {', '.join(sorted(known))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKind:
    """How one type of machines is had."""

    open: Callable[[Mapping[str, str], Secrets], Provider]
    """Makes the client of one account: of `account`, `region`, `url`, `crn`, `secret` and
    `aws-secret` those that the platform has. It may connect to nothing yet."""

    ssh_user: str = "root"
    """Who we are on its machines."""

    keys: Keys = NO_RULES
    """What its own keys of the host configuration must say."""


class Registry:
    """Providers by account."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        kinds: Mapping[str, ProviderKind] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """`providers`: types with one account for all. `kinds`: types with many."""
        self._open = dict(providers)
        self._kinds = dict(kinds or {})
        self._types = frozenset((*providers, *self._kinds))
        self._secrets = secrets or Secrets(None)

    @property
    def types(self) -> frozenset[str]:
        """What the host configuration may name."""
        return self._types

    @property
    def keys(self) -> dict[str, Keys]:
        """By type, what its own keys must say."""
        return {type_: kind.keys for type_, kind in self._kinds.items()}

    def get(self, account: str) -> Provider:
        """The provider of an account. Raises `UnknownProviderError`."""
        provider = self._open.get(account)
        if provider is None:
            type_, _, where = account.partition("?")
            kind = self._kinds.get(type_)
            if kind is None:
                raise UnknownProviderError(type_, self.types)
            provider = self._open[account] = kind.open(dict(parse_qsl(where)), self._secrets)
        return provider

    def ssh_user(self, type_: str) -> str:
        """Who we are on machines of a type."""
        kind = self._kinds.get(type_)
        return kind.ssh_user if kind else "root"

    def all(self) -> list[tuple[str, Provider]]:
        """Every account that was used so far, in a fixed order."""
        return sorted(self._open.items(), key=lambda item: item[0])

    async def close(self) -> None:
        """Let go of connections."""
        for _, provider in self.all():
            await provider.close()


def installed_kinds(found: tuple[EntryPoint, ...] | None = None) -> dict[str, ProviderKind]:
    """The types that other packages bring. One that cannot be loaded harms only itself."""
    kinds: dict[str, ProviderKind] = {}
    for entry in found if found is not None else tuple(entry_points(group=GROUP)):
        try:
            kind = entry.load()
        except Exception as error:  # noqa: BLE001 # Somebody else's code: anything may come out of it.
            log.error("a provider cannot be loaded", type=entry.name, error=repr(error))
            continue
        if isinstance(kind, ProviderKind):
            kinds[entry.name] = kind
        else:
            log.error("a provider's entry point is no ProviderKind", type=entry.name)
    return kinds
