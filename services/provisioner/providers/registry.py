"""The provider types of this installation, and the clients of their accounts.

A type is the value of `dynamic.<platform>.type`. A package adds one by an entry point of the group
`sluicegate.providers`: its name is the type, and it loads to a `ProviderKind`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from urllib.parse import parse_qsl

import structlog

from services.provisioner.config.credentials import Secrets
from services.provisioner.config.parameter_rules import NO_RULES, ParameterRules
from services.provisioner.config.provider_types import GROUP, PROVIDER_TYPES
from services.provisioner.providers.port import Provider

log = structlog.get_logger(__name__)


class UnknownProviderError(LookupError):
    """A record names a provider type that this installation does not have (any more)."""

    def __init__(self, type_: str, known: frozenset[str]) -> None:
        super().__init__(f"no provider '{type_}' here; there are: {', '.join(sorted(known))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderKind:
    """One provider type."""

    open: Callable[[Mapping[str, str], Secrets], Provider]
    """Makes the client of one account. The mapping has those of the keys `account`, `region`, `url`,
    `crn`, `secret` and `aws-secret` that the platform has. It must not connect yet."""

    ssh_user: str = "root"
    """User with which the provisioner logs in to machines of this type."""

    rules: ParameterRules = NO_RULES
    """Rules for the type's own keys of the host configuration."""


class Registry:
    """Clients of providers, by account."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        *,
        kinds: Mapping[str, ProviderKind] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """`providers`: types with one account for all platforms. `kinds`: types with many accounts."""
        self._open = dict(providers)
        self._kinds = dict(kinds or {})
        self._types = frozenset((*providers, *self._kinds))
        self._secrets = secrets or Secrets(None)

    @property
    def types(self) -> frozenset[str]:
        """The types that the host configuration may name."""
        return self._types

    @property
    def rules(self) -> dict[str, ParameterRules]:
        """Rules for the types' own keys, by type."""
        return {type_: kind.rules for type_, kind in self._kinds.items()}

    def get(self, account: str) -> Provider:
        """The client of an account, opened at first use. Raises `UnknownProviderError`."""
        provider = self._open.get(account)
        if provider is None:
            type_, _, where = account.partition("?")
            kind = self._kinds.get(type_)
            if kind is None:
                raise UnknownProviderError(type_, self.types)
            provider = self._open[account] = kind.open(dict(parse_qsl(where)), self._secrets)
        return provider

    def ssh_user(self, type_: str) -> str:
        """User with which the provisioner logs in to machines of a type."""
        kind = self._kinds.get(type_)
        return kind.ssh_user if kind else "root"

    def all(self) -> list[tuple[str, Provider]]:
        """All accounts that were used so far, sorted."""
        return sorted(self._open.items(), key=lambda item: item[0])

    async def close(self) -> None:
        """Close all connections."""
        for _, provider in self.all():
            await provider.close()


def shipped_kinds() -> dict[str, ProviderKind]:
    """The types of this repository. Loads the libraries of their clouds."""
    return {
        name: EntryPoint(name=name, value=type_.kind, group=GROUP).load()
        for name, type_ in PROVIDER_TYPES.items()
    }


def installed_kinds(found: tuple[EntryPoint, ...] | None = None) -> dict[str, ProviderKind]:
    """The types of other packages. A type that cannot be loaded is skipped and logged."""
    kinds: dict[str, ProviderKind] = {}
    for entry in found if found is not None else tuple(entry_points(group=GROUP)):
        try:
            kind = entry.load()
        except Exception as error:  # noqa: BLE001 # Code of another package may raise anything.
            log.error("a provider cannot be loaded", type=entry.name, error=repr(error))
            continue
        if isinstance(kind, ProviderKind):
            kinds[entry.name] = kind
        else:
            log.error("a provider's entry point is no ProviderKind", type=entry.name)
    return kinds
