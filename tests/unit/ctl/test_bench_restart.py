"""`make bench-restart` says which of its goals is missed."""

import pytest

from services.ctl.bench_restart import missed

MISSED: dict[str, tuple[dict[str, float], list[str]]] = {
    "every figure is at its goal": ({}, []),
    "the leader needs more CPU": (
        {"quota_seconds": 30.4}, ["goal missed: CPU of quota is 30.4 s, at most 30 s"]
    ),
    "quota needs more memory": (
        {"quota_mib": 600.6}, ["goal missed: memory of quota is 600.6 MiB, at most 600 MiB"]
    ),
    "the server needs more memory": (
        {"server_mib": 1100.0},
        ["goal missed: memory of nats-server is 1100.0 MiB, at most 1024 MiB"],
    ),
    "two goals are missed": (
        {"quota_seconds": 31.0, "server_mib": 1025.0},
        [
            "goal missed: CPU of quota is 31.0 s, at most 30 s",
            "goal missed: memory of nats-server is 1025.0 MiB, at most 1024 MiB",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("figures", "sentences"), MISSED.values(), ids=MISSED)
def test_each_figure_beyond_its_goal_is_named(
    figures: dict[str, float], sentences: list[str]
) -> None:
    at_goal = {"quota_seconds": 30.0, "quota_mib": 600.0, "server_mib": 1024.0}
    assert missed(**at_goal | figures) == sentences
