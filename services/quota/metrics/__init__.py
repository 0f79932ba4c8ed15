"""Kueue's metrics by its names and labels, so that dashboards and alerts for Kueue keep working.

`decisions` counts each decision when it is published. `gauges` reads the engine at each scrape, so that
no series outlives its object. `service` has the metrics of the service itself, `catalogue` the names.
"""

from services.quota.metrics.decisions import DecisionMetrics
from services.quota.metrics.gauges import GaugeCollector

__all__ = ["DecisionMetrics", "GaugeCollector"]
