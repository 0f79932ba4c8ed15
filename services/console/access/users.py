"""Who asks, and what they may see: the cluster says both, and is remembered for a moment.

A token is never kept, only its SHA-256; and an answer that could not be had is no permission.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from services.console.refusals import Refusal
from shared.contracts.kube.kinds import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, Kind
from shared.kube.port import Kube, KubeError

__all__ = ["Access", "Attributes", "Everybody", "KubeAccess", "User"]

log = structlog.get_logger(__name__)

YES_SECONDS: Final = 30.0
"""How long a permission is remembered: so long it outlives its end."""

NO_SECONDS: Final = 5.0
"""How long a refusal is: so long somebody waits who was just given a role."""

REMEMBERED_MAX: Final = 10_000
TOKEN_CHARACTERS_MAX: Final = 16_384
ANSWER_SECONDS: Final = 10.0

HOW: Final = "send one of this cluster, for instance of `kubectl create token`"

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody whose token the cluster knows."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What somebody wants to do, as `resourceAttributes` have it."""

    verb: str
    resource: str
    group: str = "kueue.x-k8s.io"
    subresource: str = ""
    namespace: str = ""
    """Empty: in all of them, or outside of any."""

    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f' "{self.name}"' if self.name else ""
        where = (
            f' in the namespace "{self.namespace}"' if self.namespace else " at the cluster scope"
        )
        return f'{self.verb} resource "{what}"{named} in API group "{self.group}"{where}'


class Access(Protocol):
    """The two questions. Both raise `Refusal` where they cannot be answered."""

    async def user(self, token: str | None) -> User:
        """Whose token it is; `Refusal` 401 where it is nobody's."""

    async def may(self, user: User, attributes: Attributes) -> bool:
        """Whether the user may do that."""


class Everybody:
    """Asks nobody: for development on one machine."""

    async def user(self, token: str | None) -> User:
        """The same for all."""
        del token
        return User(name="system:anonymous")

    async def may(self, user: User, attributes: Attributes) -> bool:
        """Yes."""
        del user, attributes
        return True


class _Remembered(Generic[T]):
    """Answers for a while; who asks what is being asked waits for the same answer."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[tuple[T, float]]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        """The answer; `ask` gives it with the seconds for which it holds."""
        loop = asyncio.get_running_loop()
        known = self._known.get(key)
        if known is not None and loop.time() < known[0]:
            return known[1]
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(_run(ask))
            task.add_done_callback(lambda done: self._keep(key, done))
        # Whoever goes away does not take the answer from the others.
        answer, _ = await asyncio.shield(task)
        return answer

    def _keep(self, key: Hashable, task: "asyncio.Task[tuple[T, float]]") -> None:
        del self._asked[key]
        if task.cancelled() or task.exception() is not None:
            return
        answer, seconds = task.result()
        self._known[key] = (asyncio.get_running_loop().time() + seconds, answer)
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)


async def _run(ask: Callable[[], Awaitable[tuple[T, float]]]) -> tuple[T, float]:
    return await ask()


class KubeAccess:
    """Asks the cluster."""

    def __init__(
        self, kube: Kube, *, yes_seconds: float = YES_SECONDS, no_seconds: float = NO_SECONDS
    ) -> None:
        self._kube = kube
        self._yes_seconds = yes_seconds
        self._no_seconds = no_seconds
        self._users: _Remembered[User | None] = _Remembered()
        self._rights: _Remembered[bool] = _Remembered()

    async def user(self, token: str | None) -> User:
        """Whose token it is."""
        if not token:
            raise Refusal(401, f"a bearer token is needed: {HOW}")
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise Refusal(401, f"the token is too long to be one: {HOW}")
        digest = hashlib.sha256(token.encode()).digest()
        user = await self._users.get(digest, lambda: self._review_token(token))
        if user is None:
            raise Refusal(401, f"the cluster does not know this token, or no more: {HOW}")
        return user

    async def _review_token(self, token: str) -> tuple[User | None, float]:
        status = await self._ask(TOKEN_REVIEW, {"token": token})
        said = status.get("user") or {}
        if not status.get("authenticated") or not said.get("username"):
            return None, self._no_seconds
        extra = {key: tuple(values) for key, values in (said.get("extra") or {}).items()}
        user = User(
            name=str(said["username"]),
            uid=str(said.get("uid") or ""),
            groups=tuple(said.get("groups") or ()),
            extra=tuple(sorted(extra.items())),
        )
        return user, self._yes_seconds

    async def may(self, user: User, attributes: Attributes) -> bool:
        """Whether the user may do that."""
        return await self._rights.get(
            (user, attributes), lambda: self._review_access(user, attributes)
        )

    async def _review_access(self, user: User, attributes: Attributes) -> tuple[bool, float]:
        wanted = {
            "verb": attributes.verb,
            "group": attributes.group,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "namespace": attributes.namespace,
            "name": attributes.name,
        }
        spec: Json = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra},
            "resourceAttributes": {key: value for key, value in wanted.items() if value},
        }
        status = await self._ask(SUBJECT_ACCESS_REVIEW, spec)
        allowed = bool(status.get("allowed")) and not status.get("denied")
        return allowed, self._yes_seconds if allowed else self._no_seconds

    async def _ask(self, kind: Kind, spec: Json) -> Json:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                review = await self._kube.create(kind, {"metadata": {}, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.warning("the cluster does not say who may", kind=kind.kind, error=str(error))
            raise Refusal(
                503, "the cluster does not say who may see this", retry_after_seconds=5
            ) from error
        return review.get("status") or {}
