"""Options of `sluice get`: selectors, short names, table layout."""

import pytest

from services.ctl.get.command import Query
from services.ctl.get.resources import RESOURCES, resource_named
from services.ctl.get.selectors import selector
from services.ctl.get.table import Table
from services.ctl.get.workloads import queue_order
from shared.bus import stream_reader, streams
from shared.contracts import rpc
from shared.contracts.messages import explain as contract
from shared.runtime.command import CommandError


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("team=a", "a"), ("team==a", "a"), ("team!=a", "b-"), ("gpu", "b"), ("!gpu", "a-"),
        ("team in (a, b)", "ab"), ("team notin (a)", "b-"), ("team in (a,b),!gpu", "a"),
        ("", "ab-"), ("team=", ""),
    ],
)  # fmt: skip
def test_label_selectors_select_as_in_kubectl(text: str, chosen: str) -> None:
    labels: dict[str, dict[str, str]] = {
        "a": {"team": "a"},
        "b": {"team": "b", "gpu": "1"},
        "-": {},
    }
    selects = selector(text)
    assert "".join(name for name, has in labels.items() if selects(has)) == chosen


@pytest.mark.parametrize("text", ["a b", "=a", "a in b", "a=b=c", ","])
def test_malformed_selector_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is no label selector"):
        selector(text)


def test_short_names_are_unique_and_include_those_of_kubectl() -> None:
    words = [word for resource in RESOURCES for word in (resource.name, *resource.short)]
    assert len(words) == len(set(words))
    for word, name in (("CQ", "clusterqueues"), ("lq", "localqueues"), ("mkc", "spokes")):
        resource = resource_named(word)
        assert resource is not None
        assert resource.name == name
    assert resource_named("pods") is None
    with pytest.raises(CommandError, match="must be one of table, wide, json"):
        Query.of("wl", output="xml")


def test_widths_only_grow_and_colours_are_on_demand() -> None:
    plain = Table(("NAME", "STATUS"))
    assert plain.lines([("a", "True")]) == ["NAME   STATUS", "a      True"]
    assert plain.lines([("longer-name", "")], header=False) == ["longer-name   <none>"]
    assert plain.lines([("b", "x")], header=False) == ["b             x"]
    assert "\x1b[31mFalse\x1b[0m" in Table(("A",), colours=True).lines([("False",)])[1]


def test_titles_and_what_has_not_finished_are_not_painted() -> None:
    told = Table(("ADMITTED", "FINISHED"), colours=True).lines([("True", "False")])
    assert told == ["ADMITTED   FINISHED", "\x1b[32mTrue\x1b[0m       False"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("cq/left", None), ("clusterqueues", "left", "team")),
        (("workload.kueue.x-k8s.io/job-a", None), ("workloads", "job-a", "team")),
        (("wl", "other/job-a"), ("workloads", "job-a", "other")),
        (("clusterqueues.kueue.x-k8s.io", "left"), ("clusterqueues", "left", "team")),
    ],
)
def test_objects_may_be_named_as_get_prints_them(
    words: tuple[str, str | None], expected: tuple[str, str, str]
) -> None:
    query = Query.of(words[0], name=words[1], namespace="team", output="name")
    assert (query.resource.name, query.name, query.namespace) == expected


def test_constants_repeated_for_quick_start_are_equal() -> None:
    assert stream_reader.SUFFIX == streams.VIEW_SUFFIX
    assert contract.PositionsRequest.subject == rpc.POSITIONS
    assert contract.ExplainRequest.subject == rpc.EXPLAIN


WORKLOAD_ROWS = {
    "a running one": ("hub", "r", "ADMITTED", "", "0", "2026-01-01"),
    "the second in the queue": ("a", "b", "PENDING", "2", "0", "2026-01-01"),
    "the first in the queue": ("a", "c", "PENDING", "1", "0", "2026-01-03"),
    "the first of another queue": ("b", "a", "PENDING", "1", "9", "2026-01-01"),
    "the tenth in the queue": ("a", "a", "PENDING", "10", "0", "2026-01-02"),
    "a finished one": ("a", "a", "FINISHED", "", "0", "2025-01-01"),
}


def test_waiting_workloads_come_first_and_in_the_order_of_their_queue() -> None:
    keys = {}
    for title, (queue, name, status, position, priority, created_at) in WORKLOAD_ROWS.items():
        row = (name, "", "", "", queue, status, position, "", "", "", priority, "", "", "")
        keys[title] = queue_order(row, created_at)
    assert sorted(keys, key=lambda title: keys[title]) == [
        "the first in the queue",
        "the second in the queue",
        "the tenth in the queue",
        "the first of another queue",
        "a running one",
        "a finished one",
    ]
