"""The reference page of metrics, from what the services register."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from prometheus_client.metrics import MetricWrapperBase

import services.classifier.metrics
import services.console.metrics
import services.dispatcher.metrics
import services.patcher.metrics
import services.quota.leadership
import services.tracer.metrics
import shared.telemetry.metrics
from services.provisioner.metrics import Metrics as MachineMetrics
from services.provisioner.metrics import UnsuffixedCounter
from services.quota.metrics.catalogue import NOT_OURS, OURS

ALL_SERVICES: Final = "every service"

MODULES: Final[Mapping[str, tuple[ModuleType, ...]]] = {
    ALL_SERVICES: (shared.telemetry.metrics,),
    "classifier": (services.classifier.metrics,),
    "quota": (services.quota.metrics.service,),
    "dispatcher": (services.dispatcher.metrics,),
    "provisioner": (),
    "patcher": (services.patcher.metrics,),
    "console": (services.console.metrics,),
    "tracer": (services.tracer.metrics,),
}
"""Service to the modules whose variables are metrics."""

VALUES: Final = {
    "cluster": "MultiKueueClusters",
    "cluster_queue": "ClusterQueues",
    "cohort": "Cohorts",
    "durable": "consumers of that service",
    "flavor": "ResourceFlavors",
    "job_kind": "integrations",
    "method": "HTTP's",
    "name": "LocalQueues",
    "namespace": "namespaces with a LocalQueue",
    "parent_cohort": "Cohorts",
    "platform": "configured platforms, and `unknown`",
    "preempting_cluster_queue": "ClusterQueues",
    "priority_class": "WorkloadPriorityClasses",
    shared.telemetry.metrics.ROLE: f"`{shared.telemetry.metrics.LEADER}`",
    "resource": "resources of queues; watched kinds",
    "root_cohort": "Cohorts",
    "stream": "logs",
    "taskrun_namespace": "namespaces with a TaskRun that wants a machine, and the last hundred that had one",
}
"""What bounds the values of a label. Every other label has a few values that the code names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredMetric:
    """One metric as the code declares it."""

    service: str
    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def declared_metrics() -> list[DeclaredMetric]:
    """Every metric of every service."""
    found = [
        _read(service, metric)
        for service, modules in MODULES.items()
        for module in modules
        for metric in vars(module).values()
        # Duplicates: a module may import a metric of another one.
        if isinstance(metric, MetricWrapperBase)
    ]
    found += [
        DeclaredMetric(service="quota", name=m.name, kind=m.kind, labels=m.labels, help=m.help)
        for m in OURS.values()
    ]
    found += _of_machines()
    once = {one.name: one for one in reversed(found)}
    return sorted(once.values(), key=lambda one: ([*MODULES].index(one.service), one.name))


def _read(service: str, metric: MetricWrapperBase) -> DeclaredMetric:
    [family] = metric.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = tuple(metric._labelnames)  # noqa: SLF001 - no public name tells them
    return DeclaredMetric(
        service=service, name=name, kind=family.type, labels=labels, help=family.documentation
    )


def _of_machines() -> Iterator[DeclaredMetric]:
    for metric in vars(MachineMetrics()).values():
        if isinstance(metric, MetricWrapperBase):
            yield _read("provisioner", metric)
        elif isinstance(metric, UnsuffixedCounter):
            yield DeclaredMetric(
                service="provisioner",
                name=metric.name,
                kind="counter",
                labels=(metric.label,),
                help=metric.text,
            )


def metrics_page(generated: str) -> str:
    """All of them, by service; then what bounds their labels, and what the reference has besides."""
    metrics = declared_metrics()
    lines = ["# Metrics", "", generated, ""]
    lines += [
        "Each process tells its own at `/metrics` of its health port. Names and labels of `kueue_…`,",
        "`multikueue_…`, `tekton_kueue_…` and `multi_platform_controller_…` are those of the systems that",
        "have them, so that dashboards and alerts made for those go on working.",
        "",
    ]
    for service in MODULES:
        rows = _rows(metric for metric in metrics if metric.service == service)
        lines += [f"## {service}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [*rows, ""]
    lines += ["## What a label can be", ""]
    lines += [
        "No label is a name, an id or a message of work: what there is to tell apart is what",
        "administrators configure. A label that is not here has the few values that the code names.",
        "",
        "| label | values |",
        "|---|---|",
        *(f"| `{label}` | {values} |" for label, values in sorted(VALUES.items())),
        "",
        "## Metrics of Kueue that are told elsewhere, or nowhere",
        "",
        "| metric | why |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in sorted(NOT_OURS.items())),
    ]
    return "\n".join(lines) + "\n"


def _rows(metrics: Iterable[DeclaredMetric]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"
