"""The coscheduling mode of a new object: checked, counted, and shown to Tekton."""

from typing import Any

import pytest

from services.classifier.cel import CelEngine
from services.classifier.rules import parse_rules
from services.classifier.webhook.mutation import MutationResult, RefusedError, mutate
from shared.contracts import coscheduling
from shared.contracts.coscheduling import (
    AFFINITY_ANNOTATION,
    PLACEHOLDERS_ANNOTATION,
    placeholder_name,
)
from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object

RULES = "queueName: pipelines-queue\n"
SETS_MODE = (
    RULES
    + """
cel:
  expressions:
    - 'annotation("sluicegate.dev/coschedule", "isolate-pipelinerun")'
"""
)
SLOTS = coscheduling.NODE_SLOTS_ANNOTATION


def mutated(given: Object, rules: str = RULES) -> MutationResult:
    return mutate(given, parse_rules(rules, CelEngine()), namespace="team-a")


def run(
    mode: Any = None,
    tasks: dict[str, list[str]] | None = None,
    told: dict[str, str] | None = None,
) -> Object:
    told = dict(told or {}) | ({} if mode is None else {names.COSCHEDULE: mode})
    used = sorted({one for ones in (tasks or {}).values() for one in ones})
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "r", "namespace": "team-a", "annotations": told},
        "spec": {
            "pipelineSpec": {
                "tasks": [
                    {
                        "name": task,
                        "taskSpec": {"steps": [{"name": "s", "image": "i"}]},
                        "workspaces": [{"name": "mine", "workspace": one} for one in ones],
                    }
                    for task, ones in (tasks or {"a": []}).items()
                ]
            },
            "workspaces": [
                {"name": one, "volumeClaimTemplate": {"spec": {}}}
                if one.startswith("t")
                else {"name": one, "persistentVolumeClaim": {"claimName": one.rstrip("'")}}
                for one in used
            ],
        },
    }


def annotations_of(made: MutationResult) -> dict[str, str]:
    found: dict[str, str] = made.object["metadata"]["annotations"]
    return found


@pytest.mark.parametrize("mode", [None, *coscheduling.MODES])
def test_only_isolated_run_requests_a_node_slot(mode: str | None) -> None:
    asked = annotations_of(mutated(run(mode))).get(SLOTS)
    assert asked == ("1" if mode == "isolate-pipelinerun" else None)


def test_isolated_run_requests_one_node_slot_whatever_its_author_wrote() -> None:
    assert annotations_of(mutated(run("isolate-pipelinerun", told={SLOTS: "0"})))[SLOTS] == "1"


def test_second_mutation_changes_nothing() -> None:
    once = mutated(run("isolate-pipelinerun"))
    assert mutated(once.object).patch == ()


def test_mode_set_by_rules_counts_like_the_authors() -> None:
    assert annotations_of(mutated(run(), SETS_MODE))[SLOTS] == "1"


@pytest.mark.parametrize("mode", ["", "isolate-pipelineruns", "PipelineRuns", "true"])
def test_unknown_mode_is_refused_naming_annotation_value_and_modes(mode: str) -> None:
    with pytest.raises(RefusedError) as refused:
        mutated(run(mode))
    assert refused.value.code == 400
    assert str(refused.value) == (
        f"annotation sluicegate.dev/coschedule: {mode!r} is not one of disabled, workspaces, "
        "pipelineruns, isolate-pipelinerun"
    )


def test_coscheduled_job_is_refused() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "labels": {names.QUEUE: "q"},
            "annotations": {names.COSCHEDULE: "pipelineruns"},
        },
        "spec": {"template": {"spec": {}}},
    }
    with pytest.raises(RefusedError, match="only PipelineRuns can be coscheduled"):
        mutated(job)


TASKS = {
    "one claim": ({"a": ["t1"], "b": ["t2"]}, None),
    "one claim twice": ({"a": ["p", "p'"]}, None),
    "two templates": ({"a": [], "b": ["t1", "t2"]}, "'b'"),
    "a template and a claim": ({"a": ["t1", "p"]}, "'a'"),
}


@pytest.mark.parametrize("case", TASKS.values(), ids=TASKS.keys())
def test_task_with_two_claims_is_refused_in_mode_workspaces(
    case: tuple[dict[str, list[str]], str | None],
) -> None:
    tasks, refused = case
    mutated(run("pipelineruns", tasks))
    if refused is None:
        mutated(run("workspaces", tasks))
        return
    with pytest.raises(RefusedError, match=f"more than one .* is bound to task {refused}"):
        mutated(run("workspaces", tasks))


def test_copied_run_loses_placeholder_annotations_of_the_original() -> None:
    stale = {AFFINITY_ANNOTATION: placeholder_name("u-1"), PLACEHOLDERS_ANNOTATION: "by-claim"}
    kept = {AFFINITY_ANNOTATION: "affinity-assistant-1234567890"}
    assert not stale.keys() & annotations_of(mutated(run(told=stale))).keys()
    assert kept.items() <= annotations_of(mutated(run(told=kept))).items()


# --- TaskRuns --------------------------------------------------------------------------------------


def task_run(*claims: str, placed: bool = True, owner: str = "PipelineRun") -> Object:
    annotations = {names.COSCHEDULE: "workspaces"}
    if placed:
        annotations[PLACEHOLDERS_ANNOTATION] = "by-claim"
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "TaskRun",
        "metadata": {
            "name": "t",
            "annotations": annotations,
            "ownerReferences": [{"kind": owner, "name": "r", "uid": "u-1", "controller": True}],
        },
        "spec": {
            "workspaces": [
                {"name": f"w{n}", "persistentVolumeClaim": {"claimName": claim}}
                for n, claim in enumerate(claims)
            ]
        },
    }


LED = {
    "a task follows the placeholder of its claim": (task_run("c"), placeholder_name("u-1", "c")),
    "one claim bound twice is one claim": (task_run("c", "c"), placeholder_name("u-1", "c")),
    "a task without a claim goes anywhere": (task_run(), None),
    "without placeholders there is nothing to follow": (task_run("c", placed=False), None),
    "a TaskRun that stands alone follows nobody": (task_run("c", owner="CustomRun"), None),
}


@pytest.mark.parametrize("case", LED.values(), ids=LED.keys())
def test_task_run_affinity_follows_its_claim(case: tuple[Object, str | None]) -> None:
    given, placeholder = case
    made = mutated(given)
    assert annotations_of(made).get(AFFINITY_ANNOTATION) == placeholder
    assert [step["value"] for step in made.patch] == ([] if placeholder is None else [placeholder])


def test_task_run_with_two_claims_is_refused_in_tektons_words() -> None:
    with pytest.raises(RefusedError, match="more than one PersistentVolumeClaim is bound: c, d"):
        mutated(task_run("c", "d"))
