"""Reads groups as if each were one object: the Integration of a kind's groups. Pure."""

from functools import lru_cache
from typing import Any

from typing_extensions import override

from shared.contracts.kube.kinds import Object
from shared.contracts.messages.workloads import Finish, Members
from shared.integrations.groups.group import Group
from shared.integrations.integration import Integration


class GroupedIntegration(Integration):
    """The groups of a kind. Its objects are made by `Group.body`; nothing of them is ever written."""

    is_group = True

    @property
    @override
    def detail(self) -> str:
        return f"{super().detail}/group"

    @override
    def problems(self, obj: Object) -> tuple[str, ...]:
        return ()

    @override
    def matches(self, obj: Object) -> bool:
        return True

    @override
    def held(self, obj: Object) -> bool:
        return not group_in(obj).runs

    @override
    def active(self, obj: Object) -> bool:
        return group_in(obj).runs

    @override
    def ready(self, obj: Object) -> bool | None:
        return group_in(obj).ready

    @override
    def finish(self, obj: Object) -> Finish | None:
        if group_in(obj).runs:
            return None  # What runs after its group has ended holds quota, and is stopped.
        finish: Finish | None = obj["status"]["finish"]
        return finish

    @override
    def pod_sets(self, obj: Object) -> list[Object]:
        return group_in(obj).pod_sets()

    @override
    def variants(self, obj: Object) -> list[Object]:
        return group_in(obj).variants()

    @override
    def released(self, obj: Object) -> dict[str, int] | None:
        return group_in(obj).released()

    @override
    def reclaimable(self, obj: Object) -> dict[str, int]:
        group = group_in(obj)
        return {} if group.serving else group.succeeded()

    @override
    def refusals(self, obj: Object) -> list[str]:
        return group_in(obj).problems()

    @override
    def members(self, obj: Object) -> Members | None:
        return group_in(obj).numbers()

    @override
    def why_incomplete(self, obj: Object) -> str | None:
        return group_in(obj).why_incomplete()


def group_in(obj: Any) -> Group:
    """Return the group that a body of `Group.body` is about."""
    group: Group = obj["status"]["group"]
    return group


@lru_cache(maxsize=64)
def grouped(integration: Integration) -> GroupedIntegration:
    """Return the Integration of the groups of a kind."""
    return GroupedIntegration(integration.document, integration.compile)
