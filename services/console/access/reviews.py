"""Asks the cluster whose a token is and what that user may do, and caches the answers for seconds.

The cache holds the SHA-256 of a token, never the token. If the cluster does not answer, nothing is
allowed.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from services.console.status_error import ConsoleRule, StatusError
from shared.contracts.kube.kinds import KUEUE_GROUP, SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, Kind
from shared.kube.port import Kube, KubeError

log = structlog.get_logger(__name__)

ALLOWED_SECONDS: Final = 30.0
"""How long an allowed request is cached: a revoked permission lasts at most this long."""

DENIED_SECONDS: Final = 5.0
"""How long a denied request is cached: a new role binding takes effect within this time."""

CACHE_MAX: Final = 10_000
TOKEN_CHARACTERS_MAX: Final = 16_384
"""Anybody may send tokens: so many answers are kept; a token has at most what our server takes as headers."""

ANSWER_SECONDS: Final = 10.0

Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user whose token the cluster knows."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAttributes:
    """A request that may be allowed or not, as `resourceAttributes` of a SubjectAccessReview."""

    verb: str
    resource: str
    group: str = KUEUE_GROUP
    subresource: str = ""
    namespace: str = ""
    """Empty means all namespaces, or a cluster-scoped resource."""

    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f' "{self.name}"' if self.name else ""
        where = (
            f' in the namespace "{self.namespace}"' if self.namespace else " at the cluster scope"
        )
        return f'{self.verb} resource "{what}"{named} in API group "{self.group}"{where}'


class Reviewer(Protocol):
    """Authentication and authorisation. Both methods raise `StatusError` if there is no answer."""

    async def authenticate(self, token: str | None) -> User:
        """The user of a token. Raises `StatusError` 401 if nobody has it."""

    async def is_allowed(self, user: User, attributes: ResourceAttributes) -> bool:
        """Whether the user may do that."""


class AllowAll:
    """Allows everything without asking, for development on one machine."""

    async def authenticate(self, token: str | None) -> User:
        """The same user for every token."""
        del token
        return User(name="system:anonymous")

    async def is_allowed(self, user: User, attributes: ResourceAttributes) -> bool:
        """Always True."""
        del user, attributes
        return True


class _ExpiringCache(Generic[T]):
    """Caches answers; concurrent questions of one key share one request."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[tuple[T, float]]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[tuple[T, float]]]) -> T:
        """The answer. `ask` returns it with the seconds for which it may be cached."""
        loop = asyncio.get_running_loop()
        known = self._known.get(key)
        if known is not None and loop.time() < known[0]:
            return known[1]
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(_run(ask))
            task.add_done_callback(lambda done: self._keep(key, done))
        # Shielded: if this caller is cancelled, the others still get the answer.
        answer, _ = await asyncio.shield(task)
        return answer

    def _keep(self, key: Hashable, task: "asyncio.Task[tuple[T, float]]") -> None:
        del self._asked[key]
        if task.cancelled() or task.exception() is not None:
            return
        answer, seconds = task.result()
        self._known[key] = (asyncio.get_running_loop().time() + seconds, answer)
        self._known.move_to_end(key)
        while len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)


async def _run(ask: Callable[[], Awaitable[tuple[T, float]]]) -> tuple[T, float]:
    return await ask()


class KubeReviewer:
    """Asks the cluster by TokenReview and SubjectAccessReview."""

    def __init__(
        self,
        kube: Kube,
        *,
        allowed_seconds: float = ALLOWED_SECONDS,
        denied_seconds: float = DENIED_SECONDS,
    ) -> None:
        self._kube = kube
        self._allowed_seconds = allowed_seconds
        self._denied_seconds = denied_seconds
        self._users: _ExpiringCache[User | None] = _ExpiringCache()
        self._rights: _ExpiringCache[bool] = _ExpiringCache()

    async def authenticate(self, token: str | None) -> User:
        """The user of a token. Raises `StatusError` 401 if the cluster does not know it."""
        if not token:
            raise StatusError(ConsoleRule.NO_TOKEN)
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise StatusError(ConsoleRule.LONG_TOKEN)
        digest = hashlib.sha256(token.encode()).digest()
        user = await self._users.get(digest, lambda: self._review_token(token))
        if user is None:
            raise StatusError(ConsoleRule.UNKNOWN_TOKEN)
        return user

    async def _review_token(self, token: str) -> tuple[User | None, float]:
        status = await self._ask(TOKEN_REVIEW, {"token": token})
        reviewed = status.get("user") or {}
        if not status.get("authenticated") or not reviewed.get("username"):
            return None, self._denied_seconds
        extra = {key: tuple(values) for key, values in (reviewed.get("extra") or {}).items()}
        user = User(
            name=str(reviewed["username"]),
            uid=str(reviewed.get("uid") or ""),
            groups=tuple(reviewed.get("groups") or ()),
            extra=tuple(sorted(extra.items())),
        )
        return user, self._allowed_seconds

    async def is_allowed(self, user: User, attributes: ResourceAttributes) -> bool:
        """Whether the user may do that."""
        return await self._rights.get(
            (user, attributes), lambda: self._review_access(user, attributes)
        )

    async def _review_access(
        self, user: User, attributes: ResourceAttributes
    ) -> tuple[bool, float]:
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
        return allowed, self._allowed_seconds if allowed else self._denied_seconds

    async def _ask(self, kind: Kind, spec: Json) -> Json:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                review = await self._kube.create(kind, {"metadata": {}, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.warning("the cluster does not say who may", kind=kind.kind, error=str(error))
            raise StatusError(ConsoleRule.NO_ANSWER, retry_after_seconds=5) from error
        return review.get("status") or {}
