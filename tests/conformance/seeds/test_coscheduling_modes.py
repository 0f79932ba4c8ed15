"""Document 002: the mode of a run, beside Tekton's own setting."""

import pytest

from shared.contracts.kube import kinds, names
from shared.kube.port import RefusedError
from tests.conformance.seeds.coscheduled_runs import furnish, run, until_done, until_started
from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, story


@says("002:145")
@pytest.mark.parametrize(
    ("mode", "tekton"),
    [
        ("disabled", "workspaces"),
        ("workspaces", "pipelineruns"),
        ("pipelineruns", "workspaces"),
        ("isolate-pipelinerun", "pipelineruns"),
    ],
)
@story()
async def test_mode_that_contradicts_the_setting_of_tekton_is_refused_with_both_values(
    stage: Stage, mode: str, tekton: str
) -> None:
    await furnish(stage, tekton=tekton)
    made = await stage.create(run(mode, {"a": ["x"], "b": ["x"]}))
    said = await stage.until_waits(made, "contradicts Tekton's own setting")
    assert f"annotation sluicegate.dev/coschedule: '{mode}'" in said
    assert f"coschedule: '{tekton}'" in said
    assert await stage.events(made, "ReleaseRefused")
    assert not await stage.runs(made)


@says("002:145", "002:392-397")
@story()
async def test_refused_run_starts_after_it_requests_an_allowed_mode(
    stage: Stage,
) -> None:
    await furnish(stage, tekton="workspaces")
    made = await stage.create(run("pipelineruns", {"a": ["x"], "b": ["x"]}))
    await stage.until_waits(made, "contradicts Tekton's own setting")
    await stage.patch(made, {"metadata": {"annotations": {names.COSCHEDULE: "workspaces"}}})
    await until_done(stage, made)


@says("002:133-143", "002:145")
@story()
async def test_affinity_assistants_of_tekton_serve_the_mode_of_its_setting(stage: Stage) -> None:
    await furnish(stage, tekton="workspaces")
    made = await stage.create(run("workspaces", {"a": ["x"], "b": ["x"]}))
    found = await until_started(stage, made, "a", "b")
    assert found["a"] == found["b"]
    sets = (await stage.kube.list(kinds.STATEFUL_SET)).items
    assert [one["metadata"]["name"][:18] for one in sets] == ["affinity-assistant"]


@says("002:133-143")
@story()
async def test_unknown_mode_is_refused_when_the_run_is_created(
    stage: Stage,
) -> None:
    await furnish(stage)
    with pytest.raises(RefusedError) as refused:
        await stage.create(run("isolate", {"a": []}))
    assert (
        "annotation sluicegate.dev/coschedule: 'isolate' is not one of disabled, workspaces, "
        "pipelineruns, isolate-pipelinerun"
    ) in str(refused.value)


@says("002:68-70")
@story()
async def test_two_claims_of_one_task_are_refused_in_mode_workspaces_with_the_message_of_tekton(
    stage: Stage,
) -> None:
    await furnish(stage)
    with pytest.raises(RefusedError, match="more than one PersistentVolumeClaim is bound"):
        await stage.create(run("workspaces", {"a": ["x", "y"]}))


@says("002:366-368", "002:392-397")
@story()
async def test_each_run_has_its_own_mode(stage: Stage) -> None:
    """What the document misses in its own design: a multi-arch build may spread, its neighbour not."""
    await furnish(stage)
    uses: dict[str, list[str]] = {"amd64": [], "arm64": [], "merge": []}
    spread = await stage.create(run("disabled", uses, name="multi-arch"))
    together = await stage.create(run("pipelineruns", uses, name="together"))
    plain = await stage.create(run(None, uses, name="plain"))
    assert len(set((await until_started(stage, spread, *uses)).values())) > 1
    assert len(set((await until_started(stage, together, *uses)).values())) == 1
    await until_done(stage, spread, together, plain)
