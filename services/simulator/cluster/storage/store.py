"""The objects, their one growing resource version, and the recent past. No rules live here."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.simulator.cluster.errors import gone
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Event, EventType, Stored

__all__ = ["HISTORY_MAX", "Store", "Subscription"]

HISTORY_MAX: Final = 20_000
"""Events remembered per kind. An older resource version cannot be watched from: 410."""

Listener = Callable[[Event], None]
Key = tuple[str, str]
"""Namespace (empty for none) and name."""


class Subscription:
    """A listener that hears of every change of one kind until it is closed."""

    __slots__ = ("_listeners", "listener")

    def __init__(self, listeners: "dict[Subscription, None]", listener: Listener) -> None:
        self._listeners = listeners
        self.listener = listener
        listeners[self] = None

    def close(self) -> None:
        """Hear no more. Closing twice is harmless."""
        self._listeners.pop(self, None)


class _Shelf:
    """All objects of one kind."""

    __slots__ = ("events", "forgotten", "listeners", "objects", "order", "spaces")

    def __init__(self, history_max: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.spaces: dict[str, dict[str, Stored]] = {}
        self.order: list[Key] | None = None
        """The keys as etcd would list them; ``None`` when it must be sorted anew."""

        self.events: deque[Event] = deque(maxlen=history_max)
        self.forgotten = 0
        """Version of the youngest event that is no longer remembered."""

        self.listeners: dict[Subscription, None] = {}


class Store:
    """Objects by kind, namespace and name. Synchronous: nobody can come between read and write."""

    def __init__(self, *, history_max: int = HISTORY_MAX) -> None:
        self._history_max = history_max
        self._shelves: dict[str, _Shelf] = {}  # By resource: a kind may be redefined.
        self._by_uid: dict[str, Stored] = {}
        self._version = 1
        self._horizon = 0
        """Version at which this life began: what was before it nobody remembers."""

        self._listeners: dict[Subscription, None] = {}
        self._pending: deque[Event] = deque()
        self._telling = False

    @property
    def version(self) -> int:
        """The resource version of the last change to anything."""
        return self._version

    def _shelf(self, kind: Kind) -> _Shelf:
        shelf = self._shelves.get(kind.resource)
        if shelf is None:
            shelf = self._shelves[kind.resource] = _Shelf(self._history_max)
            shelf.forgotten = self._horizon
        return shelf

    def get(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """Return the object, or ``None``."""
        shelf = self._shelves.get(kind.resource)
        return None if shelf is None else shelf.objects.get((namespace, name))

    def by_uid(self, uid: str) -> Stored | None:
        """Return the living object of that uid, or ``None``."""
        return self._by_uid.get(uid)

    def count(self, kind: Kind) -> int:
        """How many objects of the kind there are."""
        shelf = self._shelves.get(kind.resource)
        return 0 if shelf is None else len(shelf.objects)

    def objects(self, kind: Kind, namespace: str | None = None) -> list[Stored]:
        """Return the objects of a kind, of one namespace or of all, in the order of their keys."""
        shelf = self._shelves.get(kind.resource)
        if shelf is None:
            return []
        if namespace is not None:
            space = shelf.spaces.get(namespace, {})
            return [space[name] for name in sorted(space)]
        if shelf.order is None:
            shelf.order = sorted(shelf.objects)
        return [shelf.objects[key] for key in shelf.order]

    def in_namespace(self, namespace: str) -> Iterator[Stored]:
        """Every object in a namespace, kind by kind."""
        for shelf in list(self._shelves.values()):
            space = shelf.spaces.get(namespace, {})
            yield from [space[name] for name in sorted(space)]

    def put(self, kind: Kind, obj: Obj) -> Stored:
        """Keep `obj` as the newest state of its name, under a new resource version.

        `obj` becomes the store's: its metadata gets the version written into it.
        """
        shelf = self._shelf(kind)
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        stored = Stored(kind, obj, self._version)
        key = (stored.namespace, stored.name)
        before = shelf.objects.get(key)
        if before is None:
            shelf.order = None
        shelf.objects[key] = stored
        shelf.spaces.setdefault(stored.namespace, {})[stored.name] = stored
        self._by_uid[stored.uid] = stored
        self._record(shelf, "ADDED" if before is None else "MODIFIED", stored, before)
        return stored

    def remove(self, stored: Stored, last: Obj | None = None) -> Stored:
        """Forget the object; return its last state under the version of the removal.

        `last` is that state where the write that removes it also changed it (the end of the last
        finalizer).
        """
        shelf = self._shelf(stored.kind)
        self._version += 1
        last = stored.obj if last is None else last
        metadata = {**last["metadata"], "resourceVersion": str(self._version)}
        removed = Stored(stored.kind, {**last, "metadata": metadata}, self._version)
        del shelf.objects[stored.namespace, stored.name]
        shelf.order = None
        space = shelf.spaces[stored.namespace]
        del space[stored.name]
        if not space:
            del shelf.spaces[stored.namespace]
        self._by_uid.pop(stored.uid, None)
        self._record(shelf, "DELETED", removed, stored)
        return removed

    def restore(self, objects: Iterable[tuple[Kind, Obj]], version: int) -> None:
        """Hold just these objects, as an earlier life of this server left them at `version`.

        Nobody can watch from before; whoever follows everything is told of each as of a new one.
        """
        for shelf in self._shelves.values():
            shelf.objects.clear()
            shelf.spaces.clear()
            shelf.order = None
        self._by_uid.clear()
        for kind, obj in objects:
            shelf = self._shelf(kind)
            stored = Stored(kind, obj, int(obj["metadata"]["resourceVersion"]))
            shelf.objects[stored.namespace, stored.name] = stored
            shelf.spaces.setdefault(stored.namespace, {})[stored.name] = stored
            self._by_uid[stored.uid] = stored
            self._pending.append(Event("ADDED", stored, None))
        self._version = self._horizon = version
        self.forget_events()
        self._tell()

    def _record(
        self, shelf: _Shelf, type_: EventType, stored: Stored, before: Stored | None
    ) -> None:
        if len(shelf.events) == self._history_max:
            shelf.forgotten = shelf.events[0].version
        event = Event(type_, stored, before)
        shelf.events.append(event)
        self._pending.append(event)
        self._tell()

    def _tell(self) -> None:
        # A listener may write (the garbage collector does). Its event must reach everybody after
        # this one, so whoever is telling already tells that as well.
        if self._telling:
            return
        self._telling = True
        try:
            while self._pending:
                event = self._pending.popleft()
                shelf = self._shelf(event.stored.kind)
                for subscription in (*self._listeners, *shelf.listeners):
                    subscription.listener(event)
        finally:
            self._telling = False

    def subscribe(self, kind: Kind | None, listener: Listener) -> Subscription:
        """Tell `listener` of every change from now on, of one kind or (``None``) of all."""
        listeners = self._listeners if kind is None else self._shelf(kind).listeners
        return Subscription(listeners, listener)

    def since(self, kind: Kind, version: int) -> list[Event]:
        """Return what happened to a kind after `version`; 410 if that is no longer known.

        A version from the future is refused as well: it comes from an earlier life of this
        server, whose memory is gone.
        """
        shelf = self._shelf(kind)
        if version < shelf.forgotten or version > self._version:
            raise gone(version, shelf.forgotten)
        events = shelf.events
        return list(events)[bisect_right(events, version, key=lambda event: event.version) :]

    def forget_events(self) -> None:
        """Compact: whoever watches from a version before this moment has to list again."""
        for shelf in self._shelves.values():
            shelf.events.clear()
            shelf.forgotten = self._version
