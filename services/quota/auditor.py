"""Compares what the engine believes with what the log says, so that a bug in one of them is seen."""

from collections.abc import Iterable

from services.quota.engine import QuotaEngine
from services.quota.engine.invariants import InvariantError, check
from shared.contracts.kube.quantities import amount, format_amount
from shared.contracts.messages.admissions import HOLDING, Admission


def contradictions(engine: QuotaEngine, on_log: Iterable[Admission]) -> list[str]:
    """Sentences about each difference between engine and log, or inside the engine.

    `on_log` holds the latest decision about every workload, read while nothing was in flight. The
    same workloads must hold quota by both.
    """
    problems = []
    try:
        check(engine)
    except InvariantError as error:
        problems.append(str(error))
    problems += _unreadable_amounts(engine)
    logged = {
        f"{admission.cluster}: {admission.ref.path} holds quota of {admission.cluster_queue}"
        for admission in on_log
        if admission.state in HOLDING
    }
    known = {
        f"{shard.name}: {workload.key} holds quota of {workload.holding_queue}"
        for shard in engine.shards()
        for workload in shard.holders()
    }
    problems += [f"{holding} by the log, not by the engine" for holding in sorted(logged - known)]
    problems += [f"{holding} by the engine, not by the log" for holding in sorted(known - logged)]
    return problems


def _unreadable_amounts(engine: QuotaEngine) -> list[str]:
    """Sentences about amounts that the next leader would not read as this one counts them."""
    return [
        f"{shard.name}: {w.key} uses {used} of {resource}, which the log cannot say"
        for shard in engine.shards()
        for w in shard.holders()
        for assigned in w.assigned
        for resource, used in assigned.usage.items()
        if used < 0 or amount(resource, format_amount(resource, used)) != used
    ]
