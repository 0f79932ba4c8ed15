"""Coscheduling modes beside Tekton's own setting, and modes that are refused."""

from typing import Any

import pytest

from shared.contracts.coscheduling import (
    MODES,
)
from tests.unit.patcher.coscheduling_stage import CoschedulingStage, on_stage, tasks

PLAIN = tasks("a", "b")


WITH_CLAIMS = tasks("a", "b", a=["src"], b=["src"])


OURS, TEKTONS, NONE, REFUSED = "placeholders", "tekton", "none", "refused"


MATRIX = {
    # Tekton's setting: the mode of the run: who serves it without claims, and with.
    "disabled": {
        "disabled": (NONE, NONE), "workspaces": (NONE, OURS),
        "pipelineruns": (OURS, OURS), "isolate-pipelinerun": (OURS, OURS),
    },
    "workspaces": {
        "disabled": (NONE, REFUSED), "workspaces": (NONE, TEKTONS),
        "pipelineruns": (OURS, REFUSED), "isolate-pipelinerun": (OURS, REFUSED),
    },
    "pipelineruns": {
        "disabled": (REFUSED, REFUSED), "workspaces": (REFUSED, REFUSED),
        "pipelineruns": (TEKTONS, TEKTONS), "isolate-pipelinerun": (REFUSED, REFUSED),
    },
    "isolate-pipelinerun": {
        "disabled": (REFUSED, REFUSED), "workspaces": (REFUSED, REFUSED),
        "pipelineruns": (REFUSED, REFUSED), "isolate-pipelinerun": (TEKTONS, TEKTONS),
    },
}  # fmt: skip


CELLS = [
    (tekton, mode, claims, MATRIX[tekton][mode][claims])
    for tekton in MODES
    for mode in MODES
    for claims in (False, True)
]


@pytest.mark.parametrize(
    "cell",
    CELLS,
    ids=[f"Tekton {t}, run {m}, {'with' if c else 'no'} claims: {w}" for t, m, c, w in CELLS],
)
def test_server_of_a_mode_follows_tektons_setting(cell: tuple[Any, str, bool, str]) -> None:
    tekton, mode, claims, expected = cell

    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit(mode, **(WITH_CLAIMS if claims else PLAIN))
        await stage.decide(state)
        if expected == REFUSED:
            await stage.until(stage.outcomes, "the decision is answered")
            outcome = stage.outcomes()[-1]
            assert (outcome.result, outcome.action) == ("refused", "release")
            assert outcome.message.startswith(
                f"annotation sluicegate.dev/coschedule: '{mode}' contradicts Tekton's own setting "
                f"coschedule: '{tekton}' (ConfigMap feature-flags)"
            )
            assert stage.is_held()
            assert stage.placeholders() == []
            return
        await stage.until(lambda: stage.where().get("a"), "the first task runs")
        names_ = {
            placeholder["metadata"]["name"].rpartition("-")[0]
            for placeholder in stage.placeholders()
        }
        assert names_ == {OURS: {"sluicegate-anchor"}, TEKTONS: {"affinity-assistant"}}.get(
            expected, set()
        )
        await stage.until(stage.succeeded, "the run succeeds")
        if expected in {OURS, TEKTONS}:
            assert len(set(stage.where().values())) == 1

    on_stage(story, tekton=tekton)


def test_isolated_run_without_a_node_slot_is_refused() -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit("isolate-pipelinerun")
        await stage.decide(state, slots=False)
        await stage.until(stage.outcomes, "the decision is answered")
        outcome = stage.outcomes()[-1]
        assert outcome.result == "refused"
        assert "has no node-slots" in outcome.message
        assert "kueue.konflux-ci.dev/requests-node-slots" in outcome.message
        assert stage.is_held()

    on_stage(story)


def test_unknown_mode_is_refused_with_annotation_and_value() -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit("together")
        await stage.decide(state)
        await stage.until(stage.outcomes, "the decision is answered")
        assert stage.outcomes()[-1].message == (
            "annotation sluicegate.dev/coschedule: 'together' is not one of disabled, workspaces, "
            "pipelineruns, isolate-pipelinerun"
        )

    on_stage(story)
