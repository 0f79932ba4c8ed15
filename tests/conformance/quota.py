"""Compares the quota engine with what the reference decided on the same scenarios.

    python -m tests.conformance.quota [FOLDER]

Reads every ``*.jsonl.gz`` of a folder, a scenario a line as in `samples/`; without a folder, the
copy of a sample that lies beside this file. A family called `unsettled` has no expectations: there
the engine must come to rest within 200 rounds a step, with its invariants holding. The last line is
`quota: N of M scenarios match`, and the exit status is 0 only if N equals M and everything settled.
"""

import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from services.classifier.projection.pods.requests import RequestsError, resolve_pod_sets
from services.quota.engine import Policy, QuotaEngine
from services.quota.engine.facts import (
    Decision,
    Preempt,
    Reserve,
    WorkloadDrained,
    WorkloadFinished,
    WorkloadGone,
)
from services.quota.engine.invariants import check
from services.quota.wire import inbound
from services.quota.wire.workloads import workload_changed
from shared.contracts.kube.quantities import amount, format_amount
from shared.contracts.messages.workloads import PodSet, WorkloadState

__all__ = ["Mismatch", "Play", "compare", "main", "scenarios"]

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER: Final = "c"
MILLISECOND: Final = 1_000_000
ROUNDS_MAX: Final = 200
SAMPLES: Final = Path(__file__).parent / "samples" / "quota"
UNSETTLED: Final = "unsettled"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """What differed in one step."""

    scenario: str
    step: int
    what: str
    only_expected: list[str]
    only_ours: list[str]

    def __str__(self) -> str:
        """One line for a person."""
        return (
            f"{self.scenario} step {self.step}: {self.what}:"
            f" missing {self.only_expected or '-'}, unexpected {self.only_ours or '-'}"
        )


@dataclass(slots=True)
class StepResult:
    """What one step brought."""

    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)
    holding: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    rounds: int = 0


class Play:
    """Plays one scenario on a fresh engine: evictions complete between two rounds."""

    def __init__(self, scenario: Object, *, after_round: Callable[[QuotaEngine], None]) -> None:
        strategies = (scenario.get("fairSharing") or {}).get("preemptionStrategies")
        policy = Policy(
            fair_sharing=strategies is not None, strategies=tuple(strategies or Policy().strategies)
        )
        self.engine = QuotaEngine(policy)
        self._after_round = after_round
        self._scenario = scenario
        self._alive: dict[str, Object] = {}
        self._holding: dict[str, None] = {}
        take = self.engine.apply
        for raw in scenario.get("namespaces") or []:
            take(inbound.namespace(CLUSTER, raw))
        for raw in scenario.get("resourceFlavors") or []:
            take(inbound.flavor(CLUSTER, raw))
        for raw in scenario.get("cohorts") or []:
            take(inbound.cohort(CLUSTER, raw))
        for raw in scenario.get("clusterQueues") or []:
            take(inbound.cluster_queue(CLUSTER, raw))
        for raw in scenario.get("localQueues") or []:
            take(inbound.local_queue(CLUSTER, raw))

    def steps(self) -> Iterator[StepResult]:
        """Play step after step."""
        for step in self._scenario["steps"]:
            self._tell(step)
            yield self._settle(step)

    def _tell(self, step: Object) -> None:
        for raw in step.get("updateClusterQueues") or []:
            self.engine.apply(inbound.cluster_queue(CLUSTER, raw))
        for key, pods in _reclaimable(step.get("reclaimablePods")):
            if key not in self._holding:
                continue  # Who has no pods has none that finished.
            raw = self._alive[key]
            raw.setdefault("status", {})["reclaimablePods"] = pods
            raw["metadata"]["generation"] = raw["metadata"].get("generation", 0) + 1
            self._submit(raw)
        for key in step.get("finish") or []:
            self._end(WorkloadFinished, key)
        for key in step.get("delete") or []:
            self._end(WorkloadGone, key)
        for raw in step.get("create") or []:
            self._alive[_key(raw)] = raw
            self._submit(raw)

    def _end(self, fact: type[WorkloadFinished | WorkloadGone], key: str) -> None:
        namespace, name = key.split("/")
        self._alive.pop(key, None)
        self._holding.pop(key, None)
        self.engine.apply(fact(cluster=CLUSTER, namespace=namespace, name=name))

    def _submit(self, raw: Object) -> None:
        metadata, spec = raw["metadata"], raw["spec"]
        refused = None
        try:
            pod_sets = self._pod_sets(raw)
        except RequestsError as error:
            pod_sets, refused = error.pod_sets, str(error)
        reclaimed = {
            r["name"]: r["count"] for r in (raw.get("status") or {}).get("reclaimablePods") or []
        }
        state = WorkloadState(
            cluster=CLUSTER,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 0),
            phase="waiting",
            active=spec.get("active", True),
            queue=spec.get("queueName", ""),
            priority=spec.get("priority", 0),
            created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
            pod_sets=[
                p.model_copy(update={"reclaimable": reclaimed.get(p.name, 0)}) for p in pod_sets
            ],
            inadmissible=refused,
        )
        self.engine.apply(workload_changed(state))

    def _pod_sets(self, raw: Object) -> list[PodSet]:
        namespace = raw["metadata"]["namespace"]
        classes = {c["metadata"]["name"]: c for c in self._scenario.get("runtimeClasses") or []}
        return resolve_pod_sets(
            raw["spec"]["podSets"],
            limit_ranges=[
                limits
                for limits in self._scenario.get("limitRanges") or []
                if limits["metadata"].get("namespace") == namespace
            ],
            runtime_class=classes.get,
        )

    def _settle(self, step: Object) -> StepResult:
        """Rounds until nothing changes; whoever was preempted gives back and queues again."""
        result = StepResult()
        at = BEGIN + timedelta(seconds=step["atSeconds"])
        now = inbound.nanoseconds(at)
        while result.rounds < ROUNDS_MAX:
            decisions = self.engine.cycle(now)
            result.rounds += 1
            self._note(decisions, result)
            self._after_round(self.engine)
            now += MILLISECOND
            for decision in decisions:
                if isinstance(decision, Preempt):
                    self._drain(decision.key)
            if not self.engine.needs_another_cycle:
                break
        result.holding = set(self._holding)
        result.pending = set(self._alive) - result.holding
        return result

    def _drain(self, key: str) -> None:
        """Its pods are gone."""
        namespace, name = key.split("/")
        self.engine.apply(WorkloadDrained(cluster=CLUSTER, namespace=namespace, name=name))

    def _note(self, decisions: list[Decision], result: StepResult) -> None:
        for decision in decisions:
            if isinstance(decision, Reserve):
                self._holding[decision.key] = None
                result.admitted.append(_shown(decision))
            elif isinstance(decision, Preempt):
                self._holding.pop(decision.key, None)
                result.preempted.append(f"{decision.key} {decision.reason}")


