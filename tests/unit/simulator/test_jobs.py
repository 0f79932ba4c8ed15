"""Jobs, their pods, nodes, and namespaces."""

from typing import Any

import pytest

from services.simulator.cluster.api import DeleteOptions
from services.simulator.cluster.kinds.catalogue import JOBS, NAMESPACES, NODES, PODS
from services.simulator.cluster.kinds.registry import Obj
from tests.unit.simulator.builders import Cluster, in_cluster, job, verdict


def pods(cluster: Cluster) -> list[Obj]:
    return [stored.obj for stored in cluster.api.store.objects(PODS)]


def phases(cluster: Cluster) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in pods(cluster))


def test_job_runs_its_pods_until_completion() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(parallelism=2, completions=3))
        await cluster.after(5)
        status = cluster.job()["status"]
        assert (status["active"], status["ready"]) == (2, 2)
        assert status["startTime"]

        await cluster.after(10)
        status = cluster.job()["status"]
        assert (status["active"], status["succeeded"]) == (1, 2)

        await cluster.after(10)
        status = cluster.job()["status"]
        assert verdict(cluster.job(), "Complete") == ("True", "CompletionsReached")
        assert verdict(cluster.job(), "SuccessCriteriaMet") == ("True", "CompletionsReached")
        assert status["succeeded"] == 3
        assert "active" not in status
        assert status["completionTime"] == "2026-03-04T05:06:27Z"
        assert phases(cluster) == ["Succeeded"] * 3

    in_cluster(story)


def test_pod_that_succeeded_counts_also_when_it_is_gone() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(parallelism=1, completions=2))
        await cluster.after(15)
        [done] = [
            pod
            for pod in cluster.api.store.objects(PODS)
            if pod.obj["status"]["phase"] == "Succeeded"
        ]
        cluster.api.delete_now(done)
        await cluster.after(1)
        assert cluster.job()["status"]["succeeded"] == 1
        await cluster.after(10)
        assert verdict(cluster.job(), "Complete") == ("True", "CompletionsReached")

    in_cluster(story)


def test_pod_that_names_a_job_and_is_not_controlled_by_it_does_not_count() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job("other", seconds=5, completions=1))
        await cluster.create(JOBS, job(seconds=60, completions=1))
        await cluster.after(1)
        [others] = [pod for pod in cluster.api.store.objects(PODS) if "other" in pod.name]
        uid = cluster.job()["metadata"]["uid"]
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid}
        owners = [*others.obj["metadata"]["ownerReferences"], reference]
        patch = {"metadata": {"ownerReferences": owners}}
        await cluster.api.patch(PODS, "v1", "default", others.name, patch, "merge")
        await cluster.after(20)
        looked_at = {"metadata": {"labels": {"looked": "at"}}}
        await cluster.api.patch(JOBS, "v1", "default", "j", looked_at, "merge")
        await cluster.after(1)
        assert phases(cluster) == ["Running", "Succeeded"]
        assert verdict(cluster.job(), "Complete") == ("", "")

    in_cluster(story)


def test_pods_carry_their_jobs_labels_and_name_it_as_owner() -> None:
    async def story(cluster: Cluster) -> None:
        stored = await cluster.create(JOBS, job())
        await cluster.after(1)

        metadata = pods(cluster)[0]["metadata"]
        assert metadata["labels"]["batch.kubernetes.io/job-name"] == "j"
        assert metadata["labels"]["batch.kubernetes.io/controller-uid"] == stored.uid
        assert metadata["ownerReferences"][0]["uid"] == stored.uid
        assert pods(cluster)[0]["spec"]["nodeName"].startswith("node-")

    in_cluster(story)


def test_suspended_job_makes_no_pods_until_it_is_resumed() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(suspend=True))
        await cluster.after(100)
        assert verdict(cluster.job(), "Suspended") == ("True", "JobSuspended")
        assert "startTime" not in cluster.job()["status"]
        assert pods(cluster) == []

        await cluster.merge(JOBS, "j", {"spec": {"suspend": False}})
        await cluster.after(1)
        assert verdict(cluster.job(), "Suspended") == ("False", "JobResumed")
        assert cluster.job()["status"]["startTime"] == "2026-03-04T05:07:47Z"

        await cluster.after(10)
        assert verdict(cluster.job(), "Complete")[0] == "True"

    in_cluster(story)


