"""Prometheus metrics of machines, with the names of konflux-ci/multi-platform-controller@c28c4a01.

Dashboards for that project work unchanged. Three things differ, since it counts them wrongly: a failure
counts once and is no success, gauges return to 0, and a platform that is not configured is labelled
`unknown`, since users choose the names. The label of `linux/arm64` is `linux-arm64` in both.
"""

from collections import Counter as Count
from collections.abc import Iterable
from typing import Final, Literal, get_args

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from services.provisioner.config.platforms import key_of
from services.provisioner.keys.one_time_server import Refusal

SweepReason = Literal["no record", "vanished", "old"]
"""Why a sweep, or its age, ends a machine."""

IDLE_NAMESPACES_MAX: Final = 100
"""Namespaces without TaskRuns that stay as labels of a platform, with value 0."""

SUBSYSTEM: Final = "multi_platform_controller"
UNKNOWN: Final = "unknown"

WAIT_BUCKETS: Final = (1, 2, 3, 4, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200)
RUN_BUCKETS: Final = (20, 40, 60, 90, 120, 300, 600, 1200, 2400, 4800, 6000, 7200, 8400, 9600)


class UnsuffixedCounter(Collector):
    """A counter whose name does not end in `_total`, which prometheus_client always appends."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self.name, self.text, self.label = f"{SUBSYSTEM}_{name}", text, label
        self._counts: Count[str] = Count()
        registry.register(self)

    def inc(self, value: str) -> None:
        """Add one for that value of the label."""
        self._counts[value] += 1

    def initialize(self, value: str) -> None:
        """Expose 0 for that value of the label, so that `rate` sees the first increment."""
        self._counts[value] += 0

    def describe(self) -> Iterable[Metric]:
        """The name, so that the registry refuses duplicates."""
        return [Metric(self.name, self.text, "unknown")]

    def collect(self) -> Iterable[Metric]:
        """The current values."""
        metric = Metric(self.name, self.text, "unknown")
        for value, count in sorted(self._counts.items()):
            metric.add_sample(self.name, {self.label: value}, count)
        return [metric]


class Metrics:
    """The machine metrics of one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry` None: a registry of its own, which is not scraped."""
        registry = registry or CollectorRegistry()
        one, two = ("platform",), ("platform", "taskrun_namespace")

        def histogram(name: str, text: str, buckets: tuple[int, ...]) -> Histogram:
            return Histogram(
                name, text, one, subsystem=SUBSYSTEM, buckets=buckets, registry=registry
            )

        def counter(name: str, text: str) -> UnsuffixedCounter:
            return UnsuffixedCounter(name, text, "platform", registry)

        self._allocation = histogram(
            "host_allocation_time", "Seconds from the end of waiting to a host.", WAIT_BUCKETS
        )
        self._wait = histogram("wait_time", "Seconds of waiting for a free host.", WAIT_BUCKETS)
        self._run = histogram("task_run_time", "Seconds from the TaskRun to its end.", RUN_BUCKETS)
        self._provisioned = counter("provisioning_successes", "Hosts prepared for a TaskRun.")
        self._provisioning_failures = counter(
            "provisioning_failures", "Hosts that could not be prepared."
        )
        self._cleanup_failures = counter(
            "cleanup_failures", "Users that could not be removed from a host."
        )
        self._maintenance_failures = counter(
            "host_upkeep_failures", "Visits to static hosts that failed."
        )
        self._allocation_failures = counter(
            "host_allocation_failures", "TaskRuns that got no host."
        )
        self._swept = UnsuffixedCounter(
            "swept_machines", "Machines that a sweep found amiss.", "reason", registry
        )
        for reason in get_args(SweepReason):
            self._swept.initialize(reason)
        self._keys_refused = UnsuffixedCounter(
            "one_time_key_refusals",
            "Connections to the one-time key service that got no key.",
            "reason",
            registry,
        )
        for refusal in get_args(Refusal):
            self._keys_refused.initialize(refusal)
        self._pool = Gauge(
            "platform_pool_size", "Hosts or machines.", one, subsystem=SUBSYSTEM, registry=registry
        )
        self._running = Gauge(
            "running_tasks", "TaskRuns on a host.", two, subsystem=SUBSYSTEM, registry=registry
        )
        self._waiting = Gauge(
            "waiting_tasks", "TaskRuns without one.", two, subsystem=SUBSYSTEM, registry=registry
        )
        self._namespaces: dict[str, dict[str, None]] = {}
        """By platform: namespaces that are exposed, the one with the most recent TaskRun last."""

    @classmethod
    def exposed(cls) -> "Metrics":
        """The metrics of the process's `/metrics`. Call it once in a process."""
        return cls(REGISTRY)

    def placed(self, platform: str, *, seconds: float, waited: float, prepared: bool) -> None:
        """A TaskRun has its host. `seconds`: since it stopped waiting. `waited`: before that."""
        self._allocation.labels(key_of(platform)).observe(max(0.0, seconds))
        self._wait.labels(key_of(platform)).observe(max(0.0, waited))
        if prepared:
            self._provisioned.inc(key_of(platform))

    def allocation_failed(self, platform: str) -> None:
        """A TaskRun got an error instead of a host."""
        self._allocation_failures.inc(key_of(platform))

    def task_run_ended(self, platform: str, *, seconds: float) -> None:
        """A TaskRun ended that had a host. `seconds`: since it was created."""
        self._run.labels(key_of(platform)).observe(max(0.0, seconds))

    def provisioning_failed(self, platform: str) -> None:
        """A host could not be prepared."""
        self._provisioning_failures.inc(key_of(platform))

    def cleanup_failed(self, platform: str) -> None:
        """A user could not be removed from a host."""
        self._cleanup_failures.inc(key_of(platform))

    def maintenance_failed(self, platform: str) -> None:
        """A static host could not be maintained."""
        self._maintenance_failures.inc(key_of(platform))

    def swept(self, reason: SweepReason) -> None:
        """A machine without record, a record without machine, or an expired machine was found."""
        self._swept.inc(reason)

    def key_refused(self, reason: Refusal) -> None:
        """A connection to the one-time key service got no key."""
        self._keys_refused.inc(reason)

    def clear_gauges(self) -> None:
        """Remove the gauges: another replica is the leader and exposes them. Counters stay."""
        for gauge in (self._pool, self._running, self._waiting):
            gauge.clear()
        self._namespaces.clear()

    def set_platform(
        self, platform: str, *, hosts: int, running: Iterable[str], waiting: Iterable[str]
    ) -> None:
        """Set the gauges of a platform. `running`, `waiting`: the namespace of each TaskRun."""
        platform = key_of(platform)
        self._pool.labels(platform).set(hosts)
        for counter in (
            self._provisioned,
            self._allocation_failures,
            self._provisioning_failures,
            self._cleanup_failures,
            self._maintenance_failures,
        ):
            counter.initialize(platform)
        runs, waits = Count(running), Count(waiting)
        exposed = self._namespaces.setdefault(platform, {})
        for namespace in sorted({*runs, *waits}):
            exposed.pop(namespace, None)
            exposed[namespace] = None
        for namespace in [*exposed][: -IDLE_NAMESPACES_MAX - len({*runs, *waits})]:
            del exposed[namespace]
            self._running.remove(platform, namespace)
            self._waiting.remove(platform, namespace)
        for namespace in exposed:
            self._running.labels(platform, namespace).set(runs[namespace])
            self._waiting.labels(platform, namespace).set(waits[namespace])
