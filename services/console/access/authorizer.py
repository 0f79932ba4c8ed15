"""Decides what a user may see, from RBAC of the cluster.

A user sees a namespace if they may list its Workloads, and ClusterQueues if they may list those. State
of spokes follows the rights in this cluster: a namespace means the same in all clusters. What is in
namespaces that only spokes have is for users who may see all, or who name the namespace.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from services.console.access.reviews import ResourceAttributes, Reviewer, User
from services.console.status_error import ConsoleRule, StatusError, forbidden
from shared.contracts.kube.kinds import VISIBILITY_GROUP

NAMESPACES_MAX: Final = 500
"""Up to so many namespaces are checked one by one; with more, the request must name one."""

LIST_QUEUES: Final = ResourceAttributes(verb="list", resource="clusterqueues")

NamespaceFilter = Callable[[str], bool]
"""Whether the user may see a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visibility:
    """What one user may see at the moment."""

    is_visible: NamespaceFilter
    cluster_queues: bool
    """Whether the user may see ClusterQueues."""

    def shows(self, namespace: str | None) -> bool:
        """Whether the user may see objects of that namespace; None or empty means cluster-scoped objects."""
        return self.is_visible(namespace) if namespace else self.cluster_queues


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeScope:
    """What a simulated change is about."""

    namespaces: frozenset[str] = frozenset()
    all_namespaces: str = ""
    """The part of the change that concerns all namespaces, in words."""

    cluster_scoped: str = ""
    """The part of the change that concerns cluster-scoped objects, in words."""


class Authorizer:
    """Turns access reviews into what a user may see. Methods raise `StatusError` if nothing is allowed."""

    def __init__(self, access: Reviewer, namespaces: Callable[[], Iterable[str]]) -> None:
        self._access = access
        self._namespaces = namespaces
        """The namespaces of this cluster that have queues, here or in spokes."""

    async def authenticate(self, token: str | None) -> User:
        """The user of a token."""
        return await self._access.authenticate(token)

    async def may_see_all_namespaces(self, user: User) -> bool:
        """Whether the user may see every namespace."""
        return await self._access.is_allowed(user, _workloads_in(""))

    async def visible_namespaces(
        self, user: User, namespace: str | None = None, *, of: frozenset[str] = frozenset()
    ) -> NamespaceFilter:
        """A filter for the namespaces that the user may see: `namespace`, or all that are allowed.

        Those in `of` are checked in any case; if there are too many namespaces to check each, only those.
        """
        if namespace is not None:
            await self._require(user, _workloads_in(namespace))
            return lambda other: other == namespace
        shows = await self._visible_namespaces(user, of)
        if shows is not None and not shows:
            raise forbidden(
                user.name,
                f"{_workloads_in('')}, nor in any namespace of this cluster that has queues",
            )
        return _any_of(shows)

    async def _visible_namespaces(
        self, user: User, of: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        """The namespaces that the user may see; None means all."""
        if await self.may_see_all_namespaces(user):
            return None
        names = sorted({*self._namespaces(), *of})
        if len(names) > NAMESPACES_MAX:
            if not of:
                raise StatusError(ConsoleRule.TOO_MANY_NAMESPACES, count=len(names))
            names = sorted(of)
        answers = await asyncio.gather(
            *(self._access.is_allowed(user, _workloads_in(name)) for name in names)
        )
        return frozenset(name for name, yes in zip(names, answers, strict=True) if yes)

    async def visibility(self, user: User, namespace: str | None = None) -> Visibility:
        """What the user may see of everything. Raises `StatusError` 403 if that is nothing."""
        queues = await self._access.is_allowed(user, LIST_QUEUES)
        if namespace is None and queues:
            return Visibility(
                is_visible=_any_of(await self._visible_namespaces(user)), cluster_queues=True
            )
        return Visibility(
            is_visible=await self.visible_namespaces(user, namespace), cluster_queues=queues
        )

    async def waiting_in_cluster_queue(self, user: User, name: str) -> NamespaceFilter:
        """A filter for the namespaces whose waiting workloads the user may see in a ClusterQueue.

        Kueue's role for `pendingworkloads` allows all namespaces, as it does in Kueue.
        """
        if await self._access.is_allowed(user, _pending("clusterqueues", name)):
            return _any_of(None)
        await self._require(
            user, ResourceAttributes(verb="get", resource="clusterqueues", name=name)
        )
        return await self.visible_namespaces(user)

    async def waiting_in_local_queue(self, user: User, namespace: str, name: str) -> None:
        """Raise `StatusError` 403 if the user may not see who waits in a LocalQueue."""
        if not await self._access.is_allowed(user, _pending("localqueues", name, namespace)):
            await self.visible_namespaces(user, namespace)

    async def require_list(self, user: User, resource: str) -> None:
        """Raise `StatusError` 403 if the user may not list the cluster-scoped objects of Kueue's resource."""
        await self._require(user, ResourceAttributes(verb="list", resource=resource))

    async def may_list(self, user: User, resource: str) -> bool:
        """Whether the user may list the cluster-scoped objects of Kueue's resource."""
        return await self._access.is_allowed(
            user, ResourceAttributes(verb="list", resource=resource)
        )

    async def known_namespaces(self, user: User) -> NamespaceFilter:
        """A filter for the namespaces that the user may see, also if that is none."""
        return _any_of(await self._visible_namespaces(user))

    async def authorize_simulation(self, user: User, scope: ChangeScope) -> NamespaceFilter:
        """A filter for the figures that the user may see.

        Raises `StatusError` 403 if the user may not look at something that the change touches.
        """
        if scope.all_namespaces and not await self.may_see_all_namespaces(user):
            raise forbidden(user.name, f"{_workloads_in('')}, which {scope.all_namespaces} needs")
        for namespace in sorted(scope.namespaces):
            await self._require(user, _workloads_in(namespace))
        if scope.cluster_scoped and not await self._access.is_allowed(user, LIST_QUEUES):
            raise forbidden(user.name, f"{LIST_QUEUES}, which {scope.cluster_scoped} needs")
        return await self.visible_namespaces(user, of=scope.namespaces)

    async def _require(self, user: User, wanted: ResourceAttributes) -> None:
        if not await self._access.is_allowed(user, wanted):
            raise forbidden(user.name, str(wanted))


def _any_of(names: frozenset[str] | None) -> NamespaceFilter:
    return (lambda _name: True) if names is None else names.__contains__


def _workloads_in(namespace: str) -> ResourceAttributes:
    return ResourceAttributes(verb="list", resource="workloads", namespace=namespace)


def _pending(resource: str, name: str, namespace: str = "") -> ResourceAttributes:
    return ResourceAttributes(
        verb="get",
        group=VISIBILITY_GROUP,
        resource=resource,
        subresource="pendingworkloads",
        namespace=namespace,
        name=name,
    )
