"""All groups of a cluster, by the objects that come and go. Pure."""

from typing import NamedTuple

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.observed import ObservedHeader
from shared.integrations.groups.group import Group
from shared.integrations.groups.member import Member, group_of, member_of
from shared.integrations.integration import Integration


class GroupKey(NamedTuple):
    """A group. `detail` is its objects' kind, for instance `pods_`."""

    detail: str
    namespace: str
    name: str


class Groups:
    """The groups that have at least one object."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Group] = {}
        self._of: dict[GroupKey, GroupKey] = {}
        """Each object to its group."""

    def find(self, kind: Kind, namespace: str, name: str) -> Group | None:
        """Return a group by its name; None if it has no object."""
        return self._groups.get(GroupKey(kind.detail, namespace, name))

    def observe(self, obj: Body, integration: Integration) -> tuple[Group, ...]:
        """Apply an object as it is now; return the groups that it changed.

        More than one if it was of another group before; none if it is by itself, or a newer state is known.
        """
        if integration.group is None:
            return ()
        metadata, name = obj["metadata"], group_of(obj, integration)
        namespace, detail = metadata["namespace"], integration.kind.detail
        one = GroupKey(detail, namespace, metadata["name"])
        before = self._of.get(one)
        if not name and before is None:
            return ()
        member = member_of(obj, integration)
        known = self._member(one)
        if known is not None and member.version < known.version:
            return ()
        key = GroupKey(detail, namespace, name)
        left = () if before in {None, key} else self._leave(one, member.version)
        if not name:
            return left
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(integration, namespace, name)
        group.integration = integration
        self._of[one] = key
        group.put(member, obj)
        return (*left, group)

    def forget(self, kind: Kind, tombstone: ObservedHeader) -> Group | None:
        """Apply the end of an object; return the group that it changed."""
        namespace, name = tombstone.namespace or "", tombstone.name
        member = self._member(GroupKey(kind.detail, namespace, name))
        if member is None or not tombstone.ends(member.uid, str(member.version)):
            return None
        return self.leave(kind, namespace, name, whole_number(tombstone.resource_version) or 0)

    def leave(self, kind: Kind, namespace: str, name: str, version: int) -> Group | None:
        """Take an object out of its group; return the group, None if it was in none."""
        one = GroupKey(kind.detail, namespace, name)
        return self._leave(one, version)[0] if one in self._of else None

    def _member(self, one: GroupKey) -> Member | None:
        key = self._of.get(one)
        return None if key is None else self._groups[key].members[one.name]

    def _leave(self, one: GroupKey, version: int) -> tuple[Group, ...]:
        key = self._of.pop(one)
        group = self._groups[key]
        group.remove(one.name, version)
        if not group.members:
            del self._groups[key]
        return (group,)
