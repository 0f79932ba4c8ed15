"""Compares two simulations: what each queue goes through before and after a change."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from services.quota.engine.facts import Admit, Evict, Preempt, Reserve
from services.quota.forecast import Simulation
from services.quota.forecast.snapshot import Id
from shared.contracts.kube.ages import duration

SECOND: Final = 1_000_000_000
NONE: Final = "-"


@dataclass(slots=True, kw_only=True)
class QueueOutcome:
    """What the workloads of one LocalQueue go through. Times in seconds."""

    submitted: int = 0
    admitted: int = 0
    preemptions: int = 0
    waits: list[float] = field(default_factory=list)

    @property
    def never(self) -> int:
        """How many workloads were not admitted before the simulation ended."""
        return self.submitted - self.admitted

    def wait(self, share: float) -> float | None:
        """The wait that `share` of the admitted workloads do not exceed; None if none was admitted."""
        if not self.waits:
            return None
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The figures of one simulation."""

    queues: dict[str, QueueOutcome]
    makespan: float
    """Seconds from the start to the end of the last workload."""

    preemptions: int


def outcome_of(simulation: Simulation, *, start: int) -> Outcome:
    """The figures of a simulation, by ``<cluster>/<namespace>/<LocalQueue>``."""
    queues: dict[str, QueueOutcome] = {}
    for fate in simulation.results.values():
        queue = queues.setdefault(f"{fate.cluster}/{fate.queue}", QueueOutcome())
        queue.submitted += 1
        queue.preemptions += fate.preemptions
        if fate.started_at is not None:
            queue.admitted += 1
            queue.waits.append((fate.started_at - fate.submitted_at) / SECOND)
    return Outcome(
        queues=queues,
        makespan=(simulation.last_end - start) / SECOND,
        preemptions=sum(queue.preemptions for queue in queues.values()),
    )


HEADER: Final = ("QUEUE", "WORKLOADS", "ADMITTED", "PREEMPTIONS", "WAIT P50", "WAIT P95", "NEVER")


def rows(before: Outcome, after: Outcome) -> Iterator[tuple[str, ...]]:
    """A row for each queue; a figure that changes shows both values."""
    for name in sorted(before.queues | after.queues):
        before_figures, after_figures = (
            side.queues.get(name, QueueOutcome()) for side in (before, after)
        )
        yield (
            name,
            _change(str(before_figures.submitted), str(after_figures.submitted)),
            _change(str(before_figures.admitted), str(after_figures.admitted)),
            _change(str(before_figures.preemptions), str(after_figures.preemptions)),
            _change(_wait(before_figures.wait(0.5)), _wait(after_figures.wait(0.5))),
            _change(_wait(before_figures.wait(0.95)), _wait(after_figures.wait(0.95))),
            _change(str(before_figures.never), str(after_figures.never)),
        )


def summary_line(before: Outcome, after: Outcome) -> str:
    """The last line of the report."""
    preemptions = _change(str(before.preemptions), str(after.preemptions))
    ends = _change(duration(before.makespan), duration(after.makespan))
    return f"simulate: preemptions {preemptions}; the last workload ends after {ends}"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The figures for programs; waits in seconds."""
    return {
        "makespanSeconds": outcome.makespan,
        "preemptions": outcome.preemptions,
        "queues": {
            name: {
                "workloads": queue.submitted,
                "admitted": queue.admitted,
                "preemptions": queue.preemptions,
                "waitP50Seconds": queue.wait(0.5),
                "waitP95Seconds": queue.wait(0.95),
                "never": queue.never,
            }
            for name, queue in sorted(outcome.queues.items())
        },
    }


def _change(before_figures: str, after_figures: str) -> str:
    return (
        before_figures
        if before_figures == after_figures
        else f"{before_figures} -> {after_figures}"
    )


def _wait(seconds: float | None) -> str:
    return NONE if seconds is None else duration(seconds)


# What is decided at once -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A decision that is made at once on only one of the two sides."""

    change: str
    """`+`: made only with the change; `-`: made only without it."""

    what: str
    workload: str

    def __str__(self) -> str:
        return f"{self.change} {self.what:<8} {self.workload}"

    def as_json(self) -> dict[str, str]:
        """The difference for programs."""
        return asdict(self)


def differences(before: Simulation, after: Simulation) -> list[Difference]:
    """Compare the decisions of the first instant."""
    before_figures, after_figures = set(_initial_decisions(before)), set(_initial_decisions(after))
    comparison = [("-", one) for one in before_figures - after_figures] + [
        ("+", one) for one in after_figures - before_figures
    ]
    return [
        Difference(change=change, what=what, workload=workload)
        for change, (what, workload) in sorted(comparison, key=lambda each: (each[1][1], each[0]))
    ]


def _initial_decisions(simulation: Simulation) -> Iterator[tuple[str, str]]:
    for decision in simulation.first_decisions:
        workload = f"{decision.cluster}/{decision.key}"
        match decision:
            case Reserve() | Admit():
                yield "admit", workload
            case Preempt():
                yield "preempt", workload
            case Evict():
                yield "evict", workload
            case _:
                pass


def submission_sentences(simulation: Simulation, added: Iterable[Id]) -> Iterator[str]:
    """One sentence for each workload of the change: when it starts, or why it does not."""
    for ident in added:
        fate = simulation.results.get(ident)
        if fate is None:
            continue
        if fate.started_at is not None:
            wait = (fate.started_at - fate.submitted_at) / SECOND
            when = "at once" if wait <= 0 else f"after {duration(wait)}"
            stops = f", preempted {fate.preemptions} times" if fate.preemptions else ""
            yield f"{fate.key} starts {when} in ClusterQueue {fate.cluster_queue}{stops}"
        else:
            explanation = simulation.engine.explain(*ident)
            why = (
                fate.reason
                if explanation is None
                else f"{explanation.reason}: {explanation.message}"
            )
            yield f"{fate.key} does not start: {why}"
