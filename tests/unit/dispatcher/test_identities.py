"""Who shows the identity of another spoke's cluster harms itself alone."""

import asyncio
from datetime import UTC, datetime

import pytest

from services.dispatcher.spokes.liveness import SpokeHealth
from services.dispatcher.store import Store
from shared.contracts.kube import kinds
from shared.contracts.messages.spokes import Heartbeat
from shared.testing.builders import observed_object
from tests.unit.dispatcher.harness import Harness

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def store(*spokes: str) -> Store:
    health = SpokeHealth(clock=lambda: 1.0, silent_seconds=30, lost_seconds=900)
    made = Store(
        cluster="hub",
        origin="multikueue",
        nominations=False,
        health=health,
        clock=lambda: 1.0,
    )
    for spoke in spokes:
        metadata = {"name": spoke, "uid": spoke, "resourceVersion": "1"}
        found = observed_object(kinds.MULTIKUEUE_CLUSTER, {"metadata": metadata, "spec": {}})
        made.observe_hub_object(found)
    return made


def beat(spoke: str, identity: str | None) -> Heartbeat:
    return Heartbeat(spoke=spoke, instance="p", number=1, identity=identity, at=AT)


ROWS: dict[str, tuple[tuple[tuple[str, str | None], ...], dict[str, str], dict[str, str | None]]] = {
    "a later spoke with a name that sorts first": (
        (("west", "w"), ("east", "e"), ("east", "w")), {}, {"east": "west", "west": None}),
    "a later spoke that never showed anything else": (
        (("west", "w"), ("east", "w")), {}, {"east": "west", "west": None}),
    "one that says it again and again": (
        (("west", "w"), ("east", "w"), ("west", "w"), ("east", "w")), {},
        {"east": "west", "west": None}),
    "one that beats first after a restart": (
        (("east", "w"), ("west", "w")), {"west": "w"}, {"east": "west", "west": None}),
    "one that had another identity before the restart": (
        (("east", "w"), ("west", "w")), {"west": "w", "east": "e"}, {"east": "west", "west": None}),
    "a spoke that moved to another cluster": (
        (("west", "w"), ("west", "x"), ("east", "w")), {"west": "w"}, {"east": None, "west": None}),
    "the cluster of the hub": ((("east", "h"), ("hub", "h")), {}, {"east": "hub"}),
    "spokes without an identity": (
        (("east", None), ("west", None)), {"east": "e"}, {"east": None, "west": None}),
}  # fmt: skip


@pytest.mark.parametrize(("beats", "recalled", "primary"), ROWS.values(), ids=ROWS)
def test_the_first_holder_of_an_identity_keeps_it(
    beats: tuple[tuple[str, str | None], ...],
    recalled: dict[str, str],
    primary: dict[str, str | None],
) -> None:
    known = store("east", "west")
    for sequence, (spoke, identity) in enumerate(beats, start=1):
        known.observe_heartbeat(beat(spoke, identity), sequence)
    for spoke, identity in recalled.items():
        known.health.recall_identity(spoke, identity)
    assert {spoke: known.primary_name(spoke) for spoke in primary} == primary


def test_spoke_with_a_stolen_identity_is_refused_also_by_the_next_dispatcher() -> None:
    with Harness(spokes=("east", "west")) as harness:
        harness.identities = {"east": "e", "west": "w"}

        async def drive() -> None:
            await harness.until_spoke("west", active=True)
            await harness.until_spoke("east", active=True)
            harness.identities["east"] = "w"
            stolen = await harness.until_spoke("east", active=False)
            assert stolen.message == 'It is the same cluster as "west" (known first)'
            harness.world.crash("dispatcher", down_seconds=1)
            await asyncio.sleep(120)
            stolen = await harness.until_spoke("east", active=False)
            west = await harness.until_spoke("west", active=True)
            assert (west.identity, stolen.identity) == ("w", None)

        harness.run(drive)
