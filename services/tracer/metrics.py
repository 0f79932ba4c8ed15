"""Prometheus metrics of the tracer."""

from prometheus_client import Counter, Gauge

TRACES = Counter("sluicegate_tracer_traces", "Traces that were made.", ["result"])
OPEN = Gauge("sluicegate_tracer_open", "Workloads whose traces are open.")
PENDING = Gauge("sluicegate_tracer_pending", "Traces that wait for the collector.")
