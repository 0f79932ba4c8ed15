"""The TaskRuns that a PipelineRun needs, and their order."""

from typing import Any

import pytest

from services.simulator.behaviour.tekton.plan import child_name, depth, plan
from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.multi_platform import PLATFORM_PARAMETER
from tests.unit.simulator.tekton_runs import PLATFORMS, THREE


def planned(spec: Obj, pipeline: Obj | None = None) -> list[tuple[str, str | None]]:
    run = {"metadata": {"name": "p"}, "spec": spec}
    return [(task.name, task.platform) for task in plan(run, pipeline)]


def platform(value: Any) -> Obj:
    return {"name": PLATFORM_PARAMETER, "value": value}


PLANS: dict[str, tuple[Obj, list[tuple[str, str | None]]]] = {
    "a pipeline that cannot be seen is one task": ({"pipelineRef": {}}, [("p-run", None)]),
    "or one for each platform": (
        {"pipelineRef": {}, "params": [PLATFORMS]},
        [("p-build-images-0", "linux/arm64"), ("p-build-images-1", "linux/s390x")],
    ),
    "a task may name its platform": (
        {"pipelineSpec": {"tasks": [{"name": "a", "params": [platform("linux/arm64")]}]}},
        [("p-a", "linux/arm64")],
    ),
    "or by a parameter of the run": (
        {
            "params": [{"name": "where", "value": "linux/arm64"}],
            "pipelineSpec": {"tasks": [{"name": "a", "params": [platform("$(params.where)")]}]},
        },
        [("p-a", "linux/arm64")],
    ),
    "a matrix over a missing parameter is one task": (
        {
            "params": [PLATFORMS],
            "pipelineSpec": {
                "tasks": [
                    {
                        "name": "a",
                        "matrix": {"params": [platform("$(params.unknown[*])")]},
                    }
                ]
            },
        },
        [("p-a", None), ("p-build-images-0", "linux/arm64"), ("p-build-images-1", "linux/s390x")],
    ),
    "a matrix over the run's list": (
        {
            "params": [PLATFORMS],
            "pipelineSpec": {
                "tasks": [
                    {
                        "name": "a",
                        "matrix": {"params": [platform("$(params.build-platforms[*])")]},
                    }
                ]
            },
        },
        [("p-a-0", "linux/arm64"), ("p-a-1", "linux/s390x")],
    ),
}


@pytest.mark.parametrize(("spec", "tasks"), PLANS.values(), ids=PLANS.keys())
def test_pipeline_plan_orders_its_tasks(spec: Obj, tasks: list[tuple[str, str | None]]) -> None:
    assert planned(spec) == tasks


def test_pipeline_of_the_cluster_is_planned_by_its_tasks() -> None:
    assert planned({"pipelineRef": {"name": "x"}}, {"tasks": [{"name": "z"}]}) == [("p-z", None)]


def test_depth_is_the_longest_path_and_a_cycle_is_bounded() -> None:
    run = {"metadata": {"name": "p"}, "spec": {"pipelineSpec": THREE}}
    assert depth(plan(run)) == 3
    cycle = {"tasks": [{"name": "a", "runAfter": ["b"]}, {"name": "b", "runAfter": ["a"]}]}
    assert depth(plan({**run, "spec": {"pipelineSpec": cycle}})) == 1


def test_long_child_name_is_truncated_and_unique() -> None:
    names = {child_name("p" * 60, f"-task-{n}") for n in range(3)}
    assert len(names) == 3
    assert {len(name) for name in names} == {63}
