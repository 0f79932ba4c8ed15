"""All attacks, by threat and way."""

from collections.abc import Iterator
from itertools import chain

from tests.attacks import (
    bodies,
    claims,
    cluster,
    consumers,
    contents,
    floods,
    headers,
    leaf_nodes,
    orders,
    replies,
    spokes,
    states,
    strangers,
    subjects,
    tenants,
)
from tests.attacks.attack import Attack


def attacks() -> tuple[Attack, ...]:
    """The table, ordered by threat."""
    rows: Iterator[Attack] = chain(
        tenants.attacks(),
        cluster.attacks(),
        spokes.attacks(),
        floods.attacks(),
        contents.attacks(),
        bodies.attacks(),
        states.attacks(),
        headers.attacks(),
        replies.attacks(),
        consumers.attacks(),
        subjects.attacks(),
        strangers.attacks(),
        leaf_nodes.attacks(),
        orders.attacks(),
        claims.attacks(),
    )
    found = sorted(rows, key=lambda attack: attack.threat)
    names = [str(attack) for attack in found]
    assert len(set(names)) == len(names), "a way is in the table twice"
    return tuple(found)
