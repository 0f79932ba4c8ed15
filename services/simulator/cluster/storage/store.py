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


class _KindStore:
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
        self._by_kind: dict[str, _KindStore] = {}  # By resource: a kind may be redefined.
        self._by_uid: dict[str, Stored] = {}
        self._version = 1
        self._horizon = 0
        """Version at which this life began: what was before it nobody remembers."""

        self._listeners: dict[Subscription, None] = {}
        self._pending: deque[Event] = deque()
        self._notifying = False

    @property
    def version(self) -> int:
        """The resource version of the last change to anything."""
        return self._version

    def _kind_store(self, kind: Kind) -> _KindStore:
        kind_store = self._by_kind.get(kind.resource)
        if kind_store is None:
            kind_store = self._by_kind[kind.resource] = _KindStore(self._history_max)
            kind_store.forgotten = self._horizon
        return kind_store

    def get(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """Return the object, or ``None``."""
        kind_store = self._by_kind.get(kind.resource)
        return None if kind_store is None else kind_store.objects.get((namespace, name))

    def by_uid(self, uid: str) -> Stored | None:
        """Return the living object of that uid, or ``None``."""
        return self._by_uid.get(uid)

    def count(self, kind: Kind) -> int:
        """How many objects of the kind there are."""
        kind_store = self._by_kind.get(kind.resource)
        return 0 if kind_store is None else len(kind_store.objects)

    def objects(self, kind: Kind, namespace: str | None = None) -> list[Stored]:
        """Return the objects of a kind, of one namespace or of all, in the order of their keys."""
        kind_store = self._by_kind.get(kind.resource)
        if kind_store is None:
            return []
        if namespace is not None:
            space = kind_store.spaces.get(namespace, {})
            return [space[name] for name in sorted(space)]
        if kind_store.order is None:
            kind_store.order = sorted(kind_store.objects)
        return [kind_store.objects[key] for key in kind_store.order]

    def in_namespace(self, namespace: str) -> Iterator[Stored]:
        """Every object in a namespace, kind by kind."""
        for kind_store in list(self._by_kind.values()):
            space = kind_store.spaces.get(namespace, {})
            yield from [space[name] for name in sorted(space)]

    def put(self, kind: Kind, obj: Obj) -> Stored:
        """Keep `obj` as the newest state of its name, under a new resource version.

        `obj` becomes the store's: its metadata gets the version written into it.
        """
        kind_store = self._kind_store(kind)
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        stored = Stored(kind, obj, self._version)
        key = (stored.namespace, stored.name)
        before = kind_store.objects.get(key)
        if before is None:
            kind_store.order = None
        kind_store.objects[key] = stored
        kind_store.spaces.setdefault(stored.namespace, {})[stored.name] = stored
        self._by_uid[stored.uid] = stored
        self._record(kind_store, "ADDED" if before is None else "MODIFIED", stored, before)
        return stored

    def remove(self, stored: Stored, last: Obj | None = None) -> Stored:
        """Forget the object; return its last state under the version of the removal.

        `last` is that state where the write that removes it also changed it (the end of the last
        finalizer).
        """
        kind_store = self._kind_store(stored.kind)
        self._version += 1
        last = stored.obj if last is None else last
        metadata = {**last["metadata"], "resourceVersion": str(self._version)}
        removed = Stored(stored.kind, {**last, "metadata": metadata}, self._version)
        del kind_store.objects[stored.namespace, stored.name]
        kind_store.order = None
        space = kind_store.spaces[stored.namespace]
        del space[stored.name]
        if not space:
            del kind_store.spaces[stored.namespace]
        self._by_uid.pop(stored.uid, None)
        self._record(kind_store, "DELETED", removed, stored)
        return removed

    def restore(self, objects: Iterable[tuple[Kind, Obj]], version: int) -> None:
        """Hold just these objects, as an earlier life of this server left them at `version`.

        Nobody can watch from before; whoever follows everything is told of each as of a new one.
        """
        for kind_store in self._by_kind.values():
            kind_store.objects.clear()
            kind_store.spaces.clear()
            kind_store.order = None
        self._by_uid.clear()
        for kind, obj in objects:
            kind_store = self._kind_store(kind)
            stored = Stored(kind, obj, int(obj["metadata"]["resourceVersion"]))
            kind_store.objects[stored.namespace, stored.name] = stored
            kind_store.spaces.setdefault(stored.namespace, {})[stored.name] = stored
            self._by_uid[stored.uid] = stored
            self._pending.append(Event("ADDED", stored, None))
        self._version = self._horizon = version
        self.forget_events()
        self._notify()

    def _record(
        self, kind_store: _KindStore, type_: EventType, stored: Stored, before: Stored | None
    ) -> None:
        if len(kind_store.events) == self._history_max:
            kind_store.forgotten = kind_store.events[0].version
        event = Event(type_, stored, before)
        kind_store.events.append(event)
        self._pending.append(event)
        self._notify()

    def _notify(self) -> None:
        # A listener may write (the garbage collector does). Its event must reach everybody after
        # this one, so whoever is telling already tells that as well.
        if self._notifying:
            return
        self._notifying = True
        try:
            while self._pending:
                event = self._pending.popleft()
                kind_store = self._kind_store(event.stored.kind)
                for subscription in (*self._listeners, *kind_store.listeners):
                    subscription.listener(event)
        finally:
            self._notifying = False

    def subscribe(self, kind: Kind | None, listener: Listener) -> Subscription:
        """Tell `listener` of every change from now on, of one kind or (``None``) of all."""
        listeners = self._listeners if kind is None else self._kind_store(kind).listeners
        return Subscription(listeners, listener)

    def since(self, kind: Kind, version: int) -> list[Event]:
        """Return what happened to a kind after `version`; 410 if that is no longer known.

        A version from the future is refused as well: it comes from an earlier life of this
        server, whose memory is gone.
        """
        kind_store = self._kind_store(kind)
        if version < kind_store.forgotten or version > self._version:
            raise gone(version, kind_store.forgotten)
        events = kind_store.events
        return list(events)[bisect_right(events, version, key=lambda event: event.version) :]

    def forget_events(self) -> None:
        """Compact: whoever watches from a version before this moment has to list again."""
        for kind_store in self._by_kind.values():
            kind_store.events.clear()
            kind_store.forgotten = self._version
