"""Single writes to one cluster: from the state that is known, or a fresh one where that was stale."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from services.patcher.cluster.cache import Mirror
from services.patcher.cluster.pacing import Load
from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    Patch,
    RefusedError,
    ThrottledError,
)

__all__ = ["Writer", "may_pass", "status_patch"]

CONFLICTS_MAX: Final = 5
"""How often one write is tried on a fresh state before the message is given back."""


_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403


class Writer:
    """Writes, and remembers each answer in the mirror: the watch may be behind it."""

    def __init__(self, *, kube: Kube, mirror: Mirror, load: Load) -> None:
        self._kube = kube
        self._mirror = mirror
        self._load = load
        self._silent_until = 0.0
        """Loop time before which the API server has asked us to write nothing."""

    async def get(self, kind: kinds.Kind, namespace: str, name: str) -> Object | None:
        """Ask the API server; None if it is not there."""
        try:
            obj = await self._kube.get(kind, namespace, name)
        except NotFoundError:
            self._mirror.vanished(kind, namespace, name)
            return None
        self._mirror.wrote(kind, obj)
        return obj

    async def create(self, kind: kinds.Kind, obj: Object) -> tuple[Object, bool]:
        """Return the object and whether this call made it: an earlier attempt may have."""
        metadata = obj["metadata"]
        try:
            with self._heeded():
                created, new = await self._kube.create(kind, obj), True
        except AlreadyExistsError:
            created = await self._kube.get(kind, metadata["namespace"], metadata["name"])
            new = False
        self._mirror.wrote(kind, created)
        return created, new

    @contextmanager
    def _heeded(self) -> Iterator[None]:
        """Write, unless it is too early: who is told to slow down means all of us, not one object."""
        now = asyncio.get_running_loop().time
        if (left := self._silent_until - now()) > 0:
            raise ThrottledError("asked to wait before", retry_after_seconds=left)
        try:
            yield
        except ThrottledError as error:
            self._silent_until = max(self._silent_until, now() + error.retry_after_seconds)
            raise

    async def delete(self, kind: kinds.Kind, obj: Object) -> None:
        """Delete the object of that uid, if it is there."""
        metadata = obj["metadata"]
        with suppress(NotFoundError, ConflictError):  # It is gone, or another one by now.
            await self._kube.delete(
                kind, metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )

    async def patch(
        self,
        kind: kinds.Kind,
        obj: Object,
        patch_for: Callable[[Object], Patch | None],
        *,
        subresource: str | None = None,
    ) -> Object:
        """Patch until it says what it should; `obj` itself where nothing was to be written.

        Raises `NotFoundError` also where the name lives again as another object, and `LaterError`
        where somebody else keeps changing it.
        """
        namespace, name, uid = (obj["metadata"][key] for key in ("namespace", "name", "uid"))
        for _ in range(CONFLICTS_MAX):
            patch = patch_for(obj)
            if patch is None:
                return obj
            try:
                with self._heeded():
                    after = await self._kube.patch(
                        kind, namespace, name, patch, subresource=subresource
                    )
            except ConflictError:
                obj = await self._kube.get(kind, namespace, name)
                self._mirror.wrote(kind, obj)
                if obj["metadata"]["uid"] != uid:
                    raise NotFoundError(
                        f"{kind.kind} {namespace}/{name} is another one now"
                    ) from None
                await asyncio.sleep(0)
                continue
            except NotFoundError:
                self._mirror.vanished(kind, namespace, name)
                raise
            self._mirror.wrote(kind, after)
            self._load.wrote()
            return after
        raise LaterError(f"{kind.kind} {namespace}/{name} keeps changing")


def status_patch(obj: Object, wanted: Object) -> list[Object] | None:
    """Replace the status if nobody changed the object since it was read. None: it is so already."""
    if wanted == (obj.get("status") or {}):
        return None
    metadata = obj["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "add", "path": "/status", "value": wanted},
    ]


def may_pass(error: RefusedError) -> bool:
    """Refused for who asks or for what else is there, not for what was asked: an operator mends that.

    Missing permissions and exceeded ResourceQuotas; what an admission webhook denies does not count.
    """
    if error.status == _UNAUTHORIZED:
        return True
    text = str(error)
    denied = 'User "' in text and " cannot " in text
    return error.status == _FORBIDDEN and (denied or "exceeded quota" in text)
