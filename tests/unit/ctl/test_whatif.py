"""`sluice simulate` and `sluice plan` on folders of manifests."""

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from services.ctl.inspect.whatif import span_of
from services.quota.policy import policy_of
from services.whatif.policies import policies_of
from shared.settings.configuration import Configuration
from tests.unit.ctl.whatif_objects import CONFIGURATION_KINDS, GUESSED, Sluice, cluster_queue, job


def test_of_two_jobs_one_starts_and_one_waits(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    jobs = file("jobs.yaml", job("one", 3), job("two", 3))

    status, out, err = sluice("simulate", "--state", state, "-f", jobs)

    assert status == 0
    assert f"{GUESSED}: each is taken to run 5m.\n" in err
    assert "submitted Job team/one" in out
    assert "starts at once in ClusterQueue cq" in out
    assert "starts after 5m in ClusterQueue cq" in out
    assert "the last workload ends after 0s -> 10m" in out


def test_job_that_never_fits_is_reported_with_its_reason(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent

    _, out, _ = sluice("simulate", "--state", state, "-f", file("jobs.yaml", job("big", 5)))

    assert "does not start: " in out
    assert out.splitlines()[-2].split()[-1] == "1", "told under NEVER"


def test_change_is_read_from_standard_input(
    file: Any, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    monkeypatch.setattr("sys.stdin", StringIO(file("jobs.yaml", job("one", 1)).read_text()))

    _, out, _ = sluice("plan", "--state", state, "-f", "-")

    assert "submitted Job team/one" in out


def test_job_in_a_stopped_queue_is_reported_with_what_stops_it(file: Any, sluice: Sluice) -> None:
    stopped = cluster_queue(4, stopPolicy="Hold")
    state = file("state/q.yaml", *CONFIGURATION_KINDS, stopped).parent

    _, out, _ = sluice("simulate", "--state", state, "-f", file("jobs.yaml", job("one", 1)))

    assert "does not start: Suspended: ClusterQueue cq is inactive" in out


def test_more_quota_is_shown_before_and_after(file: Any, sluice: Sluice) -> None:
    state = file(
        "state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4), job("one", 3), job("two", 3)
    ).parent

    _, out, _ = sluice(
        "simulate", "--state", state, "-f", file("cq.yaml", cluster_queue(6)), "-ojson"
    )
    answer = json.loads(out)

    queue = "local/team/q"
    assert answer["changes"] == ["changed ClusterQueue cq"]
    assert answer["before"]["queues"][queue]["waitP95Seconds"] == 300
    assert answer["after"]["queues"][queue]["waitP95Seconds"] == 0
    assert (answer["before"]["makespanSeconds"], answer["after"]["makespanSeconds"]) == (600, 300)


def test_job_of_a_priority_class_from_a_manifest_goes_first(file: Any, sluice: Sluice) -> None:
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 100,
    }
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4), urgent).parent

    _, out, _ = sluice("simulate", "--state", state, "-f", file("j.yaml", job("one", 4, "urgent")))

    assert "team/job-one" in out
    assert "starts at once" in out


PLANS: dict[str, tuple[dict[str, Any], int, str]] = {
    "the same again changes nothing": (cluster_queue(4), 0, "plan: nothing changes at once"),
    "more quota admits who waits": (cluster_queue(6), 1, "+ admit"),
    "less quota admits nobody": (cluster_queue(2), 1, "- admit"),
    "a stopped queue admits nobody": (cluster_queue(4, stopPolicy="Hold"), 1, "- admit"),
    "nonsense is refused": (cluster_queue(4, queueingStrategy="Fast"), 255, "queueingStrategy"),
}


@pytest.mark.parametrize(("change", "status", "says"), PLANS.values(), ids=list(PLANS))
def test_exit_status_of_plan_says_whether_anything_changes(
    file: Any, sluice: Sluice, change: dict[str, Any], status: int, says: str
) -> None:
    state = file(
        "state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4), job("one", 3), job("two", 3)
    ).parent

    code, out, err = sluice("plan", "--state", state, "-f", file("cq.yaml", change))

    assert (code, says in out + err) == (status, True), out + err


