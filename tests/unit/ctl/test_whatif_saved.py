"""`sluice simulate` and `sluice plan` on saved states, replayed days and lost spokes."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.ctl.bench import whatif as bench
from services.whatif.reading import load
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import Finish, WorkloadState
from shared.testing.builders import observed
from tests.simulation.forecasts.futures import admitted, queue, set_up, waiting
from tests.unit.ctl.whatif_objects import GUESSED, NOW, Sluice


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
        state = waiting(f"job-{number:05d}", created, cpu=4)
        end = created + timedelta(minutes=5)
        messages += [
            ("log.", admitted(state, created)),
            ("log.", ended(state, end)),
        ]
    return saved(path, NOW, messages)


def test_replayed_day_meets_the_changed_quota(tmp_path: Path, sluice: Sluice) -> None:
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

    assert GUESSED not in err
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
        old = waiting(f"old-{number}", before)
        messages += [("log.", admitted(old, before)), ("log.", ended(old, before + MINUTES_10))]
    for name, spoke in (("a", "west"), ("b", "east"), ("c", "east")):
        state = waiting(name, NOW, cpu=4)
        chosen = {"spoke": spoke, "checks": ["elsewhere"]}
        messages += [("", state), ("", admitted(state, NOW).model_copy(update=chosen))]
        copy = elsewhere_workload(state, spoke)
        messages += [("", copy), ("", admitted(state, NOW).model_copy(update={"cluster": spoke}))]
    return messages


def elsewhere_workload(state: WorkloadState, cluster: str) -> WorkloadState:
    return state.model_copy(update={"cluster": cluster})


MINUTES_10 = timedelta(minutes=10)


def test_workloads_of_a_lost_spoke_wait_for_quota_on_others(tmp_path: Path, sluice: Sluice) -> None:
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


def test_replayed_day_runs_without_the_lost_spoke(tmp_path: Path, sluice: Sluice) -> None:
    submitted = [
        ("log.", elsewhere_workload(waiting(f"w-{number}", NOW - MINUTES_10, cpu=4), cluster))
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


def test_unknown_spoke_is_refused(tmp_path: Path, sluice: Sluice) -> None:
    state = saved(tmp_path / "state", NOW, sent_to_spokes())
    status, _, err = sluice("simulate", "--state", state, "--lost-spoke", "esat")
    assert status == 2
    assert "--lost-spoke esat: there is no such MultiKueueCluster\n  there are east, west" in err


def test_bench_simulates_a_generated_day_and_reports_costs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert bench.main(["--workloads", "1500"]) == 0
    out, err = capfd.readouterr()
    _, row, _, last = out.splitlines()[-4:]
    assert row.split()[:3] == ["hub/team/queue", "1500", "1500"]
    assert "->" in row, "with less quota they wait longer"
    assert re.fullmatch(r"what if: 1500 in [\d.]+ s, [\d.]+ s of CPU, \d+ MiB", last)
    assert GUESSED not in err


def test_saved_state_gives_the_same_report(tmp_path: Path) -> None:
    loaded = load(yesterday(tmp_path / "state", count=10, objects=set_up("20")))
    assert len(loaded.recent(timedelta(hours=1))) == 10
    assert set(loaded.seconds.values()) == {300.0}


def test_state_read_from_streams_can_be_saved_and_loaded(tmp_path: Path, sluice: Sluice) -> None:
    state = yesterday(tmp_path / "state", count=10, objects=set_up("20"))
    status, _, _ = sluice("simulate", "--state", state, "--save", tmp_path / "again")
    assert status == 0
    assert (tmp_path / "again").read_text().strip() == state.read_text()


@pytest.mark.parametrize("prefix", ["", "log."])
def test_damaged_message_is_named_by_its_subject(
    tmp_path: Path, sluice: Sluice, prefix: str
) -> None:
    state = yesterday(tmp_path / "state", count=1, objects=set_up("20"))
    subject = f"{prefix}sluice.admission.hub.team.x"
    damaged = json.dumps({"subject": subject, "body": {"state": "odd"}})
    state.write_text(f"{state.read_text()}\n{damaged}")
    status, _, err = sluice("simulate", "--state", state)
    assert status == 2
    assert f"sluice: {subject}: cluster: Field required" in err
