"""`sluice simulate` and `sluice plan` on folders of manifests and on saved states."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.ctl.inspect.whatif import span_of
from services.ctl.main import main
from services.quota.forecast import FinishedRun, History, Snapshot
from services.whatif import bench
from services.whatif.expected_start import _add_expected_start
from services.whatif.reading import LoadedState, load
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import Finish, WorkloadState
from tests.simulation.futures import admission, observed, queue, set_up, workload

NOW = datetime(2026, 1, 5, tzinfo=UTC)
Sluice = Callable[..., tuple[int, str, str]]


def cluster_queue(cpu: int, **spec: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": cpu}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


def job(name: str, cpu: int, priority: str = "") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    if priority:
        labels["kueue.x-k8s.io/priority-class"] = priority
    container = {"name": "a", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


CONFIGURATION_KINDS = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "q", "namespace": "team"},
        "spec": {"clusterQueue": "cq"},
    },
]


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *objects: dict[str, Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump_all(objects))
        return path

    return write


@pytest.fixture
def sluice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sluice:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sluice", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


def test_two_jobs_of_which_one_fits_are_told_one_by_one(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    jobs = file("jobs.yaml", job("one", 3), job("two", 3))

    status, out, err = sluice("simulate", "--state", state, "-f", jobs)

    assert status == 0
    assert err == "No workload has ended that is known: each is taken to run 5m.\n"
    assert "submitted Job team/one" in out
    assert "starts at once in ClusterQueue cq" in out
    assert "starts after 5m in ClusterQueue cq" in out
    assert "the last workload ends after 0s -> 10m" in out


def test_a_job_that_never_fits_is_told_with_its_reason(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent

    _, out, _ = sluice("simulate", "--state", state, "-f", file("jobs.yaml", job("big", 5)))

    assert "does not start: " in out
    assert out.splitlines()[-2].split()[-1] == "1", "told under NEVER"


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


PLANS: dict[str, tuple[dict[str, Any], int, str]] = {
    "the same again changes nothing": (cluster_queue(4), 0, "plan: nothing changes at once"),
    "more quota admits who waits": (cluster_queue(6), 1, "+ admit"),
    "less quota admits nobody": (cluster_queue(2), 1, "- admit"),
    "a stopped queue admits nobody": (cluster_queue(4, stopPolicy="Hold"), 1, "- admit"),
    "nonsense is refused": (cluster_queue(4, queueingStrategy="Fast"), 255, "queueingStrategy"),
}


@pytest.mark.parametrize(("change", "status", "says"), PLANS.values(), ids=list(PLANS))
def test_a_plan_says_by_its_exit_status_whether(
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
        (("--state", "nowhere"), "is not what `sluice simulate --save` writes"),
        (("--remove", "pod/x"), "is no KIND/NAME"),
        (("--remove", "clusterqueue/other"), "there is no such object"),
        (("--nonsense",), "No such option: --nonsense"),
        (("-f",), "requires an argument"),
    ],
)
def test_what_cannot_be_planned_is_an_error_and_no_difference(
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


def test_shares_are_played_by_the_configuration_that_quota_runs_with(
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


def test_requests_of_new_jobs_count_as_it_is_configured(file: Any, sluice: Sluice) -> None:
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


def test_a_configuration_that_cannot_be_used_is_no_plan(file: Any, sluice: Sluice) -> None:
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    document = file("c.yaml", {"kind": "Configuration", "fairShraing": {}})
    status, _, err = sluice("plan", "--state", state, "--configuration", document)
    assert (status, "fairShraing" in err) == (255, True), err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86400)])
def test_a_span_is_read(text: str, seconds: int) -> None:
    assert span_of(text) == timedelta(seconds=seconds)


# From what the streams say -----------------------------------------------------------------------


def saved(path: Path, at: datetime, messages: list[tuple[str, Any]]) -> Path:
    """A file as `--save` writes it."""
    lines = [json.dumps({"at": at.isoformat()})]
    lines += [
        json.dumps({"subject": prefix + m.subject, "body": m.model_dump(mode="json")})
        for prefix, m in messages
    ]
    path.write_text("\n".join(lines))
    return path


def ended(state: WorkloadState, at: datetime) -> WorkloadState:
    return state.model_copy(update={"phase": "finished", "finish": Finish(success=True, at=at)})


def yesterday(path: Path, *, count: int, objects: list[Observed]) -> Path:
    """A log of jobs that came once a minute, asked for a quarter of the quota, and ran 5 minutes."""
    messages: list[tuple[str, Any]] = [("", each) for each in objects]
    for number in range(count):
        created = NOW - timedelta(minutes=count - number)
        state = workload(f"job-{number:05d}", created, cpu=4)
        end = created + timedelta(minutes=5)
        messages += [
            ("log.", admission(state, created)),
            ("log.", ended(state, end)),
        ]
    return saved(path, NOW, messages)


def test_yesterday_is_played_against_the_quota_of_tomorrow(tmp_path: Path, sluice: Sluice) -> None:
    state = yesterday(tmp_path / "state", count=60, objects=set_up("20"))
    change = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "main"},
        "spec": (queue("8").object or {})["spec"],
    }
    file = tmp_path / "less.yaml"
    file.write_text(json.dumps(change))

    _, out, err = sluice("simulate", "--state", state, "--log", "2h", "-f", file, "-ojson")
    answer = json.loads(out)

    assert err == "", "how long they ran is known"
    before, after = (answer[side]["queues"]["hub/team/queue"] for side in ("before", "after"))
    assert before == {
        "workloads": 60,
        "admitted": 60,
        "preemptions": 0,
        "waitP50Seconds": 0,
        "waitP95Seconds": 0,
        "never": 0,
    }
    # Two at a time instead of five: a job every 150 s is started, and one a minute comes.
    assert after["waitP95Seconds"] == pytest.approx(57 * 90, rel=0.05)


# A spoke that is lost --------------------------------------------------------------------------------


def elsewhere(each: Observed, cluster: str) -> Observed:
    return each.model_copy(update={"cluster": cluster})


def sent_to_spokes() -> list[tuple[str, Any]]:
    """Two spokes of 8 CPUs below a queue of 16: three runs of 4 CPUs on `east`, which take 10 minutes."""
    parameters = {"kind": "MultiKueueConfig", "name": "all"}
    check: dict[str, object] = {
        "controllerName": "kueue.x-k8s.io/multikueue",
        "parameters": parameters,
    }
    strategy = {"admissionChecks": [{"name": "elsewhere"}]}
    objects = [
        observed(kinds.ADMISSION_CHECK, "elsewhere", check),
        observed(kinds.MULTIKUEUE_CONFIG, "all", {"clusters": ["west", "east"]}),
        *(observed(kinds.MULTIKUEUE_CLUSTER, name, {}) for name in ("west", "east")),
        *set_up("16", admissionChecksStrategy=strategy),
        *(elsewhere(each, spoke) for spoke in ("west", "east") for each in set_up("8")),
    ]
    messages: list[tuple[str, Any]] = [("", each) for each in objects]
    before = NOW - timedelta(hours=1)
    for number in range(5):
        old = workload(f"old-{number}", before)
        messages += [("log.", admission(old, before)), ("log.", ended(old, before + MINUTES_10))]
    for name, spoke in (("a", "west"), ("b", "east"), ("c", "east")):
        state = workload(name, NOW, cpu=4)
        chosen = {"spoke": spoke, "checks": ["elsewhere"]}
        messages += [("", state), ("", admission(state, NOW).model_copy(update=chosen))]
        copy = elsewhere_workload(state, spoke)
        messages += [("", copy), ("", admission(state, NOW).model_copy(update={"cluster": spoke}))]
    return messages


def elsewhere_workload(state: WorkloadState, cluster: str) -> WorkloadState:
    return state.model_copy(update={"cluster": cluster})


MINUTES_10 = timedelta(minutes=10)


def test_what_a_lost_spoke_ran_waits_for_room_on_the_others(tmp_path: Path, sluice: Sluice) -> None:
    state = saved(tmp_path / "state", NOW, sent_to_spokes())

    status, out, err = sluice("simulate", "--state", state, "--lost-spoke", "east", "-ojson")
    assert status == 0, err
    answer = json.loads(out)

    assert answer["changes"] == [
        "lost spoke east: 2 workloads start again",
        "ClusterQueue main: cpu 16 -> 8, which is what its spokes have",
    ]
    assert (answer["before"]["makespanSeconds"], answer["after"]["makespanSeconds"]) == (600, 1200)
    hub = answer["after"]["queues"]["hub/team/queue"]
    # One fits beside what `west` runs already; the other waits until both of them end.
    assert (hub["workloads"], hub["waitP50Seconds"], hub["waitP95Seconds"]) == (2, 600, 600)
    assert "east/team/queue" not in answer["after"]["queues"]


def test_yesterday_is_played_without_a_spoke(tmp_path: Path, sluice: Sluice) -> None:
    submitted = [
        ("log.", elsewhere_workload(workload(f"w-{number}", NOW - MINUTES_10, cpu=4), cluster))
        for number in range(4)
        for cluster in ("hub", "east")
    ]
    state = saved(tmp_path / "state", NOW, [*sent_to_spokes(), *submitted])

    _, out, _ = sluice(
        "simulate", "--state", state, "--log", "15m", "--lost-spoke", "east", "-ojson"
    )
    before, after = (json.loads(out)[side]["queues"] for side in ("before", "after"))

    assert (before["hub/team/queue"]["waitP95Seconds"], before["east/team/queue"]["admitted"]) == (
        0,
        4,
    )
    assert (after["hub/team/queue"]["waitP95Seconds"], "east/team/queue" in after) == (600, False)


def test_a_spoke_that_nobody_names_is_refused(tmp_path: Path, sluice: Sluice) -> None:
    state = saved(tmp_path / "state", NOW, sent_to_spokes())
    status, _, err = sluice("simulate", "--state", state, "--lost-spoke", "esat")
    assert status == 2
    assert "--lost-spoke esat: there is no such MultiKueueCluster\n  there are east, west" in err


def test_the_bench_plays_a_day_of_its_own_and_says_what_that_took(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert bench.main(["--workloads", "1500"]) == 0
    out, err = capfd.readouterr()
    _, row, _, last = out.splitlines()[-4:]
    assert row.split()[:3] == ["hub/team/queue", "1500", "1500"]
    assert "->" in row, "with less quota they wait longer"
    assert re.fullmatch(r"what if: 1500 in [\d.]+ s, [\d.]+ s of CPU, \d+ MiB", last)
    assert err == "", "how long they ran is known"


def test_what_was_saved_says_the_same_again(tmp_path: Path) -> None:
    loaded = load(yesterday(tmp_path / "state", count=10, objects=set_up("20")))
    assert len(loaded.recent(timedelta(hours=1))) == 10
    assert set(loaded.seconds.values()) == {300.0}


def test_what_was_read_is_saved_and_read_again(tmp_path: Path, sluice: Sluice) -> None:
    state = yesterday(tmp_path / "state", count=10, objects=set_up("20"))
    status, _, _ = sluice("simulate", "--state", state, "--save", tmp_path / "again")
    assert status == 0
    assert (tmp_path / "again").read_text().strip() == state.read_text()


@pytest.mark.parametrize("prefix", ["", "log."])
def test_a_message_that_was_damaged_is_named(tmp_path: Path, sluice: Sluice, prefix: str) -> None:
    state = yesterday(tmp_path / "state", count=1, objects=set_up("20"))
    subject = f"{prefix}sluice.admission.hub.team.x"
    damaged = json.dumps({"subject": subject, "body": {"state": "odd"}})
    state.write_text(f"{state.read_text()}\n{damaged}")
    status, _, err = sluice("simulate", "--state", state)
    assert (status, err.startswith(f"sluice: {subject}: cluster: Field required")) == (2, True), err


def test_an_explanation_is_given_the_start_that_is_expected() -> None:
    running, waiting = workload("one", NOW, cpu=10), workload("two", NOW, cpu=10)
    history = History()
    for _ in range(20):
        history.add(FinishedRun(state=running, seconds=600.0))
    snapshot = Snapshot(
        at=NOW + timedelta(minutes=4), observed={o.subject: o for o in set_up("14")}
    )
    for state in (running, waiting):
        snapshot.workloads["hub", f"team/{state.name}"] = state
    snapshot.admissions["hub", f"team/{running.name}"] = admission(running, NOW)
    item = {"cluster": "hub", "namespace": "team", "name": waiting.name}

    _add_expected_start(LoadedState(snapshot=snapshot, history=history), item)

    assert item["expected_start"] == (NOW + timedelta(minutes=10)).isoformat()
    assert item["expected_earliest"] == item["expected_latest"] == item["expected_start"]


def test_without_a_past_nobody_can_say() -> None:
    snapshot = Snapshot(at=NOW, observed={o.subject: o for o in set_up("14")})
    state = workload("one", NOW)
    snapshot.workloads["hub", f"team/{state.name}"] = state
    item = {"cluster": "hub", "namespace": "team", "name": state.name}

    _add_expected_start(LoadedState(snapshot=snapshot), item)

    assert item["expected_start_unknown_because"] == "no workload has ended in the last day"
