"""The documents of Job and PipelineRun say of any object what plain functions say of it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.contracts.kube.kinds import Object
from shared.integrations import JOB, PIPELINE_RUN, Integration, PodSetInfo
from tests.unit.integrations import functions

SMALL = st.integers(0, 5)
TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"])
MAPS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
TOLERATIONS = st.lists(st.sampled_from([{"key": "a"}, {"key": "b"}]), max_size=2)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """Objects of which each field may be missing, or null."""
    maybe = {name: st.none() | values for name, values in fields.items()}
    return st.fixed_dictionaries({}, optional=maybe)


def conditions(*types: str) -> st.SearchStrategy[list[Object]]:
    return st.lists(
        st.fixed_dictionaries(
            {
                "type": st.sampled_from(types),
                "status": st.sampled_from(["True", "False", "Unknown"]),
                "reason": st.sampled_from(["", "R"]),
            },
            optional={"message": st.sampled_from(["", "m"]), "lastTransitionTime": TIMES},
        ),
        max_size=2,
        unique_by=lambda condition: condition["type"],
    )


SERVERS = (
    *("controller-uid", "job-name"),
    *("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
)
LABELS = st.dictionaries(st.sampled_from(["a", *SERVERS]), st.sampled_from(["v", "u-1", "x"]))
TEMPLATES = st.fixed_dictionaries(
    {"spec": some(nodeSelector=MAPS, tolerations=TOLERATIONS)},
    optional={"metadata": st.fixed_dictionaries({}, optional={"labels": LABELS})},
)


def objects(
    spec: st.SearchStrategy[Object],
    status: st.SearchStrategy[Object],
    annotations: st.SearchStrategy[Object],
) -> st.SearchStrategy[Object]:
    metadata = st.fixed_dictionaries(
        {"name": st.just("x"), "uid": st.just("u-1")}, optional={"annotations": annotations}
    )
    return st.fixed_dictionaries({"metadata": metadata, "spec": spec}, optional={"status": status})


JOBS = objects(
    st.builds(
        lambda fields, template: {**fields, "template": template},
        some(
            suspend=st.booleans(),
            parallelism=SMALL,
            completions=SMALL,
            completionMode=st.sampled_from(["Indexed", "NonIndexed"]),
            managedBy=st.just("x"),
            manualSelector=st.booleans(),
            selector=st.just({"matchLabels": {}}),
        ),
        TEMPLATES,
    ),
    some(
        active=SMALL,
        terminating=SMALL,
        ready=SMALL,
        succeeded=SMALL,
        completedIndexes=st.sampled_from(["", "0", "0,2", "1-3", "0,4-7"]),
        failedIndexes=st.sampled_from(["", "1", "3-5", "8-9"]),
        conditions=conditions("Complete", "Failed", "Suspended"),
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "kueue.x-k8s.io/job-min-parallelism": st.sampled_from("123"),
            "kueue.x-k8s.io/job-completions-equal-parallelism": st.sampled_from(["true", "false"]),
        },
    ),
)
RUNS = objects(
    some(status=st.sampled_from(["", "PipelineRunPending", "Cancelled"]), managedBy=st.just("x")),
    some(startTime=TIMES, completionTime=TIMES, conditions=conditions("Succeeded", "Other")),
    st.dictionaries(
        st.sampled_from(
            ["a", "kueue.konflux-ci.dev/requests-b", "kueue.konflux-ci.dev/requests-c"]
        ),
        st.sampled_from("12"),
    ),
)
INFOS = st.builds(
    PodSetInfo,
    name=st.sampled_from(["main", "other"]),
    count=SMALL,
    node_selector=MAPS,
    tolerations=TOLERATIONS.map(tuple),
)


@pytest.mark.parametrize(
    ("integration", "plain", "kind"),
    [(JOB, functions.JOB, JOBS), (PIPELINE_RUN, functions.PIPELINE_RUN, RUNS)],
    ids=["Job", "PipelineRun"],
)
@settings(deadline=None)
@given(data=st.data())
def test_document_behaves_like_the_reference_functions(
    integration: Integration,
    plain: functions.Functions,
    kind: st.SearchStrategy[Object],
    data: st.DataObject,
) -> None:
    obj = data.draw(kind)
    for ask in ("held", "active", "ready", "finish", "pod_sets", "reclaimable", "hold", "stop"):
        assert getattr(integration, ask)(obj) == getattr(plain, ask)(obj), ask
    assert integration.carry(obj) == plain.carry(obj)
    infos = tuple(data.draw(st.lists(INFOS, max_size=1)))
    assert integration.release(obj, infos) == plain.release(obj, infos)
    before = integration.pod_sets(data.draw(kind))
    expected = None if plain.restore is None else plain.restore(obj, before)
    assert integration.restore(obj, before) == expected


INDEXES = {
    "one completed, one failed for good": (
        3,
        3,
        {"completedIndexes": "0", "failedIndexes": "1"},
        2,
    ),
    "all but one failed for good": (3, 3, {"failedIndexes": "0,2"}, 2),
    "a failed pod that is tried again": (3, 3, {"failed": 1, "active": 2}, 0),
    "enough are left for all pods": (3, 9, {"completedIndexes": "0-4", "failedIndexes": "5"}, 0),
    "one pod fewer than run is left": (
        3,
        9,
        {"completedIndexes": "0-4", "failedIndexes": "5-6"},
        1,
    ),
    "indexes that a smaller Job has no more": (3, 3, {"completedIndexes": "0,3-9"}, 1),
    "indexes that come twice": (3, 3, {"completedIndexes": "0-1,1,0"}, 2),
}


@pytest.mark.parametrize(
    ("pods", "completions", "status", "done"), INDEXES.values(), ids=INDEXES.keys()
)
def test_quota_of_indexes_that_run_no_more_goes_back(
    pods: int, completions: int, status: Object, done: int
) -> None:
    spec = {"completionMode": "Indexed", "parallelism": pods, "completions": completions}
    job = {"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": status}
    assert JOB.reclaimable(job) == ({"main": done} if done else {})


@pytest.mark.parametrize(
    ("pods", "completions", "succeeded", "done"),
    [(3, 2, 0, 0), (3, 2, 1, 1), (3, 2, 2, 2), (150, 100, 50, 50), (3, 4, 1, 0), (3, 4, 2, 1)],
)
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_what_is_left_of_a_job_keeps_its_quota(
    mode: str, pods: int, completions: int, succeeded: int, done: int
) -> None:
    """No more pods are counted than there are completions: what is done is taken from those."""
    spec = {"completionMode": mode, "parallelism": pods, "completions": completions}
    indexes = f"0-{succeeded - 1}" if succeeded else ""
    status = {"succeeded": succeeded, "completedIndexes": indexes}
    job = {"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": status}
    [pod_set] = JOB.pod_sets({**job, "spec": {**spec, "template": {"spec": {}}}})
    left = min(pods, completions - succeeded)
    assert JOB.reclaimable(job).get("main", 0) == done == pod_set["count"] - left


def test_text_that_lists_no_indexes_keeps_a_job_waiting_with_the_reason() -> None:
    spec = {"completionMode": "Indexed", "parallelism": 3, "completions": 3}
    job = {"metadata": {"name": "j"}, "spec": spec, "status": {"failedIndexes": "1,x"}}
    [problem] = JOB.problems(job)
    assert problem.startswith("Integration jobs.batch: spec.podSets[0].reclaimable: ")
