"""Kueue's metrics, by its names and labels, so that dashboards and alerts made for it go on working.

Counters and waits follow the decisions as they are published; everything that *is* at a moment is
read from the engine when somebody scrapes, so that no label set outlives what it tells of.
"""

from services.quota.metrics.decisions import DecisionMetrics
from services.quota.metrics.gauges import GaugeCollector

__all__ = ["DecisionMetrics", "GaugeCollector"]
