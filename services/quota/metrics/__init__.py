"""Kueue's metrics by its names and labels, so that dashboards and alerts for Kueue keep working.

`decisions` counts each decision when it is published. `gauges` reads the engine at each scrape, so that
no series outlives its object. `service` has the metrics of the service itself, `catalogue` the names,
`custom_labels` what a Configuration adds to them.
"""

from services.quota.metrics.custom_labels import CustomLabels
from services.quota.metrics.decisions import DecisionMetrics
from services.quota.metrics.gauges import GaugeCollector

__all__ = ["CustomLabels", "DecisionMetrics", "GaugeCollector"]
