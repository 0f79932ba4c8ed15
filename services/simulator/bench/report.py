"""The figures of a benchmark run: times, use of quota, requests and CPU."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

_SAMPLE: Final = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')

Requests = Counter[tuple[str, str, str]]
"""Verb, resource and subresource to the number of requests."""


@dataclass(slots=True)
class _Workload:
    kind: str
    cpu: int
    created: float
    first_admitted: float | None = None
    admitted: float | None = None
    finished: float | None = None


@dataclass(slots=True, kw_only=True)
class Timeline:
    """The times of each workload's events, in seconds of one clock."""

    nominal: int
    """Quota of all queues together, in CPUs."""

    began: float = 0.0
    ended: float = 0.0
    evictions: int = 0
    held: float = 0.0
    """CPU seconds of observed held quota."""

    _workloads: dict[str, _Workload] = field(default_factory=dict)

    def begin(self, at: float) -> None:
        """Record the start of the run."""
        self.began = at

    def created(self, name: str, kind: str, cpu: int, at: float) -> None:
        """Record a creation. Earlier observations of the workload are kept."""
        known = self._workloads.setdefault(name, _Workload(kind=kind, cpu=cpu, created=at))
        known.kind, known.cpu, known.created = kind, cpu, min(known.created, at)

    def admitted(self, name: str, at: float) -> None:
        """Record that Admitted=True was observed."""
        known = self._workloads.setdefault(name, _Workload(kind="", cpu=0, created=at))
        known.admitted = at
        if known.first_admitted is None:
            known.first_admitted = at

    def evicted(self, name: str, at: float) -> None:
        """Record that Evicted=True was observed."""
        self.evictions += 1
        self._release(self._workloads.get(name), at)

    def finished(self, name: str, at: float) -> None:
        """Record that Finished=True was written."""
        known = self._workloads[name]
        known.finished = at
        self.ended = max(self.ended, at)
        self._release(known, at)

    @property
    def known(self) -> int:
        """Number of created workloads."""
        return len(self._workloads)

    @property
    def unfinished(self) -> int:
        """Number of workloads that have not finished."""
        return sum(workload.finished is None for workload in self._workloads.values())

    @property
    def use(self) -> float:
        """Average share of the nominal quota that was held."""
        wall = self.ended - self.began
        return self.held / (self.nominal * wall) if wall > 0 else 0.0

    @property
    def wall(self) -> float:
        """Seconds from the first creation to the last finish."""
        return self.ended - self.began

    def waits(self) -> dict[str, list[float]]:
        """Workload class to the seconds from creation to first admission."""
        found: dict[str, list[float]] = {}
        for workload in self._workloads.values():
            if workload.first_admitted is not None:
                waited = max(0.0, workload.first_admitted - workload.created)
                found.setdefault(workload.kind, []).append(waited)
        return found

    def _release(self, known: _Workload | None, at: float) -> None:
        if known is not None and known.admitted is not None:
            self.held += known.cpu * (at - known.admitted)
            known.admitted = None


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which the share `part` of them lies; 0 for no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def requests_served(metrics: str) -> Requests:
    """Read the request counts from an API server's `/metrics`. Refused requests are counted separately."""
    found: Requests = Counter()
    for line in metrics.splitlines():
        if (sample := _SAMPLE.match(line)) is None:
            continue
        labels = dict(_LABEL.findall(sample["labels"]))
        code = labels.get("code", "")
        refused = f" answered {code}" if code[:1] in {"4", "5"} else ""
        key = (labels["verb"], labels["resource"], labels.get("subresource", "") + refused)
        found[key] += round(float(sample["count"]))
    return found


def summary(
    timeline: Timeline, *, ours: Requests, served: Requests | None, cpu: Mapping[str, float]
) -> Iterable[str]:
    """Yield the lines of the report. `ours` are the requests of the runner itself."""
    count = max(1, timeline.known)
    yield f"workloads {timeline.known}, evictions {timeline.evictions}"
    yield f"wall {timeline.wall:.1f} s, {timeline.known / max(timeline.wall, 1e-9):.0f} workloads/s"
    yield f"quota held {100 * timeline.use:.0f} %"
    for kind, waits in sorted(timeline.waits().items()):
        yield (
            f"time to admission {kind:<8} mean {fmean(waits):7.2f} s"
            f"  p50 {percentile(waits, 0.5):7.2f} s  p99 {percentile(waits, 0.99):7.2f} s"
        )
    if served is not None:
        theirs = served - ours
        for key, number in sorted(theirs.items(), key=lambda item: -item[1]):
            verb, resource, sub = key
            name = f"{resource}/{sub}" if sub else resource
            yield f"requests {verb:<7}{name:<32}{number:>8}  {number / count:6.2f} a workload"
    for name, seconds in sorted(cpu.items(), key=lambda item: -item[1]):
        yield f"cpu {name:<14}{seconds:8.2f} s  {1000 * seconds / count:7.2f} ms a workload"