def test_suspending_a_running_job_ends_its_pods_and_its_time_begins_anew() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(parallelism=2, completions=2))
        await cluster.after(4)
        await cluster.merge(JOBS, "j", {"spec": {"suspend": True}})
        await cluster.after(0.5)
        status = cluster.job()["status"]
        assert status["terminating"] == 2, "pods take a moment to end"
        assert "active" not in status

        await cluster.after(2)
        assert pods(cluster) == []
        status = cluster.job()["status"]
        assert status["terminating"] == 0
        assert "startTime" not in status

        await cluster.merge(JOBS, "j", {"spec": {"suspend": False}})
        await cluster.after(9)
        assert verdict(cluster.job(), "Complete")[0] == "", "nothing was kept of the first run"
        await cluster.after(2)
        assert verdict(cluster.job(), "Complete")[0] == "True"

    in_cluster(story)


def test_job_fails_when_its_pods_failed_too_often() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(seconds=1, fail=True, backoffLimit=2))
        await cluster.after(5)
        assert cluster.job()["status"]["failed"] == 1, "the second try waits ten seconds"
        await cluster.after(100)

        assert verdict(cluster.job(), "FailureTarget") == ("True", "BackoffLimitExceeded")
        assert verdict(cluster.job(), "Failed") == ("True", "BackoffLimitExceeded")
        assert cluster.job()["status"]["failed"] == 3

    in_cluster(story)


def test_job_fails_when_its_time_is_over() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(seconds=100, activeDeadlineSeconds=30))
        await cluster.after(30.5)
        assert verdict(cluster.job(), "FailureTarget") == ("True", "DeadlineExceeded")
        assert verdict(cluster.job(), "Failed") == ("", ""), "its pod has not ended yet"
        await cluster.after(3)

        assert verdict(cluster.job(), "Failed") == ("True", "DeadlineExceeded")
        assert pods(cluster) == []

    in_cluster(story)


def test_indexed_job_runs_each_index_once() -> None:
    async def story(cluster: Cluster) -> None:
        body = job(completionMode="Indexed", completions=3, parallelism=2)
        await cluster.create(JOBS, body)
        await cluster.after(25)

        key = "batch.kubernetes.io/job-completion-index"
        assert sorted(pod["metadata"]["annotations"][key] for pod in pods(cluster)) == list("012")
        assert cluster.job()["status"]["completedIndexes"] == "0,1,2"
        assert verdict(cluster.job(), "Complete")[0] == "True"

    in_cluster(story)


def test_parallelism_may_change_while_a_job_runs() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(seconds=100, parallelism=1, completions=5))
        await cluster.after(1)
        for parallelism in (3, 2):
            await cluster.merge(JOBS, "j", {"spec": {"parallelism": parallelism}})
            await cluster.after(5)
            assert cluster.job()["status"]["active"] == parallelism

    in_cluster(story)


def test_deleted_pod_is_replaced() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(seconds=50))
        await cluster.after(1)
        (first,) = cluster.api.store.objects(PODS)
        cluster.api.delete_now(first)
        await cluster.after(5)

        (second,) = cluster.api.store.objects(PODS)
        assert second.uid != first.uid
        assert cluster.job()["status"]["active"] == 1

    in_cluster(story)


def with_long_grace(**wishes: Any) -> Obj:
    """A Job that a finalizer keeps, with a pod that may work on for 90 seconds when it is to stop."""
    made = job(**wishes)
    made["metadata"]["finalizers"] = ["example.com/kept"]
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 90
    return made


async def delete_foreground(cluster: Cluster) -> None:
    await cluster.api.delete(JOBS, "default", "j", DeleteOptions(propagation="Foreground"))


def test_deleted_job_completes_if_its_pod_ends_well_in_its_grace_period() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, with_long_grace(seconds=50))
        await cluster.after(5)
        await delete_foreground(cluster)
        await cluster.after(40)
        assert phases(cluster) == ["Running"]
        await cluster.after(10)

        assert verdict(cluster.job(), "Complete") == ("True", "CompletionsReached")
        assert cluster.job()["metadata"]["finalizers"] == ["example.com/kept"]
        assert pods(cluster) == []

    in_cluster(story)


def test_deleted_job_whose_pod_does_not_end_in_its_grace_period_has_no_end() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, with_long_grace(seconds=200))
        await cluster.after(5)
        await delete_foreground(cluster)
        await cluster.after(80)
        assert phases(cluster) == ["Running"]
        await cluster.after(15)

        assert pods(cluster) == []
        assert "completionTime" not in cluster.job()["status"]

    in_cluster(story)


