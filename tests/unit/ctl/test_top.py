"""How full the queues are, for a pipe and for a terminal."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from services.ctl.get.snapshot import Snapshot
from services.ctl.inspect import top
from services.ctl.inspect.top import bar, lines, queue_lines
from shared.bus.stream_reader import Seen
from shared.contracts.kube import kinds

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seen(subject: str, **body: Any) -> Seen:
    return Seen(subject=subject, body={"cluster": "hub", **body}, headers={}, sequence=1, time=NOW)


def snapshot() -> Snapshot:
    result = Snapshot()
    kind = kinds.CLUSTER_QUEUE
    resources = [
        {"name": "cpu", "nominalQuota": 4},
        {"name": "memory", "nominalQuota": "8Gi"},
        {"name": "gpu", "nominalQuota": 0},
    ]
    for name, pending, cpu, borrowed in (("quiet", 0, "0", "0"), ("busy", 7, "6", "2")):
        spec = {
            "cohortName": "all",
            "resourceGroups": [{"flavors": [{"name": "spot", "resources": resources}]}],
        }
        result.apply(
            seen(
                f"sluice.observed.hub._.{name}.{kind.detail}", group=kind.group, kind=kind.kind,
                version=kind.version, namespace=None, name=name, object={"spec": spec},
            )
        )  # fmt: skip
        used = [
            {"name": "cpu", "total": cpu, "borrowed": borrowed},
            {"name": "memory", "total": "2Gi" if pending else "0"},
        ]
        result.apply(
            seen(
                f"sluice.queue.hub._.{name}", kind="ClusterQueue", name=name, pending=pending,
                reserving=2, admitted=1, active=bool(pending),
                reservation=[{"name": "spot", "resources": used}],
            )
        )  # fmt: skip
    result.apply(
        seen("sluice.queue.hub.team.main", kind="LocalQueue", namespace="team", name="main")
    )
    return result


def test_pipe_gets_a_line_for_each_queue_longest_first() -> None:
    assert lines(queue_lines(snapshot())) == [
        (
            "queue=busy cluster=hub active=true pending=7 reserving=2 admitted=1 "
            "spot/cpu=6/4(borrowed=2) spot/memory=2Gi/8Gi"
        ),
        "queue=quiet cluster=hub active=false pending=0 reserving=2 admitted=1",
    ]


def test_shares_are_of_nominal_quota_whatever_the_units() -> None:
    (busy, _) = queue_lines(snapshot())
    assert {usage.resource: usage.share for usage in busy.usages} == {
        "cpu": 1.5,
        "memory": 0.25,
        "gpu": 0.0,
    }


def test_a_bar_is_full_at_nominal_quota() -> None:
    assert [bar(share).count("█") for share in (0.0, 0.25, 1.0, 1.5)] == [0, 5, 20, 20]


def test_table_shows_used_and_borrowed_resources() -> None:
    console = Console(width=140, force_terminal=False)
    with console.capture() as captured:
        console.print(top._table(queue_lines(snapshot())))
    text = captured.get()
    assert "6/4 cpu (spot) borrows 2" in text
    assert "quiet (inactive)" in text
    assert "CLUSTER" not in text


def test_table_names_the_clusters_where_there_are_several() -> None:
    busy, quiet = queue_lines(snapshot())
    console = Console(width=140, force_terminal=False)
    with console.capture() as captured:
        console.print(top._table([busy, replace(quiet, cluster="east")]))
    rows = captured.get().splitlines()
    assert rows[0].split()[:2] == ["CLUSTER", "QUEUE"]
    assert rows[-1].split()[:2] == ["east", "quiet"]
