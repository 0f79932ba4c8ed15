"""Kinds of a cluster: names, versions, scope and printer columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Obj = dict[str, Any]
"""A Kubernetes object as JSON. Objects from the store are shared: never change them in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One printer column, in the words of a CustomResourceDefinition."""

    name: str
    path: str
    """A JSONPath of the dialect that printer columns use."""

    type: str = "string"
    """`string`, `integer`, `number`, `boolean` or `date`; a date is shown as an age."""

    priority: int = 0
    """0 is always shown; more only with ``-o wide``."""

    value: Callable[[Obj], str] | None = None
    """The cell of an object, where it is more than what is at `path`."""


def column_from(column: Obj) -> Column:
    """Return an `additionalPrinterColumns` entry of a CustomResourceDefinition."""
    return Column(
        name=column["name"],
        path=column["jsonPath"],
        type=column.get("type", "string"),
        priority=column.get("priority", 0),
    )


AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource of the API, in all its served versions."""

    group: str = ""
    """Empty for the core group."""

    versions: tuple[str, ...] = ("v1",)
    """Served versions. The first is the storage version and the preferred one in discovery."""

    kind: str
    plural: str
    namespaced: bool = True
    has_status: bool = True
    """Whether the status is a subresource, written apart from the rest."""

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (AGE,)
    selectable: tuple[str, ...] = ()
    """Field paths a field selector may name, beside the object's name and namespace."""

    custom: bool = False
    """Served by a CustomResourceDefinition: no strategic merge, lists carry apiVersion and kind."""

    schemas: Mapping[str, Obj] = field(default_factory=dict, compare=False)
    """OpenAPI schema by version, from the CustomResourceDefinition. Objects are not validated by it."""

    generation: bool = True
    """Whether `metadata.generation` counts changes of the spec."""

    storage_version: str = field(init=False)
    resource: str = field(init=False)
    """``plural.group``, as error messages and custom resource definitions name it."""

    qualified_kind: str = field(init=False)
    """``Kind.group``, as validation errors name it."""

    def __post_init__(self) -> None:
        dotted = f".{self.group}" if self.group else ""
        object.__setattr__(self, "storage_version", self.versions[0])
        object.__setattr__(self, "resource", self.plural + dotted)
        object.__setattr__(self, "qualified_kind", self.kind + dotted)

    @property
    def singular(self) -> str:
        """The name a person types for one of them."""
        return self.kind.lower()

    def api_version(self, version: str | None = None) -> str:
        """Return ``group/version`` as objects carry it."""
        version = version or self.storage_version
        return f"{self.group}/{version}" if self.group else version


class KindRegistry:
    """The kinds that a cluster serves. Definitions of custom resources add to it."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_resource: dict[tuple[str, str], Kind] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Serve `kind`; a kind of the same group and plural is replaced."""
        self._by_resource[kind.group, kind.plural] = kind
        self._by_kind[kind.group, kind.kind] = kind

    def remove(self, kind: Kind) -> None:
        """Serve it no longer. Does nothing if it was never served."""
        self._by_resource.pop((kind.group, kind.plural), None)
        self._by_kind.pop((kind.group, kind.kind), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind behind a URL, or ``None`` where that version is not served."""
        kind = self._by_resource.get((group, plural))
        return kind if kind is not None and version in kind.versions else None

    def by_resource(self, group: str, plural: str) -> Kind:
        """Return the kind; `KeyError` if it is not served."""
        return self._by_resource[group, plural]

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind that an object says it is, or ``None``."""
        group, _, version = api_version.rpartition("/")
        found = self._by_kind.get((group, kind))
        return found if found is not None and version in found.versions else None

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._by_resource.values()))

    def groups(self) -> dict[str, list[str]]:
        """Return the served versions of each group, preferred first, the core group as ``""``."""
        groups: dict[str, list[str]] = {}
        for kind in self:
            versions = groups.setdefault(kind.group, [])
            versions.extend(version for version in kind.versions if version not in versions)
        return groups
