"""Worlds of coscheduled runs end well, and what goes wrong in one is found."""

from collections.abc import Mapping
from typing import Any

import pytest

from services.patcher.coscheduling import plan, reconciler
from services.simulator.scenarios.coscheduling import play
from shared.contracts.kube.kinds import Object
from tests.simulation.mistakes import finds

SEEDS = (1, 14, 53, 201)


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_are_coscheduled_or_isolated_as_requested_and_finish(seed: int) -> None:
    assert play(seed).problems == []


def test_judge_finds_a_pod_beside_an_isolated_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def sociable(run: Object, mode: str, given: Mapping[str, Any]) -> Object:
        affinity = affinity_of(run, "pipelineruns", given)
        if mode == "isolate-pipelinerun":
            affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = []
        return affinity

    affinity_of = plan._affinity
    monkeypatch.setattr(plan, "_affinity", sociable)
    assert finds(play, "alone", 2)


def test_judge_finds_a_placeholder_on_a_cordoned_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def careless(self: reconciler.CoschedulingReconciler) -> None:
        del self

    monkeypatch.setattr(reconciler.CoschedulingReconciler, "leave_cordoned_nodes", careless)
    assert finds(play, "have not ended", 14)


def test_judge_finds_leftover_placeholders_and_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    async def untidy(self: reconciler.CoschedulingReconciler, *args: object) -> None:
        del self, args

    monkeypatch.setattr(reconciler.CoschedulingReconciler, "clean_up", untidy)
    assert finds(play, "left behind", 2)