def _reclaimable(raw: Any) -> Iterator[tuple[str, list[Object]]]:
    for entry in raw or []:
        yield entry["workload"], entry["pods"]


def _key(raw: Object) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def _shown(decision: Reserve) -> str:
    pod_sets = [
        {
            "name": a.name,
            "count": a.count,
            "flavors": dict(sorted(a.flavors.items())),
            "usage": {r: format_amount(r, v) for r, v in sorted(a.usage.items())},
        }
        for a in decision.pod_sets
    ]
    return f"{decision.key} in {decision.cluster_queue}: {json.dumps(pod_sets)}"


def _expected(raw: Object) -> StepResult:
    def pod_set(entry: Object) -> Object:
        return {
            "name": entry["name"],
            "count": entry["count"],
            "flavors": dict(sorted((entry.get("flavors") or {}).items())),
            "usage": {
                r: format_amount(r, amount(r, v))
                for r, v in sorted((entry.get("usage") or {}).items())
            },
        }

    return StepResult(
        admitted=[
            f"{a['workload']} in {a['clusterQueue']}:"
            f" {json.dumps([pod_set(p) for p in a.get('podSets') or []])}"
            for a in raw.get("admitted") or []
        ],
        preempted=[f"{p['workload']} {p['reason']}" for p in raw.get("preempted") or []],
        holding=set(raw.get("holdingQuota") or []),
        pending=set(raw.get("pending") or []),
    )


def compare(document: Object) -> Mismatch | None:
    """Play one scenario and compare; the first difference, or None."""
    scenario = document["scenario"]
    play = Play(scenario, after_round=check)
    for number, (ours, raw) in enumerate(
        zip(play.steps(), document["expected"], strict=True), start=1
    ):
        expected = _expected(raw)
        for what in ("admitted", "preempted", "holding", "pending"):
            left, right = Counter(getattr(expected, what)), Counter(getattr(ours, what))
            if left != right:
                return Mismatch(
                    scenario=scenario["name"],
                    step=number,
                    what=what,
                    only_expected=sorted((left - right).elements()),
                    only_ours=sorted((right - left).elements()),
                )
    return None


def settles(document: Object) -> tuple[bool, int]:
    """Whether every step came to rest, and the most rounds that one took."""
    play = Play(document["scenario"], after_round=check)
    most = max(step.rounds for step in play.steps())
    return most < ROUNDS_MAX, most


def scenarios(path: Path) -> Iterator[Object]:
    """The documents of one family."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def main(arguments: list[str]) -> int:
    """Run all families of a folder; see the module's docstring."""
    folder = Path(arguments[0]) if arguments else SAMPLES
    matching = total = restless = 0
    for path in sorted(folder.glob("*.jsonl.gz")):
        family = path.name.removesuffix(".jsonl.gz")
        if family == UNSETTLED:
            results = [settles(document) for document in scenarios(path)]
            rest = sum(ok for ok, _ in results)
            restless += len(results) - rest
            most = max((rounds for _, rounds in results), default=0)
            print(f"{family}: {rest} of {len(results)} settle, in at most {most} rounds a step")  # noqa: T201
            continue
        found = [compare(document) for document in scenarios(path)]
        good = sum(mismatch is None for mismatch in found)
        matching, total = matching + good, total + len(found)
        for mismatch in found:
            if mismatch is not None:
                print(f"  {mismatch}")  # noqa: T201
        print(f"{family}: {good} of {len(found)} match")  # noqa: T201
    print(f"quota: {matching} of {total} scenarios match")  # noqa: T201
    return 0 if matching == total and total and not restless else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
