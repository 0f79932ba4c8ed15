"""Single reads and writes of one cluster. Each can be repeated after a crash or a lost answer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.pacing import WriteLoad
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    Patch,
    ThrottledError,
)
from shared.telemetry import probes

CONFLICTS_MAX: Final = 5
"""Attempts of one write, each on a fresh state, before the message is delivered again later."""


async def get_or_none(kube: Kube, kind: Kind, namespace: str | None, name: str) -> Body | None:
    """Read an object from the API server; None if it does not exist."""
    try:
        found: Body = await kube.get(kind, namespace, name)
    except NotFoundError:
        return None
    return found


async def create_or_get(kube: Kube, kind: Kind, obj: Body) -> tuple[Body, bool]:
    """Create `obj`; return the object and whether this call created it.

    It may exist already: an earlier attempt succeeded, and its answer was lost.
    """
    try:
        return await kube.create(kind, obj), True
    except AlreadyExistsError:
        probes.CREATED_BEFORE.fired += 1
        metadata = obj["metadata"]
        return await kube.get(kind, metadata["namespace"], metadata["name"]), False


class Writer:
    """Writes decisions, and stores each answer in the cache, because the watch may be behind it."""

    def __init__(self, *, kube: Kube, cache: ObjectCache, load: WriteLoad) -> None:
        self._kube = kube
        self._cache = cache
        self._load = load
        self._throttled_until = 0.0
        """Loop time until which the API server has asked for no writes."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        """Read an object from the API server; None if it does not exist."""
        obj = await get_or_none(self._kube, kind, namespace, name)
        if obj is None:
            self._cache.remove(kind, namespace, name)
        else:
            self._cache.store(kind, obj)
        return obj

    async def has_changed(self, kind: Kind, obj: Body) -> bool:
        """Whether an object is another one by now on the API server, or gone."""
        metadata = obj["metadata"]
        now = await self.get(kind, metadata.get("namespace"), metadata["name"])
        return now is None or now["metadata"].get("resourceVersion") != metadata.get(
            "resourceVersion"
        )

    async def create(self, kind: Kind, obj: Body) -> tuple[Body, bool]:
        """Create `obj`; return the object and whether this call created it."""
        with self._throttled():
            created, is_new = await create_or_get(self._kube, kind, obj)
        self._cache.store(kind, created)
        return created, is_new

    @contextmanager
    def _throttled(self) -> Iterator[None]:
        """Raise `ThrottledError` without a call while an earlier answer asks for no writes.

        The API server throttles the client, so one throttled write stops the writes of all objects.
        """
        now = asyncio.get_running_loop().time
        if (left := self._throttled_until - now()) > 0:
            probes.WRITES_PAUSED.fired += 1
            raise ThrottledError("asked to wait before", retry_after_seconds=left)
        try:
            yield
        except ThrottledError as error:
            self._throttled_until = max(self._throttled_until, now() + error.retry_after_seconds)
            raise

    async def delete(self, kind: Kind, obj: Body) -> None:
        """Delete the object with this uid, if it still exists."""
        metadata = obj["metadata"]
        with suppress(NotFoundError, ConflictError):  # Deleted, or the name has another uid.
            await self._kube.delete(
                kind, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )

    async def patch(
        self,
        kind: Kind,
        obj: Body,
        patch_for: Callable[[Body], Patch | None],
        *,
        subresource: str | None = None,
        on_conflict: Callable[[], Awaitable[None]] | None = None,
    ) -> Body:
        """Apply `patch_for(obj)`, on conflicts again to the fresh state, until it returns None or succeeds.

        `on_conflict` is called once the fresh state is read, which somebody else has written: it may raise an
        error if there is no reason for the patch any more.

        Returns the object as stored, or `obj` itself if there was nothing to write. Raises
        `NotFoundError`, also if another object has the name now, and `LaterError` after
        `CONFLICTS_MAX` conflicts.
        """
        namespace, name, uid = (obj["metadata"][key] for key in ("namespace", "name", "uid"))
        for _ in range(CONFLICTS_MAX):
            patch = patch_for(obj)
            if patch is None:
                return obj
            try:
                with self._throttled():
                    after: Body = await self._kube.patch(
                        kind, namespace, name, patch, subresource=subresource
                    )
            except ConflictError:
                probes.STATE_CHANGED.fired += 1
                obj = await self._kube.get(kind, namespace, name)
                self._cache.store(kind, obj)
                if obj["metadata"]["uid"] != uid:
                    probes.OTHER_UID.fired += 1
                    raise NotFoundError(
                        f"{kind.kind} {namespace}/{name} is another one now"
                    ) from None
                if on_conflict is not None:  # Behind the read: what it allows fits this state.
                    await on_conflict()
                await asyncio.sleep(0)
                continue
            except NotFoundError:
                self._cache.remove(kind, namespace, name)
                raise
            self._cache.store(kind, after)
            self._load.record_write()
            return after
        raise LaterError(f"{kind.kind} {namespace}/{name} keeps changing")
