"""What dashboards and rules ask, as Prometheus gets it."""

from pathlib import Path
from typing import Any, Final

import yaml

from services.reference.metrics import DeclaredMetric, declared_metrics

__all__ = ["ROOT", "RULES", "every_rule", "filled_in", "labels_of_series"]

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "deploy" / "prometheus" / "rules.yaml"
VARIABLES: Final = {"$__rate_interval": "30s", "$cluster_queue": ".*"}
"""What Grafana writes in their place, for a recording of a minute."""


def filled_in(expression: str) -> str:
    """As Grafana asks it."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"nobody fills in {expression}"
    return expression


def every_rule() -> list[dict[str, Any]]:
    """All alert rules."""
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def labels_of_series() -> dict[str, set[str]]:
    """The labels of each time series that a service declares, and of `up`, which Prometheus adds."""
    declared = {name: {*one.labels} for one in declared_metrics() for name in _series_of(one)}
    return declared | {"up": set()}


def _series_of(metric: DeclaredMetric) -> tuple[str, ...]:
    if metric.kind == "histogram":
        return tuple(f"{metric.name}_{part}" for part in ("bucket", "sum", "count"))
    return (metric.name,)
