"""A group: objects of one kind that are one workload together. Pure.

A change of one object costs the same in a group of 3 and of 3,000: what is asked of a group is counted as its
objects come, change and go.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from shared.contracts.kube.bodies import Body, OwnerReference, annotations_of, labels_of
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.messages.workloads import Finish, Members
from shared.integrations.errors import ObjectError
from shared.integrations.groups.member import Member
from shared.integrations.integration import Integration
from shared.integrations.views import POD_SETS_MAX

V = TypeVar("V", str, int)

_SHOWN_MAX: Final = 3
"""Values that a message names where objects of a group disagree."""


@dataclass(slots=True)
class _Variant:
    """Objects of one role that ask for the same."""

    template: Object | None
    """The pod template of one of them; None if it cannot be read."""

    of_gated: bool
    """It has nothing that an admission added."""

    count: int = 0
    runs: int = 0
    """Those of them that were let go and have not ended."""


@dataclass(slots=True)
class Role:
    """Objects of one pod set, in numbers."""

    members: int = 0
    """All of them; without any the group forgets the pod set."""

    counted: int = 0
    chosen: int = 0
    released: int = 0
    """Those that count and were let go."""

    succeeded: int = 0
    variants: dict[str, _Variant] = field(default_factory=dict)


class Group:
    """The objects of one group, and what follows from them."""

    def __init__(self, integration: Integration, namespace: str, name: str) -> None:
        self.integration = integration
        """The Integration of its objects."""

        self.namespace, self.name = namespace, name
        self.members: dict[str, Member] = {}
        self.roles: dict[str, Role] = {}
        self.waiting: dict[str, None] = {}
        """Names of those that count and are gated, in the order in which they came."""

        self.lost: dict[str, None] = {}
        """Names of those that do not count any more."""

        self.version = 0
        """The newest resource version of all, also of those that are gone."""

        self.labels: dict[str, str] = {}
        self.annotations: dict[str, str] = {}
        self._anchor = ""
        """Whose labels and annotations the group has."""

        self._chosen: dict[str, str] = {}
        """Name to role of those that the group consists of: as many as it has in all."""

        self._excess: dict[str, None] = {}
        self._counts: Counter[str] = Counter()
        """How many members have each of these properties."""

        self._total = 0
        self._queues: Counter[str] = Counter()
        self._totals: Counter[int] = Counter()

    # --- what comes in -----------------------------------------------------------------------------

    def put(self, member: Member, obj: Body) -> None:
        """Take an object up as it is now. What was let go goes on saying of its group what it said then."""
        before = self.members.get(member.name)
        if before is not None:
            member = member.as_released(before)
            self._count(before, -1)
        self.members[member.name] = member
        self._count(member, 1)
        self._total = self.total or member.total
        self.version = max(self.version, member.version)
        self._template(member, obj)
        if before is not None and before.uid != member.uid:
            self._place(member.name, waits=False, is_lost=False)
        self._place(member.name, waits=member.waits, is_lost=not member.counts)
        anchor = self.members.get(self._anchor)
        if member.counts and (anchor is None or not anchor.counts or self._anchor == member.name):
            self._anchor = member.name
            self.labels, self.annotations = labels_of(obj), annotations_of(obj)
        self._choose(member.name)
        if before is not None:
            self._drop_empty(before.role)

    def remove(self, name: str, version: int) -> None:
        """Forget an object that is gone."""
        member = self.members.pop(name)
        self._count(member, -1)
        self._place(name, waits=False, is_lost=False)
        self.version = max(self.version, version)
        self._choose(name)
        self._drop_empty(member.role)

    def _drop_empty(self, role: str) -> None:
        """Forget a role without objects: pods come and go for as long as their group lives."""
        if self.roles[role].members == 0:
            del self.roles[role]

    def _place(self, name: str, *, waits: bool, is_lost: bool) -> None:
        """Keep the order in which they came: a change does not move a member."""
        for names, belongs in ((self.waiting, waits), (self.lost, is_lost)):
            if belongs:
                names.setdefault(name)
            else:
                names.pop(name, None)

    def _count(self, member: Member, sign: int) -> None:
        role = self.roles.setdefault(member.role, Role())
        role.members += sign
        for name in ("runs", "early", "serving", "final", "deleted", "stopped"):
            self._counts[name] += sign * getattr(member, name)
        self._counts["open"] += sign * (not member.ended)
        self._counts["succeeded"] += sign * member.succeeded
        role.succeeded += sign * member.succeeded
        if not member.counts:
            return
        role.counted += sign
        role.released += sign * (not member.gated)
        self._counts["counted"] += sign
        self._counts["ready"] += sign * member.ready
        _tally(self._queues, member.queue, sign)
        _tally(self._totals, member.total, sign)
        if (variant := role.variants.get(member.asks)) is not None:
            variant.count += sign
            variant.runs += sign * member.runs

    def _template(self, member: Member, obj: Body) -> None:
        """Keep one template for each role, and one more for each object that asks for something else."""
        if not member.counts:
            return
        variants = self.roles[member.role].variants
        known = variants.get(member.asks)
        if known is not None and (known.of_gated or not member.gated):
            return
        try:
            (pod_set,) = self.integration.pod_sets(obj)
            template = {"spec": pod_set["template"]["spec"]}
        except (ObjectError, ValueError, KeyError, TypeError):
            template = None
        count, runs = (1, int(member.runs)) if known is None else (known.count, known.runs)
        for asks in [asks for asks, one in variants.items() if one.count <= 0]:
            del variants[asks]
        variants[member.asks] = _Variant(template, of_gated=member.gated, count=count, runs=runs)

    def _choose(self, name: str) -> None:
        """Let the group consist of as many as it has in all; those that were let go come first."""
        member = self.members.get(name)
        if member is None or not member.counts:
            self._unchoose(name)
            self._excess.pop(name, None)
        elif name in self._chosen:
            if self._chosen[name] != member.role:
                self._unchoose(name)
                self._take(name)
        else:
            self._excess[name] = None
            if not member.gated and len(self._chosen) >= self.total > 0:
                other = next((one for one in self._chosen if self.members[one].gated), None)
                if other is not None:
                    self._unchoose(other)
                    self._excess[other] = None
                    self._take(name)
        while self._excess and len(self._chosen) < self.total:
            self._take(next(iter(self._excess)))
        while len(self._chosen) > max(self.total, 0):
            last = next(reversed(self._chosen))
            self._unchoose(last)
            self._excess[last] = None

    def _take(self, name: str) -> None:
        self._excess.pop(name, None)
        role = self.members[name].role
        self._chosen[name] = role
        self.roles[role].chosen += 1

    def _unchoose(self, name: str) -> None:
        role = self._chosen.pop(name, None)
        if role is not None:
            self.roles[role].chosen -= 1

    # --- what follows ------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many objects it has in all, by the word of the first one that counts, or did."""
        return next(iter(self._totals), self._total)

    @property
    def counted(self) -> int:
        """How many objects count."""
        return self._counts["counted"]

    @property
    def early(self) -> bool:
        """True if it waits with its first object."""
        return self._counts["early"] > 0

    @property
    def runs(self) -> bool:
        """True if an object uses quota, or ends."""
        return self._counts["runs"] > 0

    @property
    def serving(self) -> bool:
        """True if it never ends by itself."""
        return self._counts["serving"] > 0

    @property
    def complete(self) -> bool:
        """True if nothing is missing before it can be admitted."""
        return len(self._chosen) >= (1 if self.early else max(self.total, 1))

    @property
    def given_up(self) -> bool:
        """True if its user deletes all of it."""
        return self._counts["deleted"] == len(self.members) and not self._counts["stopped"]

    @property
    def ready(self) -> bool:
        """True if as many as it has in all are ready or have succeeded."""
        return self._counts["ready"] >= max(self.total, 1)

    def created(self, name: str) -> str:
        """When an object of it was created; empty if it has none of that name."""
        member = self.members.get(name)
        return "" if member is None else member.created

    def numbers(self) -> Members:
        """Return how many there are."""
        return Members(
            total=self.total,
            present=len(self._chosen),
            complete=self.complete,
            latest=self.latest(),
        )

    def latest(self) -> str:
        """Name and uid of the last object that came and waits; empty if none waits."""
        name = next(reversed(self.waiting), "")
        return f"{name}/{self.members[name].uid}" if name else ""

    def has_seen(self, latest: str) -> bool:
        """Whether the object that came last by another reader's word is here."""
        name, _, uid = latest.partition("/")
        return not latest or (name in self.members and self.members[name].uid == uid)

    def finish(self) -> Finish | None:
        """Return how it has ended; None before that, and while one of its objects uses quota."""
        done, total = self._counts["succeeded"], self.total
        all_done = 0 < total <= done
        last_ended = self._counts["final"] > 0 and not self._counts["open"]
        if self.serving or self.runs or not (all_done or last_ended):
            return None
        return Finish(success=True, message=f"{self._kind}s succeeded: {done}/{total}.")

    def why_incomplete(self) -> str | None:
        """Return what is missing, and what to do; None if nothing is."""
        spec = self.integration.group
        if self.complete or spec is None:
            return None
        present = len(self._chosen)
        text = f"group {self.name!r} has {present} of {self.total} {self._kind}s (annotation {spec.total})"
        failed = f", {len(self.lost)} more have failed or are deleted" if self.lost else ""
        return f"{text}{failed}: create {self.total - present} more"

    def problems(self) -> list[str]:
        """Return in what its objects disagree, and what to do."""
        spec = self.integration.group
        assert spec is not None
        found = []
        for what, values in (
            (f"labels[{QUEUE}]", self._queues),
            (f"annotations[{spec.total}]", self._totals),
        ):
            if len(values) > 1:
                shown = ", ".join(repr(str(value)) for value in [*values][:_SHOWN_MAX])
                found.append(f"metadata.{what}: {shown}: {self._same} one value")
        if len(self._roles()) > POD_SETS_MAX:
            found.append(
                f"metadata.annotations[{spec.role}]: more than {POD_SETS_MAX} values: {self._same} "
                "fewer shapes"
            )
        for name, role in self._roles():
            if len(self._variants(role)) > 1:
                found.append(
                    f"metadata.annotations[{spec.role}]: {name!r}: {self._kind}s of that role ask for "
                    "different amounts: give them the same resources, or different roles"
                )
        return found

    @property
    def _kind(self) -> str:
        return self.integration.kind.kind

    @property
    def _same(self) -> str:
        return f"give all {self._kind}s of group {self.name!r}"

    def _roles(self) -> list[tuple[str, Role]]:
        """The roles of the group, in the order of their names."""
        chosen = sorted((name, role) for name, role in self.roles.items() if role.chosen)
        if self.early and chosen:
            first = next(iter(self._chosen.values()))
            return [(name, role) for name, role in chosen if name == first]
        return chosen

    @staticmethod
    def _variants(role: Role) -> list[_Variant]:
        return [one for one in role.variants.values() if one.count > 0]

    def pod_sets(self) -> list[Object]:
        """Return the pod sets in the form of `Workload.spec.podSets`. Raises `ObjectError`."""
        return [
            {
                "name": name,
                "count": self.total if self.early else role.chosen,
                "template": _read(self._variants(role), name),
            }
            for name, role in self._roles()[:POD_SETS_MAX]
        ]

    def variants(self) -> list[Object]:
        """Return all that objects which run ask for: those of a pod set may differ, by a change or by a role.

        What waits at its gate asks for nothing yet.
        """
        return [
            {"name": name, "count": one.runs, "template": one.template}
            for name, role in sorted(self.roles.items())
            for one in self._variants(role)
            if one.runs > 0 and one.template is not None
        ]

    def released(self) -> dict[str, int]:
        """Return the pod sets of which objects count and were let go, and how many."""
        return {name: role.released for name, role in self.roles.items() if role.released}

    def succeeded(self) -> dict[str, int]:
        """Return the pod sets of which objects have succeeded, and how many."""
        return {name: role.succeeded for name, role in self.roles.items() if role.succeeded}

    def owners(self) -> Iterator[OwnerReference]:
        """The references by which its objects own their Workload, as Kueue makes them."""
        kind = self.integration.kind
        for one in self.members.values():
            yield {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": one.name,
                "uid": one.uid,
            }

    def body(self, *, uid: str, created: str, finish: Finish | None) -> Body:
        """Return the group in the form of an object of its kind, for `GroupedIntegration` to read."""
        kind = self.integration.kind
        queue = next(iter(self._queues), "")
        labels = {key: value for key, value in self.labels.items() if key != QUEUE}
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": uid,
                "resourceVersion": str(self.version),
                "creationTimestamp": created,
                "labels": {**labels, **({QUEUE: queue} if queue else {})},
                "annotations": self.annotations,
            },
            "status": {"group": self, "finish": finish},
        }


def _tally(values: Counter[V], value: V, sign: int) -> None:
    values[value] += sign
    if not values[value]:
        del values[value]


def _read(variants: list[_Variant], role: str) -> Object:
    """The template of a role. Raises `ObjectError`."""
    found = next((one.template for one in variants if one.template is not None), None)
    if found is None:
        raise ObjectError(f"the pod template of role {role!r} cannot be read")
    return found
