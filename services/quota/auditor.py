"""Recomputes, from the log alone, what the engine believes: one of them wrong must not admit more."""

from collections.abc import Iterable

from services.quota.engine import QuotaEngine
from services.quota.engine.invariants import InvariantError, check
from shared.contracts.messages.admissions import HOLDING, Admission

__all__ = ["contradictions"]

_Holding = tuple[str, str, str]
"""Cluster, `<namespace>/<name>`, ClusterQueue."""


def contradictions(engine: QuotaEngine, on_log: Iterable[Admission]) -> list[str]:
    """Sentences that say where engine and log differ, or where the engine contradicts itself.

    `on_log` are the latest decisions of every workload, read when nothing was on its way. Who holds
    quota by the log must hold it in the engine, and nobody else.
    """
    problems = []
    try:
        check(engine)
    except InvariantError as error:
        problems.append(str(error))
    logged = {_holding(admission) for admission in on_log if admission.state in HOLDING}
    known = set(_held(engine))
    problems += [f"{_said(one)} by the log, not by the engine" for one in sorted(logged - known)]
    problems += [f"{_said(one)} by the engine, not by the log" for one in sorted(known - logged)]
    return problems


def _holding(admission: Admission) -> _Holding:
    key = f"{admission.namespace}/{admission.name}"
    return (admission.cluster, key, admission.cluster_queue)


def _held(engine: QuotaEngine) -> Iterable[_Holding]:
    for shard in engine.shards():
        for workload in shard.holders():
            yield (shard.name, workload.key, workload.holding_queue)


def _said(holding: _Holding) -> str:
    cluster, key, queue = holding
    return f"{cluster}: {key} holds quota of {queue}"
