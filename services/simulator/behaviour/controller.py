"""The base of all controllers: a work queue of keys, reconciled one after another."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import structlog

from services.simulator.behaviour.clock import Clock
from services.simulator.cluster.api import Api
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.store import Subscription
from services.simulator.cluster.storage.stored import Event, Stored

log = structlog.get_logger(__name__)

Key = tuple[str, str]
"""Namespace and name."""

BACKOFF_SECONDS_FIRST: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 30.0
"""In real seconds: a webhook that refuses a write does not run in simulated time."""

LEAST_SECONDS: Final = 0.001


def owner_key(stored: Stored, kind: str) -> Key | None:
    """Return the key of the object's controlling owner if that is of `kind`, else None."""
    for owner in stored.obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == kind:
            return stored.namespace, str(owner["name"])
    return None


class Controller(ABC):
    """Reconciles the objects of one kind. Subclasses implement `reconcile`."""

    def __init__(self, api: Api, clock: Clock, random: Random, kind: Kind) -> None:
        self.api = api
        self.clock = clock
        self.random = random
        self.kind = kind
        self._queue: dict[Key, None] = {}
        self._wake = asyncio.Event()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._subscriptions: list[Subscription] = []
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def reconcile(self, stored: Stored) -> None:
        """Reconcile one object. Called again after every change of it."""

    @abstractmethod
    def forget(self, uid: str) -> None:
        """Drop the state that is kept for a deleted object."""

    # --- the loop ------------------------------------------------------------------------------

    def start(self) -> None:
        """Enqueue all existing objects, and follow all changes."""
        self.follow(self.kind, self._own_key)
        for stored in self.api.store.objects(self.kind):
            self.enqueue((stored.namespace, stored.name))
        self._task = asyncio.create_task(self._work(), name=f"simulator-{self.kind.plural}")

    def follow(self, kind: Kind, key_of: Callable[[Event], Key | None]) -> None:
        """Enqueue the key that `key_of` makes of each change of `kind`."""

        def on_event(event: Event) -> None:
            if (key := key_of(event)) is not None:
                self.enqueue(key)

        self._subscriptions.append(self.api.store.subscribe(kind, on_event))

    def _own_key(self, event: Event) -> Key | None:
        if event.type == "DELETED":
            self.forget(event.stored.uid)
        return event.stored.namespace, event.stored.name

    async def stop(self) -> None:
        """Stop following changes and reconciling."""
        for subscription in self._subscriptions:
            subscription.close()
        for timer in self._timers.values():
            timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def enqueue(self, key: Key) -> None:
        """Reconcile that object soon. A key that is queued already keeps its place."""
        self._queue[key] = None
        self._wake.set()

    def enqueue_after(self, key: Key, seconds: float) -> None:
        """Reconcile it after `seconds` of simulated time, or at an earlier time that was asked for."""
        timer = self._timers.get(key)
        if seconds > 0:
            # A delay below the clock's resolution would fire at once, again and again.
            seconds = max(seconds, LEAST_SECONDS)
        handle = self.clock.call_later(max(seconds, 0), lambda: self._on_timer(key))
        if timer is not None and not timer.cancelled():
            if timer.when() <= handle.when():
                handle.cancel()
                return
            timer.cancel()
        self._timers[key] = handle

    def _on_timer(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.enqueue(key)

    async def _work(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            key = next(iter(self._queue))
            del self._queue[key]
            stored = self.api.store.get(self.kind, *key)
            if stored is None:
                self._failures.pop(key, None)
                continue
            try:
                await self.reconcile(stored)
            except ApiError as error:
                self._retry(key, error)
            except Exception:
                # One malformed object must not stop the controller for all others.
                log.exception("controller failed", kind=self.kind.kind, key=key)
            else:
                self._failures.pop(key, None)
            # Nothing else here yields to other tasks: the store is synchronous.
            await asyncio.sleep(0)

    def _retry(self, key: Key, error: ApiError) -> None:
        if error.reason in {"Conflict", "NotFound", "AlreadyExists"}:
            # A concurrent write won. Reconcile the current state.
            log.debug("controller lost a race", kind=self.kind.kind, key=key, error=error.message)
        else:
            log.warning("controller refused", kind=self.kind.kind, key=key, error=error.message)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = min(BACKOFF_SECONDS_FIRST * 2 ** min(failures, 16), BACKOFF_SECONDS_MAX)
        asyncio.get_running_loop().call_later(delay, self.enqueue, key)

    # --- writing -------------------------------------------------------------------------------

    async def write_status(self, stored: Stored, status: Obj) -> Stored:
        """Merge `status` into the object's; ``None`` removes a field."""
        return await self.api.patch(
            stored.kind,
            stored.kind.storage_version,
            stored.namespace,
            stored.name,
            {"metadata": {"uid": stored.uid}, "status": status},
            "merge",
            subresource="status" if stored.kind.has_status else "",
        )

    def controlled(self, stored: Stored, kind: Kind) -> list[Stored]:
        """Return the objects of a kind that `stored` controls.

        What names it as an owner that is not the controller is somebody else's.
        """
        return [
            one
            for one in self.api.collector.dependents(stored.uid)
            if one.kind.resource == kind.resource
            and any(
                owner.get("controller") and owner["uid"] == stored.uid
                for owner in one.obj["metadata"].get("ownerReferences") or ()
            )
        ]

    def owner_reference(self, stored: Stored) -> Obj:
        """Return the reference by which a child names `stored` as its controller."""
        return {
            "apiVersion": stored.kind.api_version(),
            "kind": stored.kind.kind,
            "name": stored.name,
            "uid": stored.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
