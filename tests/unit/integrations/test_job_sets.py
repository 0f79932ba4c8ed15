"""JobSets count as Kueue counts them."""

from typing import Any

import jsonpatch
import pytest

from shared.contracts.kube.kinds import Object
from shared.integrations import JOB_SET, PodSetInfo


def replicated(name: str, replicas: int = 1, **job: Any) -> Object:
    template = {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}] * 50}]}}
    spec = {"template": template, **job}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job_set(*parts: Object, status: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": "x", "uid": "u-1"},
        "spec": {"replicatedJobs": list(parts), **spec},
        "status": status or {},
    }


def counted(**of: dict[str, int]) -> Object:
    return {"replicatedJobsStatus": [{"name": name, **counts} for name, counts in of.items()]}


COUNTS = {
    "one pod for each replica": (replicated("a", 3), 3),
    "its parallelism for each": (replicated("a", 3, parallelism=2), 6),
    "never more than completions": (replicated("a", 3, parallelism=4, completions=2), 6),
    "no pod with parallelism 0": (replicated("a", 0), 0),
}


@pytest.mark.parametrize(("part", "count"), COUNTS.values(), ids=COUNTS.keys())
def test_each_replicated_job_is_a_pod_set(part: Object, count: int) -> None:
    pod_sets = JOB_SET.pod_sets(job_set(part, replicated("b")))
    assert [(p["name"], p["count"]) for p in pod_sets] == [("a", count), ("b", 1)]
    assert pod_sets[0]["template"] == part["template"]["spec"]["template"]


PARTS = (replicated("a", 2, parallelism=2), replicated("b", 1))
READY = {
    "no status yet": ({}, False),
    "not while one is missing": (counted(a={"ready": 2}, b={"ready": 0}), False),
    "when all are": (counted(a={"ready": 2}, b={"ready": 1}), True),
    "also when some are done": (counted(a={"ready": 1, "succeeded": 1}, b={"succeeded": 1}), True),
}


@pytest.mark.parametrize(("status", "ready"), READY.values(), ids=READY.keys())
def test_job_set_is_ready_when_its_jobs_are(status: Object, ready: bool) -> None:
    assert JOB_SET.ready(job_set(*PARTS, status=status)) is ready


def test_pods_of_jobs_that_have_succeeded_are_given_back() -> None:
    status = counted(a={"succeeded": 1}, b={"succeeded": 0})
    assert JOB_SET.reclaimable(job_set(*PARTS, status=status)) == {"a": 2}
    assert JOB_SET.reclaimable(job_set(*PARTS)) == {}


def test_job_set_uses_quota_while_one_of_its_jobs_is_active() -> None:
    active = counted(a={"active": 0}, b={"active": 1})
    assert JOB_SET.active(job_set(*PARTS, suspend=True, status=active))
    assert not JOB_SET.active(job_set(*PARTS, status=counted(a={"active": 0})))


def test_each_template_gets_its_own_flavor_and_gives_it_back() -> None:
    held = job_set(*PARTS, suspend=True)
    infos = [
        PodSetInfo(name="a", count=4, node_selector={"pool": "spot"}, tolerations=()),
        PodSetInfo(name="b", count=1, node_selector={}, tolerations=({"key": "big"},)),
    ]
    released = jsonpatch.apply_patch(held, JOB_SET.release(held, infos))
    a, b = (
        part["template"]["spec"]["template"]["spec"] for part in released["spec"]["replicatedJobs"]
    )
    assert (a["nodeSelector"], "tolerations" in a) == ({"pool": "spot"}, False)
    assert ("nodeSelector" in b, b["tolerations"]) == (False, [{"key": "big"}])
    stop = JOB_SET.stop(released)
    assert stop is not None
    stopped = jsonpatch.apply_patch(released, stop)
    restore = JOB_SET.restore(stopped, JOB_SET.pod_sets(held))
    assert restore is not None
    assert jsonpatch.apply_patch(stopped, restore)["spec"] == held["spec"]
