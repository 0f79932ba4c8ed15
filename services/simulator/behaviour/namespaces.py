"""The namespace controller: deletes the contents of a terminating namespace, then finalizes it."""

from random import Random

from typing_extensions import override

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.controller import Controller, Key
from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds.catalogue import NAMESPACES
from services.simulator.cluster.storage.store import Subscription
from services.simulator.cluster.storage.stored import Event, Stored


class NamespaceController(Controller):
    """Deletes the objects in terminating namespaces."""

    def __init__(self, api: Api, clock: Clock, random: Random) -> None:
        super().__init__(api, clock, random, NAMESPACES)
        self._terminating: dict[str, None] = {}
        self._everything: Subscription | None = None

    @override
    def start(self) -> None:
        self._everything = self.api.store.subscribe(None, self._content)
        super().start()

    @override
    async def stop(self) -> None:
        if self._everything is not None:
            self._everything.close()
        await super().stop()

    @override
    def forget(self, uid: str) -> None:
        del uid  # Remembered by name, until it is empty.

    def _content(self, event: Event) -> None:
        if event.stored.namespace in self._terminating and event.type == "DELETED":
            key: Key = ("", event.stored.namespace)
            self.enqueue(key)

    @override
    async def reconcile(self, stored: Stored) -> None:
        if "deletionTimestamp" not in stored.obj["metadata"]:
            return
        self._terminating[stored.name] = None
        for content in list(self.api.store.in_namespace(stored.name)):
            current = self.api.store.by_uid(content.uid)
            if current is not None and "deletionTimestamp" not in current.obj["metadata"]:
                self.api.delete_now(current)
        if next(self.api.store.in_namespace(stored.name), None) is None:
            del self._terminating[stored.name]
            self.api.finalize_namespace(stored.name)
