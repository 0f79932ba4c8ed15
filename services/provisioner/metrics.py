"""What is counted about machines, under the names that dashboards of the reference read.

Corrected where the reference counts wrongly: a failure counts once and is no success, gauges return
to 0, and a platform that nobody configured is called `unknown`, since users choose those names. As
there, the label of `linux/arm64` is `linux-arm64`.
"""

from collections import Counter as Count
from collections.abc import Iterable
from typing import Final, Literal, get_args

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from services.provisioner.config.platforms import key_of

__all__ = ["UNKNOWN", "Metrics", "Tally"]

Amiss = Literal["no record", "vanished", "old"]
"""What a sweep can find of a machine."""

IDLE_MAX: Final = 100
"""Namespaces of a platform of which it is told that none of their TaskRuns is left."""

SUBSYSTEM: Final = "multi_platform_controller"
UNKNOWN: Final = "unknown"

WAIT_BUCKETS: Final = (1, 2, 3, 4, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200)
RUN_BUCKETS: Final = (20, 40, 60, 90, 120, 300, 600, 1200, 2400, 4800, 6000, 7200, 8400, 9600)


class Tally(Collector):
    """A counter that is called as the reference calls it: this library's own end in `_total`."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self.name, self.text, self.label = f"{SUBSYSTEM}_{name}", text, label
        self._counts: Count[str] = Count()
        registry.register(self)

    def inc(self, value: str) -> None:
        """One more, for that value of the label."""
        self._counts[value] += 1

    def begin(self, value: str) -> None:
        """There from the start, so that a rate sees the first."""
        self._counts[value] += 0

    def describe(self) -> Iterable[Metric]:
        """Its name, for the registry to find doubles."""
        return [Metric(self.name, self.text, "unknown")]

    def collect(self) -> Iterable[Metric]:
        """What was counted."""
        metric = Metric(self.name, self.text, "unknown")
        for value, count in sorted(self._counts.items()):
            metric.add_sample(self.name, {self.label: value}, count)
        return [metric]


class Metrics:
    """One registry's machine metrics."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry` None: one that nobody scrapes."""
        registry = registry or CollectorRegistry()
        one, two = ("platform",), ("platform", "taskrun_namespace")

        def histogram(name: str, text: str, buckets: tuple[int, ...]) -> Histogram:
            return Histogram(
                name, text, one, subsystem=SUBSYSTEM, buckets=buckets, registry=registry
            )

        def counter(name: str, text: str) -> Tally:
            return Tally(name, text, "platform", registry)

        self._allocation = histogram(
            "host_allocation_time", "Seconds from the end of waiting to a host.", WAIT_BUCKETS
        )
        self._wait = histogram("wait_time", "Seconds of waiting for a free host.", WAIT_BUCKETS)
        self._run = histogram("task_run_time", "Seconds from the TaskRun to its end.", RUN_BUCKETS)
        self._prepared = counter("provisioning_successes", "Hosts prepared for a TaskRun.")
        self._unprepared = counter("provisioning_failures", "Hosts that could not be prepared.")
        self._unclean = counter("cleanup_failures", "Users that could not be removed from a host.")
        self._neglected = counter("host_upkeep_failures", "Visits to static hosts that failed.")
        self._refused = counter("host_allocation_failures", "TaskRuns that got no host.")
        self._swept = Tally(
            "swept_machines", "Machines that a sweep found amiss.", "reason", registry
        )
        for reason in get_args(Amiss):
            self._swept.begin(reason)
        self._pool = Gauge(
            "platform_pool_size", "Hosts or machines.", one, subsystem=SUBSYSTEM, registry=registry
        )
        self._running = Gauge(
            "running_tasks", "TaskRuns on a host.", two, subsystem=SUBSYSTEM, registry=registry
        )
        self._waiting = Gauge(
            "waiting_tasks", "TaskRuns without one.", two, subsystem=SUBSYSTEM, registry=registry
        )
        self._seen: dict[str, dict[str, None]] = {}
        """Platform to namespaces that are told of; last the one that had a TaskRun last."""

    @classmethod
    def exposed(cls) -> "Metrics":
        """Those that the process's `/metrics` shows. One for each process."""
        return cls(REGISTRY)

    def placed(self, platform: str, *, seconds: float, waited: float, prepared: bool) -> None:
        """A TaskRun has its host."""
        self._allocation.labels(key_of(platform)).observe(max(0.0, seconds))
        self._wait.labels(key_of(platform)).observe(max(0.0, waited))
        if prepared:
            self._prepared.inc(key_of(platform))

    def allocation_failed(self, platform: str) -> None:
        """A TaskRun got an error instead of a host."""
        self._refused.inc(key_of(platform))

    def ended(self, platform: str, *, seconds: float) -> None:
        """A TaskRun gave its host back."""
        self._run.labels(key_of(platform)).observe(max(0.0, seconds))

    def provisioning_failed(self, platform: str) -> None:
        """A host could not be prepared."""
        self._unprepared.inc(key_of(platform))

    def cleanup_failed(self, platform: str) -> None:
        """A user stays on a host."""
        self._unclean.inc(key_of(platform))

    def upkeep_failed(self, platform: str) -> None:
        """A static host could not be kept up."""
        self._neglected.inc(key_of(platform))

    def swept(self, reason: Amiss) -> None:
        """A machine was found that no record knows, that is gone, or that is past its age."""
        self._swept.inc(reason)

    def step_down(self) -> None:
        """Another replica is the one: how platforms stand is its to say. What was counted stays."""
        for gauge in (self._pool, self._running, self._waiting):
            gauge.clear()
        self._seen.clear()

    def stand(
        self, platform: str, *, hosts: int, running: Iterable[str], waiting: Iterable[str]
    ) -> None:
        """How a platform stands; `running` and `waiting` are namespaces, one for each TaskRun."""
        platform = key_of(platform)
        self._pool.labels(platform).set(hosts)
        for tally in (
            self._prepared, self._refused, self._unprepared, self._unclean, self._neglected
        ):  # fmt: skip
            tally.begin(platform)
        runs, waits = Count(running), Count(waiting)
        seen = self._seen.setdefault(platform, {})
        for namespace in sorted({*runs, *waits}):
            seen.pop(namespace, None)
            seen[namespace] = None
        for namespace in [*seen][: -IDLE_MAX - len({*runs, *waits})]:
            del seen[namespace]
            self._running.remove(platform, namespace)
            self._waiting.remove(platform, namespace)
        for namespace in seen:
            self._running.labels(platform, namespace).set(runs[namespace])
            self._waiting.labels(platform, namespace).set(waits[namespace])