def test_deleted_job_makes_no_pod_anew() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, with_long_grace(seconds=50, fail=True))
        await cluster.after(5)
        await delete_foreground(cluster)
        await cluster.after(100)

        assert pods(cluster) == []

    in_cluster(story)


def test_finished_job_is_deleted_after_its_ttl() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(ttlSecondsAfterFinished=30))
        await cluster.after(39)
        assert cluster.api.store.count(JOBS) == 1
        await cluster.after(5)

        assert cluster.api.store.count(JOBS) == 0
        assert pods(cluster) == []

    in_cluster(story)


def test_job_managed_by_another_controller_is_ignored() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(JOBS, job(managedBy="kueue.x-k8s.io/multikueue"))
        await cluster.after(100)

        assert "status" not in cluster.job()
        assert pods(cluster) == []

    in_cluster(story)


def test_node_with_the_requested_labels_is_added() -> None:
    async def story(cluster: Cluster) -> None:
        body = job()
        body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "spot"}
        await cluster.create(JOBS, body)
        await cluster.after(1)

        name = pods(cluster)[0]["spec"]["nodeName"]
        node = cluster.api.get(NODES, "", name).obj
        assert node["metadata"]["labels"]["pool"] == "spot"

    in_cluster(story)


def test_pod_without_a_fitting_node_waits_with_a_condition() -> None:
    async def story(cluster: Cluster) -> None:
        for stored in cluster.api.store.objects(NODES):
            patch = {"spec": {"taints": [{"key": "no", "effect": "NoSchedule"}]}}
            await cluster.api.patch(NODES, "v1", "", stored.name, patch, "merge")
        await cluster.create(JOBS, job())
        tolerant = job("tolerant")
        tolerant["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
        await cluster.create(JOBS, tolerant)
        await cluster.after(5)

        found = {pod["metadata"]["name"].split("-")[0]: pod for pod in pods(cluster)}
        assert verdict(found["j"], "PodScheduled") == ("False", "Unschedulable")
        assert found["tolerant"]["status"]["phase"] == "Running"

    in_cluster(story)


def test_deleted_namespace_is_emptied_before_it_disappears() -> None:
    async def story(cluster: Cluster) -> None:
        space = await cluster.create(NAMESPACES, {"metadata": {"name": "team"}})
        body = job(seconds=100)
        body["metadata"]["namespace"] = "team"
        await cluster.api.create(JOBS, "v1", "team", body)
        await cluster.after(1)
        _, gone = await cluster.api.delete(NAMESPACES, "", "team", DeleteOptions())
        assert not gone
        assert cluster.api.get(NAMESPACES, "", "team").obj["status"]["phase"] == "Terminating"
        await cluster.after(5)

        assert cluster.api.store.get(NAMESPACES, "", "team") is None
        assert cluster.api.store.by_uid(space.uid) is None
        assert cluster.api.store.count(JOBS) == cluster.api.store.count(PODS) == 0

    in_cluster(story)


def test_one_malformed_object_does_not_stop_the_others() -> None:
    async def story(cluster: Cluster) -> None:
        bad = job("bad")
        bad["spec"]["template"]["spec"]["nodeSelector"] = ["x"]
        await cluster.create(JOBS, bad)
        await cluster.create(JOBS, job("good"))
        await cluster.after(15)

        assert verdict(cluster.job("good"), "Complete")[0] == "True"

    in_cluster(story)


def test_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[bytes]:
        lines: list[bytes] = []

        async def story(cluster: Cluster) -> None:
            cluster.api.store.subscribe(None, lambda event: lines.append(event.line(event.type)))
            for number in range(5):
                await cluster.create(JOBS, job(f"j{number}", seconds=None))
            await cluster.after(600)

        in_cluster(story, seed)
        return lines

    first = history(1)
    assert len(first) > 30
    assert first == history(1)
    assert first != history(2)


@pytest.mark.parametrize(("policy", "made"), [("TerminatingOrFailed", 4), ("Failed", 2)])
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_pods_are_replaced_as_the_policy_says(policy: str, made: int, mode: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked = job(parallelism=2, completions=2, podReplacementPolicy=policy, completionMode=mode)
        await cluster.create(JOBS, asked)
        await cluster.after(4)
        for pod in cluster.api.store.objects(PODS):
            cluster.api.delete_now(pod)
        await cluster.after(0.5)
        status = cluster.job()["status"]
        assert len(pods(cluster)) == made
        assert (status["terminating"], status.get("active", 0)) == (2, made - 2)
        await cluster.after(5)
        assert cluster.job()["status"]["active"] == 2

    in_cluster(story)
