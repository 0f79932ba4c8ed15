"""The dashboards: what they ask is told, and whoever starts Grafana finds them."""

import json
import re
from typing import Any, Final

import pytest
import yaml

from services.reference.dashboards import FOLDER, Dashboard, dashboards, expressions, rendered
from tests.monitoring.asked import ROOT, filled_in, labels_of_series
from tests.monitoring.grafana_schema import problems
from tests.monitoring.promql import evaluate, metrics_in
from tests.monitoring.recording import Recording, read

GRAFANA: Final = ROOT / "deploy" / "grafana"
SCRAPED: Final = {"job", "instance", "le"}
"""Labels that Prometheus or a histogram adds."""


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read()


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda dashboard: dashboard.uid)
def test_every_panel_expression_has_recorded_data(
    dashboard: Dashboard, recording: Recording
) -> None:
    length = len(recording.series[0].values)
    moments = [recording.step_seconds * index for index in range(2, length)]
    for title, expression in expressions(dashboard):
        asked = filled_in(expression)
        assert any(evaluate(asked, recording, at) for at in moments), f"{title}: {expression}"


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda dashboard: dashboard.uid)
def test_panels_use_declared_metrics_and_labels(dashboard: Dashboard) -> None:
    known = labels_of_series()
    for panel in dashboard.panels:
        for legend, expression in panel.queries:
            shown = set(re.findall(r"{{(\w+)}}", legend))
            for metric, labels in metrics_in(filled_in(expression)):
                assert metric in known, f"{panel.title}: nobody tells {metric}"
                assert labels | shown <= known[metric] | SCRAPED, f"{panel.title}: {labels | shown}"


def test_recorded_metrics_are_declared(recording: Recording) -> None:
    """So that the reference page, of which the same list is made, leaves nothing out."""
    known = labels_of_series()
    for metric, labels in recording.labels_of().items():
        assert metric in known, f"the reference lacks {metric}"
        assert labels <= known[metric] | SCRAPED, f"{metric}: {labels}"


def test_dashboard_files_match_their_tables() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == rendered()
    assert len(rendered()) == 5


def test_dashboards_are_such_by_grafanas_schema() -> None:
    found = {name: problems(json.loads(text)) for name, text in rendered().items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("panels.0.gridPos.hight", 4, ".panels[0].gridPos.hight: the schema has no such field"),
        ("panels.0.targets.0.expression", "up", ".targets[0].expression: the schema has no such"),
        ("panels.0.options.graphMod", "none", ".panels[0].options.graphMod: the schema has no"),
        ("panels.0.title", 3, ".panels[0].title: 3 is no <class 'str'>"),
        ("panels.0.gridPos.w", "4", ".panels[0].grid_pos.w: '4' is no <class 'int'>"),
        ("links.0.type", "folders", ".links[0].type_val: 'folders'"),
        ("templating.list.0.refresh", 7, ".refresh: 7 is no <enum"),
        ("panels", {"a": 1}, "cannot be read"),
    ],
)
def test_what_grafanas_schema_does_not_have_is_found(path: str, value: object, told: str) -> None:
    dashboard = json.loads(rendered()["queues.json"])
    *parents, last = path.split(".")
    place: Any = dashboard
    for key in parents:
        place = place[int(key) if key.isdecimal() else key]
    place[last] = value
    assert told in "\n".join(problems(dashboard))


def test_panels_do_not_overlap() -> None:
    for name, text in rendered().items():
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text)["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, f"{name}: {panel['title']}"
            assert max(x for x, _ in cells) < 24
            taken |= cells


def test_grafana_finds_dashboards_and_prometheus() -> None:
    [provider] = _yaml("provisioning/dashboards/sluicegate.yaml")["providers"]
    sources = _yaml("provisioning/datasources/prometheus.yaml")["datasources"]
    assert {"prometheus"} <= {source["uid"] for source in sources}
    grafana = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["grafana"]
    mounted = dict(volume.rsplit(":", 1)[0].split(":") for volume in grafana["volumes"])
    assert mounted["./deploy/grafana/dashboards"] == provider["options"]["path"]
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.removeprefix(f"{provider['options']['path']}/") in rendered()


def test_prometheus_scrapes_every_service_of_compose_under_its_name() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    ours = {
        name: service["command"][1]
        for name, service in services.items()
        if service.get("command", [""])[0] == "run" and service["command"][1] != "simulator"
    }
    assert ours, "compose runs services"
    scrapes = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())
    found = {
        host: _job(scrape)
        for scrape in scrapes["scrape_configs"]
        for host in _hosts(scrape)
        if host != "collector"
    }
    assert found == ours


def _hosts(scrape: dict[str, Any]) -> list[str]:
    fixed = [t for group in scrape.get("static_configs", []) for t in group["targets"]]
    named = [name for group in scrape.get("dns_sd_configs", []) for name in group["names"]]
    return [target.partition(":")[0] for target in (*fixed, *named)]


def _job(scrape: dict[str, Any]) -> str:
    """The label `job` that its samples get."""
    rules = scrape.get("relabel_configs", [])
    replaced = [str(rule["replacement"]) for rule in rules if rule["target_label"] == "job"]
    return replaced[0] if replaced else str(scrape["job_name"])


def _yaml(path: str) -> Any:
    return yaml.safe_load((GRAFANA / path).read_text())
