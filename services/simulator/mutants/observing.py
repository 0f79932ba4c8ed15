"""Mutants of watcher and projection: fences, tombstones, and what is complete."""

from typing import Any, Final

from services.simulator.mutants.deciding import constant, without
from services.simulator.mutants.plant import Mutant
from shared.contracts.subjects import Stream

RELISTS: Final = ("relists", "swarm")


def _without_tombstones(_original: Any) -> Any:
    def on_listed(self: Any, scope: Any, items: Any) -> None:
        for item in items:
            self._on_changed(scope, item)

    return on_listed


async def _flush_nothing(*_args: Any, **_options: Any) -> None:
    return None


async def _look_at_nothing(*_args: Any, **_options: Any) -> bool:
    return True


def _without_deletions(original: Any) -> Any:
    def on_job(self: Any, observed: Any, integration: Any) -> None:
        if not observed.deleted:
            original(self, observed, integration)

    return on_job


STALE_BELIEVED: Final = Mutant(
    name="nobody looks for what a deposed watcher has published",
    adr=119,
    where="services.watcher.term:Term._end_stale",
    make=lambda _original: _look_at_nothing,
    scenarios=("late-observations",),
)
"""Used by the mutant of what it covers, too."""

MUTANTS: Final = (
    Mutant(
        name="OBSERVED has no fence",
        adr=1,
        where="shared.bus.order.fences:Fences.headers",
        make=without(Stream.OBSERVED),
        scenarios=RELISTS,
    ),
    Mutant(
        name="a watcher publishes what is older than the log",
        adr=1,
        where="services.watcher.publisher:_is_newer",
        make=constant(False),
        scenarios=RELISTS,
    ),
    Mutant(
        name="a list gives no tombstones",
        adr=1,
        where="services.watcher.term:Term._on_listed",
        make=_without_tombstones,
        scenarios=RELISTS,
    ),
    Mutant(
        name="Synced comes before what was listed",
        adr=1,
        where="services.watcher.publisher:ObservedPublisher.flush",
        make=lambda _original: _flush_nothing,
        scenarios=RELISTS,
    ),
    STALE_BELIEVED,
    Mutant(
        name="a term begins while messages of the one before are on their way",
        adr=119,
        where="shared.bus.leadership:_flush",
        make=lambda _original: _flush_nothing,
        scenarios=("late-observations",),
        besides=STALE_BELIEVED,
    ),
    Mutant(
        name="WORKLOADS has no fence",
        adr=1,
        where="shared.bus.order.fences:Fences.headers",
        make=without(Stream.WORKLOADS),
        scenarios=("projections", "swarm"),
    ),
    Mutant(
        name="what no list contained is not gone",
        adr=1,
        where="services.classifier.projection.projector:Projector.on_synced",
        make=constant(None),
        scenarios=("projections", "relists", "swarm"),
    ),
    Mutant(
        name="a deleted job is not gone",
        adr=1,
        where="services.classifier.projection.projector:Projector._on_job",
        make=_without_deletions,
        scenarios=RELISTS,
    ),
    Mutant(
        name="the version of an evicted workload is not published",
        adr=4,
        where="services.classifier.projection.projector:is_same",
        make=lambda original: lambda a, b, **_evicted: original(a, b, evicted=False),
        scenarios=("preemption", "lives", "swarm"),
    ),
)
"""In the way of a message."""
