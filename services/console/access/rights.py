"""What somebody may see, concluded from the cluster's own rights.

A namespace is for who may list its Workloads; ClusterQueues are named to who may list those. What is known of
spokes goes by the rights in this cluster: a namespace is the same one everywhere.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from services.console.access.users import Access, Attributes, User
from services.console.documents import VISIBILITY
from services.console.refusals import Refusal, forbidden

__all__ = ["Eyes", "Rights", "Sees", "Touched"]

NAMESPACES_MAX: Final = 500
"""For so many is asked whether somebody may see them; with more, one must be named."""

LIST_QUEUES: Final = Attributes(verb="list", resource="clusterqueues")

Sees = Callable[[str], bool]
"""Whether somebody may see a namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """What one user may see at the moment."""

    sees: Sees
    queues: bool
    """Whether ClusterQueues are named to them."""

    def seen(self, namespace: str | None) -> bool:
        """Whether what is in that namespace, or in none, is for them."""
        return self.sees(namespace) if namespace else self.queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """What a what-if is about."""

    namespaces: frozenset[str] = frozenset()
    everywhere: str = ""
    """What of it is about all namespaces at once."""

    outside: str = ""
    """What of it is in no namespace."""


class Rights:
    """Asks, and draws the conclusions. Each question raises `Refusal` where there is no answer."""

    def __init__(self, access: Access, namespaces: Callable[[], Iterable[str]]) -> None:
        self._access = access
        self._namespaces = namespaces
        """All that have queues."""

    async def user(self, token: str | None) -> User:
        """Whose token it is."""
        return await self._access.user(token)

    async def sees_all(self, user: User) -> bool:
        """Whether the user may see every namespace."""
        return await self._access.may(user, _workloads_in(""))

    async def sees(
        self, user: User, namespace: str | None = None, *, of: frozenset[str] = frozenset()
    ) -> Sees:
        """What of the namespaces the user may see: the one that is named, or some.

        Where there are too many to ask for each, those `of` the question are asked for.
        """
        if namespace is not None:
            await self._require(user, _workloads_in(namespace))
            return lambda other: other == namespace
        seen = await self._seen(user, of)
        if seen is not None and not seen:
            raise forbidden(user.name, f"{_workloads_in('')}, nor in any namespace that has queues")
        return _any_of(seen)

    async def _seen(self, user: User, of: frozenset[str] = frozenset()) -> frozenset[str] | None:
        """The namespaces that the user may see; None: all."""
        if await self.sees_all(user):
            return None
        names = sorted({*self._namespaces()})
        if len(names) > NAMESPACES_MAX:
            if not of:
                raise Refusal(400, f"there are {len(names)} namespaces: name one")
            names = sorted(of)
        answers = await asyncio.gather(
            *(self._access.may(user, _workloads_in(name)) for name in names)
        )
        return frozenset(name for name, yes in zip(names, answers, strict=True) if yes)

    async def eyes(self, user: User, namespace: str | None = None) -> Eyes:
        """What the user may see of everything; refused is who may see nothing."""
        queues = await self._access.may(user, LIST_QUEUES)
        if namespace is None and queues:
            return Eyes(sees=_any_of(await self._seen(user)), queues=True)
        return Eyes(sees=await self.sees(user, namespace), queues=queues)

    async def waiting_in_cluster_queue(self, user: User, name: str) -> Sees:
        """Whose waiting in a ClusterQueue the user may see.

        Kueue's own role for it opens the whole list, as it does in Kueue.
        """
        if await self._access.may(user, _pending("clusterqueues", name)):
            return _any_of(None)
        await self._require(user, Attributes(verb="get", resource="clusterqueues", name=name))
        return await self.sees(user)

    async def waiting_in_local_queue(self, user: User, namespace: str, name: str) -> None:
        """Refuse who may not see who waits in a LocalQueue."""
        if not await self._access.may(user, _pending("localqueues", name, namespace)):
            await self.sees(user, namespace)

    async def plays(self, user: User, touched: Touched) -> Sees:
        """Whose figures of a what-if the user may see. Nobody tries out what he may not look at."""
        if touched.everywhere and not await self.sees_all(user):
            raise forbidden(user.name, f"{_workloads_in('')}, which {touched.everywhere} needs")
        for namespace in sorted(touched.namespaces):
            await self._require(user, _workloads_in(namespace))
        if touched.outside and not await self._access.may(user, LIST_QUEUES):
            raise forbidden(user.name, f"{LIST_QUEUES}, which {touched.outside} needs")
        return await self.sees(user, of=touched.namespaces)

    async def _require(self, user: User, wanted: Attributes) -> None:
        if not await self._access.may(user, wanted):
            raise forbidden(user.name, str(wanted))


def _any_of(names: frozenset[str] | None) -> Sees:
    return (lambda _name: True) if names is None else names.__contains__


def _workloads_in(namespace: str) -> Attributes:
    return Attributes(verb="list", resource="workloads", namespace=namespace)


def _pending(resource: str, name: str, namespace: str = "") -> Attributes:
    return Attributes(
        verb="get",
        group=VISIBILITY,
        resource=resource,
        subresource="pendingworkloads",
        namespace=namespace,
        name=name,
    )
