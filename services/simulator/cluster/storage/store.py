"""The objects, their common resource version, and their recent events. Nothing is validated."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.simulator.cluster.errors import gone
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Event, EventType, Stored

HISTORY_MAX: Final = 20_000
"""Events kept for each kind. A watch from an older resource version gets 410."""

Listener = Callable[[Event], None]
Key = tuple[str, str]
"""Namespace (empty for none) and name."""


class Subscription:
    """A listener for all changes of one kind, until it is closed."""

    __slots__ = ("_listeners", "listener")

    def __init__(self, listeners: "dict[Subscription, None]", listener: Listener) -> None:
        self._listeners = listeners
        self.listener = listener
        listeners[self] = None

    def close(self) -> None:
        """Stop listening. May be called twice."""
        self._listeners.pop(self, None)


class _KindStore:
    """All objects of one kind."""

    __slots__ = ("events", "forgotten", "listeners", "objects", "order", "spaces")

    def __init__(self, history_max: int) -> None:
        self.objects: dict[Key, Stored] = {}
        self.spaces: dict[str, dict[str, Stored]] = {}
        self.order: list[Key] | None = None
        """The keys in etcd's order; None if they must be sorted again."""

        self.events: deque[Event] = deque(maxlen=history_max)
        self.forgotten = 0
        """Version of the latest event that was dropped."""

        self.listeners: dict[Subscription, None] = {}


class Store:
    """Objects by kind, namespace and name. Synchronous: nothing runs between a read and a write."""

    def __init__(self, *, history_max: int = HISTORY_MAX) -> None:
        self._history_max = history_max
        self._by_kind: dict[str, _KindStore] = {}  # By resource: a kind may be redefined.
        self._by_uid: dict[str, Stored] = {}
        self._version = 1
        self._horizon = 0
        """Version at which this process started: no earlier events are known."""

        self._listeners: dict[Subscription, None] = {}
        self._pending: deque[Event] = deque()
        self._notifying = False

    @property
    def version(self) -> int:
        """The resource version of the last change of any object."""
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
        """Return the object of that uid, or None."""
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
        """Store `obj` as the latest state of its name, under a new resource version.

        The store takes over `obj` and writes the version into its metadata.
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
        """Remove the object; return its last state, under the version of the removal.

        `last` is the last state if the removing write also changed the object, for instance by dropping
        the last finalizer.
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
        """Replace all objects by those of an earlier process, as they were at `version`.

        No watch can start before it. Listeners for all kinds get an ADDED event for each object.
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
        # A listener may write, as the garbage collector does. That event must reach all listeners
        # after this one, so the outermost call delivers it.
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
        """Call `listener` for every change from now on, of one kind or (None) of all kinds."""
        listeners = self._listeners if kind is None else self._kind_store(kind).listeners
        return Subscription(listeners, listener)

    def since(self, kind: Kind, version: int) -> list[Event]:
        """Return the events of a kind after `version`. Raises 410 if some of them were dropped.

        A version that is not reached yet is refused as well: it comes from an earlier process, whose
        events are lost.
        """
        kind_store = self._kind_store(kind)
        if version < kind_store.forgotten or version > self._version:
            raise gone(version, kind_store.forgotten)
        events = kind_store.events
        return list(events)[bisect_right(events, version, key=lambda event: event.version) :]

    def forget_events(self) -> None:
        """Drop all events: a watch from an earlier version gets 410 and has to list again."""
        for kind_store in self._by_kind.values():
            kind_store.events.clear()
            kind_store.forgotten = self._version
