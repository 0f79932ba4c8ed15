"""Coscheduled runs: their steps, a crash at each step, cordoned nodes, and changes of mode."""

from typing import Any

import pytest

from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    COSCHEDULED_ANNOTATION,
    placeholder_name,
)
from shared.contracts.kube import names
from tests.unit.patcher.coscheduling_stage import CoschedulingStage, on_stage, tasks

SHARED: dict[str, list[str]] = {"a": ["src", "cache"], "b": ["src"], "c": ["cache"]}


BY_CLAIM: dict[str, list[str]] = {"a": ["src"], "b": ["src"], "c": ["cache"]}


async def to_the_end(stage: CoschedulingStage, mode: str, **spec: Any) -> None:
    """One run, from its creation to what is left of it."""
    state = await stage.submit(mode, **spec)
    await stage.decide(state)
    await stage.until(stage.succeeded, "the run succeeds")
    await stage.finish(state)
    await stage.until(lambda: stage.let_go(state), "the Workload is let go")


STORIES = {
    "pipelineruns": tasks("a", "b", "c", **SHARED),
    "isolate-pipelinerun": tasks("a", "b", "c", **SHARED),
    "workspaces": tasks("a", "b", "c", **BY_CLAIM),
}


WRITES = {
    "pipelineruns": [
        "create Workload", "patch Workload/status", "patch Workload",
        "create PersistentVolumeClaim", "create PersistentVolumeClaim", "create StatefulSet",
        "patch PipelineRun", "patch PipelineRun",
        "patch Workload/status", "delete StatefulSet",
        "delete PersistentVolumeClaim", "patch PersistentVolumeClaim",
        "delete PersistentVolumeClaim", "patch PersistentVolumeClaim", "patch Workload",
    ],
}  # fmt: skip


def test_coscheduled_run_causes_exactly_these_writes() -> None:
    stage = on_stage(lambda s: to_the_end(s, "pipelineruns", **STORIES["pipelineruns"]))
    written = [w for w in stage.patchers_kube.writes if w != "create Secret"]
    assert written == WRITES["pipelineruns"]


