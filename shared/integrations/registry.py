"""The integrations that are in force: those that ship, and those of the cluster's Integration objects."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from shared.contracts.kube import kinds, names
from shared.contracts.kube.bodies import labels_of, owners_of
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.observed import Observed
from shared.integrations.compiled import written
from shared.integrations.document import Lines, parse
from shared.integrations.errors import IntegrationError, Problem
from shared.integrations.integration import Integration
from shared.integrations.pointers import beyond_shipped
from shared.integrations.schema import mismatch_of

_ALWAYS: Final = ("pipelineruns", "jobs", "jobsets")
"""The most used kinds, which are watched in every cluster."""

_WHERE_SERVED: Final = (
    "pytorchjobs",
    "tfjobs",
    "xgboostjobs",
    "paddlejobs",
    "jaxjobs",
    "mpijobs",
    "trainjobs",
    "rayjobs",
    "rayclusters",
    "rayservices",
    "appwrappers",
    "sparkapplications",
    "workflows",
)
"""Kinds that are watched where the API server serves them (ADR 110)."""


_LAST: Final = "9999-12-31T23:59:59Z"
"""Created after every object: it gives way to each."""

_OPTED: Final = {
    "pod": ("pods",),
    "deployment": ("pods", "deployments"),
    "statefulset": ("pods", "statefulsets"),
    "leaderworkerset.x-k8s.io/leaderworkerset": ("pods", "leaderworkersets"),
}
"""Kueue's name of a framework to the documents that are in force only where the configuration lists it: a
webhook on pods is nobody's default."""


def opted_documents(frameworks: Iterable[str]) -> Iterator[Object]:
    """The Integration objects that a cluster has because `integrations.frameworks` lists these."""
    for name in dict.fromkeys(name for one in frameworks for name in _OPTED.get(one, ())):
        yield from (obj for obj, _ in parse(_text(name)))


@cache
def _opted_resources() -> frozenset[tuple[str, str]]:
    """Group and plural of the kinds of these documents."""
    kinds_of = (obj["spec"]["kind"] for obj in opted_documents(_OPTED))
    return frozenset((kind["group"], kind["plural"]) for kind in kinds_of)


@cache
def _opted_object(group: object, plural: object) -> Object | None:
    """The Integration object of one of these documents; None: none describes that kind."""
    for obj in opted_documents(_OPTED):
        if (obj["spec"]["kind"]["group"], obj["spec"]["kind"]["plural"]) == (group, plural):
            return obj
    return None


@cache
def _opted() -> dict[tuple[str, str], Integration]:
    """The Integrations of these documents, by group and kind."""
    shipped = (Integration.shipped(obj, Lines()) for obj in opted_documents(_OPTED))
    return {(one.kind.group, one.kind.kind): one for one in shipped}


def opted() -> Iterator[tuple[str, str]]:
    """Name and text of each of these documents."""
    for name in dict.fromkeys(name for some in _OPTED.values() for name in some):
        yield f"{name}.yaml", _text(name)


def documents() -> Iterator[tuple[str, str]]:
    """Name and text of each document that ships. The most used kinds come first."""
    for name in (*_ALWAYS, *_WHERE_SERVED):
        yield f"{name}.yaml", _text(name)


def _text(name: str) -> str:
    return (resources.files("shared.integrations") / "documents" / f"{name}.yaml").read_text()


def _shipped() -> tuple[Integration, ...]:
    return tuple(
        Integration.shipped(obj, lines) for _, text in documents() for obj, lines in parse(text)
    )


INTEGRATIONS: Final = _shipped()
"""The integrations that ship with Sluicegate."""

