"""Which types of machines this installation has: the value of `dynamic.<platform>.type` to a provider."""

from collections.abc import Mapping

from services.provisioner.providers.port import Provider

__all__ = ["Registry", "UnknownProviderError"]


class UnknownProviderError(LookupError):
    """A record names a provider that this installation does not have (any more)."""

    def __init__(self, type_: str, known: frozenset[str]) -> None:
        super().__init__(f"no provider '{type_}' here; there are: {', '.join(sorted(known))}")


class Registry:
    """Providers by type."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = dict(providers)

    @property
    def types(self) -> frozenset[str]:
        """What the host configuration may name."""
        return frozenset(self._providers)

    def get(self, type_: str) -> Provider:
        """The provider of a type. Raises `UnknownProviderError`."""
        provider = self._providers.get(type_)
        if provider is None:
            raise UnknownProviderError(type_, self.types)
        return provider

    def all(self) -> list[tuple[str, Provider]]:
        """Every type with its provider, in a fixed order."""
        return sorted(self._providers.items())
