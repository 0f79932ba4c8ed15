"""The integrations that are in force: those that ship, and those that a cluster's objects bring."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Final

from shared.contracts import kinds, names
from shared.contracts.kinds import Kind, Object
from shared.contracts.observed import Observed
from shared.integrations.document import parse
from shared.integrations.errors import IntegrationError
from shared.integrations.integration import Integration

__all__ = [
    "INTEGRATIONS",
    "SHIPPED",
    "Integrations",
    "Standing",
    "documents",
    "integration_for",
    "is_nested",
    "queue_of",
]

_OWNERS: Final = frozenset({"PipelineRun", "TaskRun", "Job", "Workload", "CustomRun"})
"""What waits itself, or belongs to what waits, by kind: of any group."""


def documents() -> Iterator[tuple[str, str]]:
    """Name and text of each document that ships. Those that people use most come first."""
    folder = resources.files("shared.integrations") / "documents"
    for name in ("pipelineruns.yaml", "jobs.yaml", "jobsets.yaml"):
        yield name, (folder / name).read_text()


def _shipped() -> tuple[Integration, ...]:
    return tuple(
        Integration.load(obj, lines) for _, text in documents() for obj, lines in parse(text)
    )


INTEGRATIONS: Final = _shipped()
"""Those that ship with Sluicegate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What came of one Integration object, for its status."""

    obj: Object
    problem: str | None
    """Why the present document is refused; None: it is in force."""

    in_force: Integration | None
    """The document that is in force for it: of an earlier version, where the present one is refused."""


class Integrations:
    """The integrations of one cluster. Tell it of each Integration object that is observed."""

    def __init__(self, shipped: tuple[Integration, ...] = INTEGRATIONS) -> None:
        self._shipped = shipped
        self._standings: dict[str, Standing] = {}
        """By the name of the object, in the order in which they were first seen."""

        self._by_resource: dict[tuple[str, str], Integration] = {}
        self._by_kind: dict[tuple[str, str], Integration] = {}
        self._index()

    def __iter__(self) -> Iterator[Integration]:
        return iter(self._by_resource.values())

    def kinds(self) -> tuple[Kind, ...]:
        """All kinds that can wait."""
        return tuple(integration.kind for integration in self)

    def brought(self) -> tuple[Kind, ...]:
        """The kinds of which Integration objects speak."""
        found = (standing.in_force for standing in self._standings.values())
        return tuple(integration.kind for integration in found if integration is not None)

    def standings(self) -> tuple[Standing, ...]:
        """What came of each Integration object, in the order in which they were first seen."""
        return tuple(self._standings.values())

    def find(
        self, *, group: str, plural: str | None = None, kind: str | None = None
    ) -> Integration | None:
        """The integration of a resource (by plural or by kind); None if that kind cannot wait."""
        if plural is not None:
            return self._by_resource.get((group, plural))
        return self._by_kind.get((group, kind or ""))

    def is_nested(self, obj: Object) -> bool:
        """Whether something that waits itself controls `obj`.

        Such objects inherit labels, but not the wait.
        """
        owners = obj.get("metadata", {}).get("ownerReferences") or []
        return any(owner.get("controller") and self._waits(owner) for owner in owners)

    def _waits(self, owner: Object) -> bool:
        kind = owner.get("kind")
        group = str(owner.get("apiVersion") or "").rpartition("/")[0]
        return kind in _OWNERS or (group, kind) in self._by_kind

    def take(self, observed: Observed) -> Standing | None:
        """Take in what was observed; None if it is no Integration object, or one that is gone.

        A document that is refused leaves in force what was: the version before, or else what the
        object's status says was accepted last.
        """
        if (observed.group, observed.plural) != (kinds.INTEGRATION.group, kinds.INTEGRATION.plural):
            return None
        if observed.deleted or observed.object is None:
            self._standings.pop(observed.name, None)
            self._index()
            return None
        return self.learn(observed.object)

    def learn(self, obj: Object) -> Standing:
        """Take in an Integration object."""
        name = obj["metadata"]["name"]
        known = self._standings.get(name)
        if known is not None and known.obj.get("spec") == obj.get("spec"):
            standing = Standing(obj=obj, problem=known.problem, in_force=known.in_force)
        else:
            standing = self._judged(obj, None if known is None else known.in_force)
        self._standings[name] = standing
        self._index()
        return standing

    def _judged(self, obj: Object, before: Integration | None) -> Standing:
        try:
            integration = Integration.load(obj)
        except IntegrationError as error:
            return Standing(obj=obj, problem=str(error), in_force=before or _accepted(obj))
        for other in self._standings.values():
            if (
                other.in_force is not None
                and _resource(other.in_force) == _resource(integration)
                and other.in_force.name != integration.name
            ):
                problem = f"Integration {other.in_force.name} speaks for that kind already"
                return Standing(obj=obj, problem=problem, in_force=None)
        return Standing(obj=obj, problem=None, in_force=integration)

    def _index(self) -> None:
        found = {_resource(i): i for i in self._shipped}
        for standing in self._standings.values():
            if standing.in_force is not None:
                found[_resource(standing.in_force)] = standing.in_force
        self._by_resource = found
        self._by_kind = {(i.kind.group, i.kind.kind): i for i in found.values()}


def _resource(integration: Integration) -> tuple[str, str]:
    return (integration.kind.group, integration.kind.plural)


def _accepted(obj: Object) -> Integration | None:
    """What the status says was in force: for whoever starts while the present document is refused."""
    accepted = (obj.get("status") or {}).get("accepted")
    if not isinstance(accepted, dict):
        return None
    try:
        return Integration.load({**obj, "spec": accepted})
    except IntegrationError:
        return None  # Accepted by an older release; the present one says why it is not.


SHIPPED: Final = Integrations()
"""What is in force where nobody looks at Integration objects."""


def integration_for(
    *, group: str, plural: str | None = None, kind: str | None = None
) -> Integration | None:
    """The shipped integration of a resource (by plural or by kind); None if that kind cannot wait."""
    return SHIPPED.find(group=group, plural=plural, kind=kind)


def is_nested(obj: Object) -> bool:
    """Whether something of a shipped kind that waits itself controls `obj`."""
    return SHIPPED.is_nested(obj)


def queue_of(obj: Object) -> str:
    """The LocalQueue that `obj` asks for; empty if it asks for none."""
    labels = obj.get("metadata", {}).get("labels") or {}
    return str(labels.get(names.QUEUE) or "")