WHERE_SERVED: Final = frozenset(integration.kind for integration in INTEGRATIONS[len(_ALWAYS) :])
"""The kinds among them that few clusters serve: a watcher looks for them instead of listing them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationState:
    """The state of one Integration object, for its status."""

    obj: Object
    problem: str | None
    """Why the present document is refused. None: it is in force."""

    in_force: Integration | None
    """The document in force for this object. It is an earlier version if the present one is refused."""


class Integrations:
    """The integrations of one cluster. Call `observe` for each observed Integration object."""

    def __init__(self, shipped: tuple[Integration, ...] = INTEGRATIONS) -> None:
        self._shipped = shipped
        self._read: dict[str, IntegrationState] = {}
        """The state of each object by itself, by name."""

        self._states: dict[str, IntegrationState] = {}
        """The state of each object among the others, by name."""

        self._by_resource: dict[tuple[str, str], Integration] = {}
        self._by_kind: dict[tuple[str, str], Integration] = {}
        self._index()

    def __iter__(self) -> Iterator[Integration]:
        """The kinds whose objects wait; not those whose pods wait instead."""
        return (one for one in self._by_resource.values() if not one.propagates)

    def kinds(self) -> tuple[Kind, ...]:
        """Return all kinds that can wait."""
        return tuple(integration.kind for integration in self)

    def added_kinds(self) -> tuple[Kind, ...]:
        """Return the kinds that Integration objects define."""
        found = (state.in_force for state in self._states.values())
        return tuple(one.kind for one in found if one is not None and not one.propagates)

    def copied_kinds(self) -> tuple[Kind, ...]:
        """Return those of the added kinds whose objects can run on another cluster: no pods at a gate."""
        gated = {one.kind for one in self if one.gate is not None}
        return tuple(kind for kind in self.added_kinds() if kind not in gated)

    def reviewed_kinds(self) -> tuple[Kind, ...]:
        """Return the kinds that Integration objects define and no manifest of the webhook has.

        Those with a gate, and those of the frameworks that a configuration lists, come with a webhook of
        their own: nobody else's pods may depend on it.
        """
        found = (state.in_force for state in self._states.values())
        return tuple(
            one.kind
            for one in found
            if one is not None and one.gate is None and _resource(one) not in _opted_resources()
        )

    def states(self) -> tuple[IntegrationState, ...]:
        """Return the state of each Integration object."""
        return tuple(self._states.values())

    def in_force(self) -> tuple[Integration, ...]:
        """Return the documents of Integration objects that are in force, each the same while it is."""
        found = (state.in_force for state in self._states.values())
        return tuple(one for one in found if one is not None)

    def find(
        self, *, group: str, plural: str | None = None, kind: str | None = None
    ) -> Integration | None:
        """The integration of a resource (by plural or by kind); None if that kind cannot wait."""
        if plural is not None:
            return self._by_resource.get((group, plural))
        return self._by_kind.get((group, kind or ""))

    def inside(self, group: str, kind: str) -> Integration | None:
        """The Integration of an object that another one wraps; None for a kind without one.

        Pods, Deployments and the like are read also where they do not wait.
        """
        return self._by_kind.get((group, kind)) or _opted().get((group, kind))

    def has_waiting_controller(self, obj: Object, kind: Kind) -> bool:
        """Whether `obj`, of `kind`, names a controller that makes such jobs, and waits for them.

        Its tenant may write that: whether the owner exists and was admitted, only the projection knows.
        """
        return any(owner.get("controller") and self._makes(owner, kind) for owner in owners_of(obj))

    def kinds_above_controller(self, obj: Object) -> set[str]:
        """Names of the kinds whose controllers make such objects as the controller that `obj` names.

        Or make what makes them: a JobSet's Jobs may be below a TrainJob.
        """
        owners = obj.get("metadata", {}).get("ownerReferences") or []
        named = (self._by_kind.get(_group_and_kind(o)) for o in owners if o.get("controller"))
        below = {one.kind for one in named if one is not None}
        above: set[Kind] = set()
        while below:
            makers = {one.kind for one in self if any(one.makes(kind) for kind in below)}
            below = makers - above
            above |= makers
        return {kind.kind for kind in above}

    def runs_with_controller(self, obj: Object, integration: Integration) -> bool:
        """Whether `obj` is a pod of something that waits as a whole: it is left alone.

        What a pod's controller waits for, its pods have. Only a kind with a gate is asked. A kind whose
        controller makes no pods itself waits for none: its tenant wrote that reference.
        """
        if integration.gate is None:
            return False
        owners = (one for one in owners_of(obj) if one.get("controller"))
        above = map(self._by_kind.get, map(_group_and_kind, owners))
        return any(one is not None and one.makes_pods and not one.propagates for one in above)

    def _makes(self, owner: Object, kind: Kind) -> bool:
        integration = self._by_kind.get(_group_and_kind(owner))
        return integration is not None and integration.makes(kind)

    def observe(self, observed: Observed) -> IntegrationState | None:
        """Apply an observed Integration object and return its state.

        None for an object of another kind, or a deleted one.

        A refused document leaves the earlier one in force: the version before, or else what the
        object's status says was accepted last.
        """
        if (observed.group, observed.plural) != (kinds.INTEGRATION.group, kinds.INTEGRATION.plural):
            return None
        if observed.deleted or observed.body is None:
            self._forget(observed.name)
            self._index()
            return None
        return self.apply(observed.body)

    def replace_all(self, objects: Iterable[Object]) -> None:
        """Apply these Integration objects, and forget all others."""
        present = {obj["metadata"]["name"]: obj for obj in objects}
        for name in self._read.keys() - present.keys():
            self._forget(name)
        for obj in present.values():
            self._remember(obj)
        self._index()

    def _forget(self, name: str) -> None:
        self._read.pop(name, None)
        self._states.pop(name, None)

    def observe_choice(self, observed: Observed) -> None:
        """Apply an Integration object of another cluster, of which no expression is read here.

        It only chooses: where it describes a kind that waits by choice and whose document ships, that
        document is in force, unless an object of our own cluster describes the kind.
        """
        name = f"{observed.cluster}/{observed.name}"  # No object has such a name.
        ours = None if observed.deleted else _chosen(observed.object)
        if ours is not None:
            self.apply({**ours, "metadata": {"name": name, "creationTimestamp": _LAST}})
        elif self._read.pop(name, None) is not None:
            self._states.pop(name, None)
            self._index()

    def apply(self, obj: Object) -> IntegrationState:
        """Apply an Integration object and return its state."""
        self._remember(obj)
        self._index()
        return self._states[obj["metadata"]["name"]]

    def _remember(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        known = self._read.get(name)
        if known is not None and _says(known.obj) == _says(obj):
            self._read[name] = replace(known, obj=obj)
        else:
            self._read[name] = _read(obj, None if known is None else known.in_force)

    def _index(self) -> None:
        """If several objects describe one kind, the oldest is in force, in every process at every time."""
        found = {_resource(i): i for i in self._shipped}
        owners: dict[tuple[str, str], str] = {}
        for name, read in sorted(self._read.items(), key=_age):
            state = read
            if read.in_force is not None:
                resource = _resource(read.in_force)
                other = owners.setdefault(resource, name)
                if other == name:
                    found[resource] = read.in_force
                else:
                    problem = f"Integration {other} speaks for that kind already"
                    state = IntegrationState(obj=read.obj, problem=problem, in_force=None)
            self._states[name] = state
        found = {resource: one.among(self.inside) for resource, one in found.items()}
        self._by_resource = found
        self._by_kind = {(i.kind.group, i.kind.kind): i for i in found.values()}


def _group_and_kind(owner: Object) -> tuple[str, str]:
    return str(owner.get("apiVersion") or "").rpartition("/")[0], str(owner.get("kind"))


def _chosen(obj: Mapping[str, Any] | None) -> Object | None:
    """The document that ships for the kind which an Integration object describes; None: there is none."""
    kind = ((obj or {}).get("spec") or {}).get("kind")
    found = kind if isinstance(kind, dict) else {}
    group, plural = found.get("group"), found.get("plural")
    is_named = isinstance(group, str) and isinstance(plural, str)
    return _opted_object(group, plural) if is_named else None


def _age(named: tuple[str, IntegrationState]) -> tuple[str, str]:
    name, read = named
    return str(read.obj["metadata"].get("creationTimestamp") or ""), name


def _says(obj: Object) -> tuple[Any, str | None]:
    """What decides about an Integration object: its spec, and what the schema has against it."""
    return obj.get("spec"), mismatch_of(obj)


def _read(obj: Object, before: Integration | None) -> IntegrationState:
    """The state of a document by itself."""
    try:
        integration = _load(obj)
        if (mismatch := mismatch_of(obj)) is not None:
            return IntegrationState(obj=obj, problem=mismatch, in_force=_accepted(obj))
        return IntegrationState(obj=obj, problem=None, in_force=integration)
    except IntegrationError as error:
        return IntegrationState(obj=obj, problem=str(error), in_force=before or _accepted(obj))


def _load(obj: Object) -> Integration:
    """Load the document of a cluster. Raises `IntegrationError`.

    One for a kind that ships may read its objects otherwise, and writes no other fields: whoever forges
    such a message at the bus would have the webhook change what tenants run.
    """
    integration = Integration.load(obj)
    permitted = _written_by_shipped(*_resource(integration))
    if permitted is not None:
        found = beyond_shipped(tuple(written(integration.compile())), permitted)
        problems = tuple(Problem(field=field, line=None, reason=why) for field, why in found)
        if problems:
            raise IntegrationError(obj["metadata"]["name"], problems)
    return integration


@cache
def _written_by_shipped(group: str, plural: str) -> frozenset[str] | None:
    """What the patches of the document write that ships for a kind; None: none does."""
    for one in (*INTEGRATIONS, *_opted().values()):
        if _resource(one) == (group, plural):
            return frozenset(path for _, path in written(one.compile()))
    return None


def _resource(integration: Integration) -> tuple[str, str]:
    return (integration.kind.group, integration.kind.plural)


def _accepted(obj: Object) -> Integration | None:
    """The integration that the status says was accepted; used if the process starts with a refused spec."""
    accepted = (obj.get("status") or {}).get("accepted")
    if not isinstance(accepted, dict) or accepted == obj.get("spec"):
        return None
    try:
        return _load({**obj, "spec": accepted})
    except IntegrationError:
        return None  # An older release accepted it. The present release reports what is wrong.


SHIPPED: Final = Integrations()
"""The integrations of a process that does not read Integration objects."""


def integration_for(
    *, group: str, plural: str | None = None, kind: str | None = None
) -> Integration | None:
    """The shipped integration of a resource (by plural or by kind); None if that kind cannot wait."""
    return SHIPPED.find(group=group, plural=plural, kind=kind)


def controller_uid(obj: Object) -> str:
    """The uid of the controller that `obj` names; empty if it names none.

    Of something malformed too: an API server stores only lists of objects with strings.
    """
    owners = (one for one in owners_of(obj) if one.get("controller"))
    return next((str(owner.get("uid") or "") for owner in owners), "")


def queue_of(obj: Object) -> str:
    """The LocalQueue that `obj` asks for; empty if it asks for none."""
    return str(labels_of(obj).get(names.QUEUE) or "")