def test_run_without_the_annotation_causes_no_further_writes() -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit(None)
        await stage.decide(state)
        await stage.until(stage.succeeded, "the run succeeds")
        await stage.finish(state)
        await stage.cluster.after(5)

    written = [w for w in on_stage(story).patchers_kube.writes if w != "create Secret"]
    assert written == [
        "create Workload", "patch Workload/status", "patch PipelineRun",
        "patch Workload/status", "patch Workload",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", STORIES)
@pytest.mark.parametrize("done", [False, True], ids=["before it is done", "after it was done"])
def test_crash_at_any_write_leads_to_the_same_end(mode: str, done: bool) -> None:
    spec = STORIES[mode]
    writes = on_stage(lambda s: to_the_end(s, mode, **spec)).patchers_kube.writes
    for number in range(1, len(writes) + 1):
        where: dict[str, str] = {}

        async def story(stage: CoschedulingStage, seen: dict[str, str] = where) -> None:
            state = await stage.submit(mode, **spec)
            await stage.decide(state)
            await stage.until(stage.succeeded, "the run succeeds")
            seen.update(stage.where())
            await stage.finish(state)
            await stage.until(lambda: stage.let_go(state), "the Workload is let go")
            assert not stage.placeholders()
            assert not stage.placeholder_pods()
            # In that mode claims stay until the run is deleted, as with Tekton.
            assert len(stage.claims()) == (2 if mode == "workspaces" else 0)

        stage = on_stage(story, crashes_at=number, done=done)
        what = f"death at write {number}: {stage.patchers_kube.writes[number - 1]}"
        assert stage.patchers_kube.crashed.is_set(), what
        assert where["a"] == where["b"] != "", what
        if mode != "workspaces":
            assert where["c"] == where["a"], what


@pytest.mark.parametrize("mode", ["pipelineruns", "isolate-pipelinerun"])
def test_run_starts_only_after_its_placeholder_has_a_node(mode: str) -> None:
    async def story(stage: CoschedulingStage) -> None:
        for number in (1, 2, 3):
            await stage.cordon(f"node-{number}")
        state = await stage.submit(mode)
        await stage.decide(state)
        await stage.cluster.after(60)
        assert stage.is_held()
        assert set(stage.placeholder_pods().values()) == {""}
        await stage.cordon("node-2", off=True)
        await stage.until(stage.succeeded, "the run succeeds")
        assert set(stage.where().values()) == {"node-2"}

    on_stage(story)


@pytest.mark.parametrize("mode", ["pipelineruns", "isolate-pipelinerun", "workspaces"])
def test_run_finishes_although_its_node_is_cordoned(mode: str) -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit(mode, **tasks("a", "b", a=["src"], b=["src"]))
        await stage.decide(state)
        await stage.until(lambda: stage.where().get("a"), "the first task runs")
        node = stage.where()["a"]
        await stage.cordon(node)
        await stage.until(stage.succeeded, "the run succeeds")
        where = stage.where()
        assert where["a"] == node
        assert where["b"] != node
        await stage.finish(state)
        await stage.until(lambda: not stage.placeholder_pods(), "placeholders are gone")

    on_stage(story)


def test_run_waits_for_ever_if_placeholders_stay_on_cordoned_nodes() -> None:
    """The deadlock is real in this cluster: what resolves it is the patcher's care."""

    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit("pipelineruns")
        await stage.decide(state)
        await stage.until(lambda: stage.where().get("a"), "the first task runs")
        await stage.kill_patcher()
        await stage.cordon(stage.where()["a"])
        await stage.cluster.after(600)
        assert not stage.succeeded()
        assert stage.where()["b"] == ""
        await stage.observe(state)
        await stage.start_patcher()
        await stage.until(stage.succeeded, "the run succeeds")

    on_stage(story)


def test_two_isolated_runs_never_share_a_node() -> None:
    async def story(stage: CoschedulingStage) -> None:
        runs = [f"p{number}" for number in range(6)]
        states = [await stage.submit("isolate-pipelinerun", name) for name in runs]
        bystander = await stage.submit(None, "plain")
        for state in [*states, bystander]:
            await stage.decide(state)
        ended: set[str] = set()
        for _ in range(1200):
            await stage.cluster.after(0.5)
            taken = [node for node in stage.placeholder_pods().values() if node]
            assert len(taken) == len(set(taken))
            for state, name in zip(states, runs, strict=True):
                if name not in ended and stage.succeeded(name):
                    ended.add(name)
                    await stage.finish(state)
                placeholder = stage.placeholder_pods().get(f"{placeholder_name(state.uid)}-0")
                strangers = set(stage.where("plain").values())
                assert not (placeholder and placeholder in strangers and name not in ended)
            if len(ended) == len(runs):
                return
        raise AssertionError(f"only {sorted(ended)} ended")

    on_stage(story)


def test_placeholder_goes_with_the_quota_and_returns_with_the_next_admission() -> None:
    async def story(stage: CoschedulingStage) -> None:
        for number in (1, 2, 3):
            await stage.cordon(f"node-{number}")
        state = await stage.submit("pipelineruns", **STORIES["pipelineruns"])
        await stage.decide(state)
        await stage.until(stage.placeholders, "the placeholder is there")
        await stage.decide(state, "evicted")
        await stage.until(lambda: not stage.placeholders() and not stage.claims(), "all is gone")
        await stage.cluster.after(5)
        workload = await stage.workload(state)
        assert workload is not None
        assert COSCHEDULED_ANNOTATION not in (workload["metadata"].get("annotations") or {})
        assert stage.is_held()
        await stage.cordon("node-1", off=True)
        await stage.decide(state)
        await stage.until(stage.succeeded, "the run succeeds")
        assert set(stage.where().values()) == {"node-1"}

    on_stage(story)


def test_run_started_by_its_user_keeps_its_placeholder_after_losing_quota() -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit("pipelineruns")
        await stage.decide(state)
        await stage.until(lambda: not stage.is_held(), "it starts")
        await stage.decide(state, "evicted")
        await stage.until(stage.succeeded, "the run succeeds")
        assert len(set(stage.where().values())) == 1
        assert stage.placeholders()

    on_stage(story)


def test_run_started_during_the_withdrawal_keeps_its_placeholder() -> None:
    async def story(stage: CoschedulingStage) -> None:
        for number in (1, 2, 3):
            await stage.cordon(f"node-{number}")
        state = await stage.submit("pipelineruns")
        await stage.decide(state)
        await stage.until(stage.placeholders, "the placeholder is there")
        (placeholder,) = stage.placeholders()
        runs = stage.cluster.api.kinds.by_resource("tekton.dev", "pipelineruns")
        led = {"metadata": {"annotations": {AFFINITY_ANNOTATION: placeholder["metadata"]["name"]}}}
        await stage.cluster.merge(runs, "p", led)

        async def by_hand() -> None:
            await stage.cluster.merge(runs, "p", {"spec": {"status": None}})

        stage.patchers_kube.before["patch PipelineRun"] = by_hand
        await stage.decide(state, "evicted")
        await stage.cluster.after(60)
        assert stage.placeholders() == [placeholder]
        assert stage.run()["metadata"]["annotations"][AFFINITY_ANNOTATION]
        await stage.cordon("node-1", off=True)
        await stage.until(stage.succeeded, "the run succeeds")

    on_stage(story)


def test_placeholder_and_claims_go_with_a_deleted_run() -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit("isolate-pipelinerun", **STORIES["isolate-pipelinerun"])
        await stage.decide(state)
        await stage.until(lambda: stage.where().get("a"), "the first task runs")
        api = stage.cluster.api
        api.delete_now(api.get(api.kinds.by_resource("tekton.dev", "pipelineruns"), "default", "p"))
        await stage.until(
            lambda: (
                not stage.placeholders() and not stage.placeholder_pods() and not stage.claims()
            ),
            "all is gone",
        )

    on_stage(story)


def test_cancelled_run_keeps_its_node_until_its_pods_are_gone() -> None:
    async def story(stage: CoschedulingStage) -> None:
        state = await stage.submit("isolate-pipelinerun", **tasks("a"))
        await stage.decide(state)
        await stage.until(lambda: stage.where().get("a"), "the first task runs")
        runs = stage.cluster.api.kinds.by_resource("tekton.dev", "pipelineruns")
        await stage.cluster.merge(runs, "p", {"spec": {"status": "Cancelled"}})
        await stage.finish(state)
        while (
            stage.where()
        ):  # The pod ends within a second; until then its placeholder holds the node.
            assert stage.placeholders()
            await stage.cluster.after(0.1)
        await stage.until(
            lambda: not stage.placeholder_pods() and not stage.placeholders(), "all is gone"
        )

    on_stage(story)


CHANGES = {
    "to another mode": ("isolate-pipelinerun", True),
    "to disabled": ("disabled", False),
    "to nothing": (None, False),
}


@pytest.mark.parametrize("case", CHANGES.values(), ids=CHANGES.keys())
def test_mode_changed_before_the_start_is_applied(case: tuple[str | None, bool]) -> None:
    mode, with_placeholder = case

    async def story(stage: CoschedulingStage) -> None:
        for number in (1, 2, 3):
            await stage.cordon(f"node-{number}")
        state = await stage.submit("pipelineruns")
        await stage.decide(state)
        await stage.until(stage.placeholders, "the placeholder is there")
        runs = stage.cluster.api.kinds.by_resource("tekton.dev", "pipelineruns")
        await stage.cluster.merge(
            runs, "p", {"metadata": {"annotations": {names.COSCHEDULE: mode}}}
        )
        await stage.kill_patcher()  # It knows the run as it was; a watcher would have told it.
        await stage.start_patcher()
        for number in (1, 2, 3):
            await stage.cordon(f"node-{number}", off=True)
        await stage.until(stage.succeeded, "the run succeeds")
        assert bool(stage.placeholders()) is with_placeholder
        annotations = stage.run()["metadata"]["annotations"]
        assert (AFFINITY_ANNOTATION in annotations) is with_placeholder
        if with_placeholder:
            affinity = stage.placeholders()[0]["spec"]["template"]["spec"]["affinity"]
            assert "requiredDuringSchedulingIgnoredDuringExecution" in affinity["podAntiAffinity"]

    on_stage(story)