def test_a_removed_queue_leaves_its_jobs_waiting(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4), job("one", 3)).parent

    status, out, _ = sluice("plan", "--state", state, "--remove", "clusterqueue/cq")

    assert status == 1
    assert "- admit" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--state", "nowhere", "--remove", "clusterqueue/cq"), "there is no such file"),
        (("--remove", "pod/x"), "is no KIND/NAME"),
        (("--remove", "clusterqueue/other"), "there is no such object"),
        (("--nonsense",), "No such option: --nonsense"),
        (("-f",), "requires an argument"),
    ],
)
def test_impossible_plan_is_an_error_and_no_difference(
    file: Any, sluice: Sluice, arguments: tuple[str, ...], says: str
) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    status, _, err = sluice("plan", "--state", state, *arguments)
    assert (status, says in err) == (255, True), err


def sharers() -> list[dict[str, Any]]:
    """Two queues without quota of their own that share 3 CPUs; one of them has three times the weight."""
    documents = [*CONFIGURATION_KINDS[:2], cluster_queue(3, cohortName="all")]
    for name, weight in (("a", 3), ("b", 1)):
        own = cluster_queue(0, cohortName="all", fairSharing={"weight": weight})
        own["metadata"] = {"name": name}
        local = {**CONFIGURATION_KINDS[2], "metadata": {"name": name, "namespace": "team"}}
        local["spec"] = {"clusterQueue": name}
        documents += [own, local]
    return documents


def test_simulation_uses_the_fair_sharing_of_the_configuration(
    file: Any, sluice: Sluice, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = file("state/q.yaml", *sharers()).parent
    jobs = [job(f"{queue}-{number}", 1) for number in range(2) for queue in "ba"]
    for each in jobs:
        metadata = each["metadata"]
        queue = metadata["labels"]["kueue.x-k8s.io/queue-name"] = metadata["name"][0]
        metadata["uid"] = f"{'ba'.index(queue)}-{metadata['name']}"  # Whose is less is the elder.
    asked = ("simulate", "--state", state, "-f", file("jobs.yaml", *jobs), "-ojson")
    fair = file("fair.yaml", {"kind": "Configuration", "fairSharing": {}})

    def waits(*arguments: str | Path) -> list[int]:
        queues = json.loads(sluice(*asked, *arguments)[1])["after"]["queues"]
        return [queues[f"local/team/{queue}"]["waitP95Seconds"] for queue in "ab"]

    assert waits() == [300, 0], "without fair sharing the elder ones go first"
    assert waits("--configuration", fair) == [0, 300], "two of three go to the one of weight 3"
    monkeypatch.setenv("SLUICE_CONFIGURATION", str(fair))
    assert waits() == [0, 300]


def test_simulation_counts_requests_as_configured(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    new = job("one", 3)
    [container] = new["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["example.com/licence"] = "1"
    asked = ("plan", "--state", state, "-f", file("job.yaml", new))
    excluded = {"resources": {"excludeResourcePrefixes": ["example.com"]}}

    _, out, _ = sluice(*asked)
    assert "+ admit" not in out, "no queue has a quota for licences"
    document = file("excluded.yaml", {"kind": "Configuration", **excluded})
    status, out, _ = sluice(*asked, "--configuration", document)
    assert (status, "+ admit" in out) == (1, True)


def test_unusable_configuration_fails_the_plan(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    document = file("c.yaml", {"kind": "Configuration", "fairShraing": {}})
    removed = ("--remove", "clusterqueue/cq")
    status, _, err = sluice("plan", "--state", state, "--configuration", document, *removed)
    assert (status, "fairShraing" in err) == (255, True), err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86400)])
def test_duration_of_log_option_is_parsed(text: str, seconds: int) -> None:
    assert span_of(text) == timedelta(seconds=seconds)


def test_defaults_are_those_of_a_configuration_that_says_nothing() -> None:
    assert policies_of(None).engine == policy_of(Configuration())
