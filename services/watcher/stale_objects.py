"""Finds what a watcher of before has published behind what its successor has read and listed.

1. The first state of an object is on its way, and the watcher that sent it is deposed: it was paused or cut
   off, or the network holds what it sent.
2. The object is deleted. The next watcher reads the log and lists the cluster. The object is in neither, so
   nobody says that it is gone.
3. The message arrives. No fence refuses the first message of a subject: the object is on the log for good.

A fence by the term would refuse it on one server only (ADR 5). Therefore each term reads the view again, ever
more seldom. A message that is late by some time is found before four times as long is over, whatever it was
that held it up. A look that fails is repeated soon.

A departure is in no cluster: the watcher ends it when the pods of its job are gone.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from services.watcher.published import ObjectName
from services.watcher.scopes import Scope
from shared.bus.follow import recall
from shared.bus.port import Bus, Entry
from shared.contracts.kube.kinds import DEPARTURE, Kind
from shared.contracts.messages.observed import ObservedHeader
from shared.contracts.subjects import observed_filter
from shared.kube.port import Kube

FIRST_SECONDS: Final = 20.0
"""When a term reads the view again: a lease lasts five seconds, and few messages are late for longer."""

FACTOR: Final = 3.0
"""How much longer each pause is than the one before: eight reads in a day."""


class StaleObject(NamedTuple):
    """An object that is on the log only."""

    scope: Scope
    state: ObservedHeader
    entry: Entry


async def find_stale(
    bus: Bus,
    kube: Kube,
    cluster: str,
    scopes: Sequence[Scope],
    is_known: Callable[[Kind, ObjectName], bool],
) -> list[StaleObject]:
    """Return the objects that are on the log and not in the cluster, and that `is_known` does not know.

    Among them are the departures, which are in no cluster.

    The API server is asked only about what is unknown, which is nothing as a rule: the watch may be behind
    what the other watcher has seen. Raises `KubeError`, and errors of the bus.
    """
    by_detail: dict[str, list[Scope]] = {}
    for scope in (*scopes, Scope(kind=DEPARTURE)):
        by_detail.setdefault(scope.kind.detail, []).append(scope)
    unknown: dict[str, StaleObject] = {}

    def on_state(state: ObservedHeader, entry: Entry) -> None:
        unknown.pop(entry.subject, None)
        for scope in by_detail[entry.subject.rsplit(".", 1)[1]]:
            is_within = scope.namespace in {None, state.namespace}
            if is_within and not state.deleted and not is_known(scope.kind, name_of(state)):
                unknown[entry.subject] = StaleObject(scope, state, entry)

    filters = [observed_filter(found[0].kind, cluster) for found in by_detail.values()]
    await recall(bus, {ObservedHeader: on_state}, filters=filters)
    existing = await _existing(kube, unknown.values())
    return [
        one
        for one in unknown.values()
        if one.state.uid not in existing and not is_known(one.scope.kind, name_of(one.state))
    ]


def name_of(state: ObservedHeader) -> ObjectName:
    """The name of an observed object."""
    return ObjectName(state.namespace, state.name)


async def _existing(kube: Kube, unknown: Iterable[StaleObject]) -> set[str]:
    """The uids of what is there beside these objects, which are among them if they exist."""
    places = {(one.scope, one.state.namespace) for one in unknown if one.scope.kind != DEPARTURE}
    uids: set[str] = set()
    for scope, namespace in places:
        listed = await kube.list(scope.kind, namespace=namespace, labels=scope.labels)
        uids |= {item["metadata"]["uid"] for item in listed.items}
    return uids
