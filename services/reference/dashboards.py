"""Generates the Grafana dashboards from `deploy/grafana/dashboards.yaml`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
TABLES: Final = FOLDER.with_suffix(".yaml")
PROMETHEUS: Final = {"type": "prometheus", "uid": "prometheus"}
"""The name in `deploy/grafana/provisioning`."""

WIDTH: Final = 24
SMALL: Final = (4, 4)
"""Width and height of a figure."""

LARGE: Final = (12, 8)
"""Width and height of a graph."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure, or one graph."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Legend and expression; a figure has no legend."""

    @property
    def is_figure(self) -> bool:
        """A single current value, not lines over time."""
        return not self.queries[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One page."""

    uid: str
    title: str
    panels: tuple[Panel, ...]
    of_queues: bool = False
    """Whether ClusterQueues can be selected."""


def dashboards() -> tuple[Dashboard, ...]:
    """All of them."""
    return tuple(
        Dashboard(
            uid=page["uid"],
            title=page["title"],
            of_queues=page.get("of_queues", False),
            panels=tuple(map(_panel, page["panels"])),
        )
        for page in yaml.safe_load(TABLES.read_text())
    )


def _panel(panel: Json) -> Panel:
    queries = tuple((query.get("legend", ""), query["asks"]) for query in panel["queries"])
    return Panel(title=panel["title"], unit=panel["unit"], queries=queries)


def expressions(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    """Title of a panel and its expression, for each expression of a dashboard."""
    for panel in dashboard.panels:
        for _, expression in panel.queries:
            yield panel.title, expression


def rendered() -> dict[str, str]:
    """File name to Grafana's JSON."""
    return {
        f"{dashboard.uid}.json": json.dumps(_page(dashboard), indent=2) + "\n"
        for dashboard in dashboards()
    }


def _page(dashboard: Dashboard) -> Json:
    return {
        "uid": f"sluicegate-{dashboard.uid}",
        "title": dashboard.title,
        "tags": ["sluicegate"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_QUEUE] if dashboard.of_queues else []},
        "links": [_OTHERS],
        "panels": list(_placed(dashboard.panels)),
    }


_QUEUE: Final[Json] = {
    "name": "cluster_queue",
    "label": "ClusterQueue",
    "type": "query",
    "datasource": PROMETHEUS,
    "query": {"query": "label_values(kueue_cluster_queue_info, cluster_queue)", "refId": "queues"},
    "refresh": 2,
    "sort": 1,
    "multi": True,
    "includeAll": True,
    "allValue": ".*",
    "current": {"text": "All", "value": "$__all"},
}
_OTHERS: Final[Json] = {
    "title": "Sluicegate",
    "type": "dashboards",
    "tags": ["sluicegate"],
    "asDropdown": False,
    "includeVars": False,
    "keepTime": True,
}


def _placed(panels: tuple[Panel, ...]) -> Iterator[Json]:
    """From left to right, then below; the figures come first."""
    x = y = below = 0
    for number, panel in enumerate(panels, start=1):
        width, height = SMALL if panel.is_figure else LARGE
        if x + width > WIDTH or (below and height != below):
            x, y = 0, y + below
        below = height
        yield _drawn(panel, number, {"x": x, "y": y, "w": width, "h": height})
        x += width


def _drawn(panel: Panel, number: int, place: dict[str, int]) -> Json:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": PROMETHEUS,
            "expr": expression,
            "legendFormat": legend,
            "instant": panel.is_figure,
        }
        for index, (legend, expression) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "stat" if panel.is_figure else "timeseries",
        "title": panel.title,
        "datasource": PROMETHEUS,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {}
        if panel.is_figure
        else {"legend": {"displayMode": "list", "showLegend": True}},
    }


def main() -> int:
    """Write them; say which."""
    for name, text in rendered().items():
        (FOLDER / name).write_text(text)
        print(f"deploy/grafana/dashboards/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
