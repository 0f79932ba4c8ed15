"""A platform that nobody has keeps a run out with a reason; the end of a machine frees its slot."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from services.classifier.projection.projector import Projector
from shared.contracts.kube.kinds import PIPELINE_RUN
from shared.contracts.kube.names import REQUESTS_PREFIX, workload_name
from shared.contracts.messages.hosts import HostState, PlatformOffer
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.workloads import WorkloadState

Json = dict[str, Any]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME = workload_name(kind="PipelineRun", group="tekton.dev", name="build", uid="u-1")
OFFER = PlatformOffer(
    cluster="hub",
    platforms={"linux/arm64": "linux-arm64", "linux/x86_64": "linux-x86-64"},
    problems={"linux/s390x": "dynamic.linux-s390x.type: required"},
    at=NOON,
)


def build(*platforms: str, requests: dict[str, str] | None = None, version: int = 1) -> Observed:
    """A PipelineRun as the webhook leaves it: each platform is asked for as a resource."""
    asked = {p.replace("/", "-").replace("_", "-"): "1" for p in platforms}
    run: Json = {
        "apiVersion": PIPELINE_RUN.api_version,
        "kind": PIPELINE_RUN.kind,
        "metadata": {
            "name": "build",
            "namespace": "team",
            "uid": "u-1",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": {
                f"{REQUESTS_PREFIX}{name}": count
                for name, count in (asked if requests is None else requests).items()
            },
        },
        "spec": {
            "status": "PipelineRunPending",
            "params": [{"name": "build-platforms", "value": list(platforms)}],
        },
    }
    return Observed(
        cluster="hub", group="tekton.dev", version="v1", plural="pipelineruns", kind="PipelineRun",
        namespace="team", name="build", uid="u-1", resource_version=str(version), object=run,
    )  # fmt: skip


def released(uid: str = "t-1", **parts: Any) -> HostState:
    said = {
        "cluster": "hub", "namespace": "team", "name": f"build-{uid}", "uid": uid, "platform": "linux/arm64",
        "state": "released", "workload": NAME, "slots": {"linux-arm64": "1"}, "at": NOON,
    }  # fmt: skip
    return HostState(**{**said, **parts})


def states(
    projector: Projector, *said: Observed | HostState | PlatformOffer
) -> list[WorkloadState]:
    for one in said:
        if isinstance(one, Observed):
            projector.observe(one)
        else:
            projector.observe_machines(one)
    return [change.state for change in projector.changes()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    run: Observed
    offer: PlatformOffer = OFFER
    told: str | None = None


CASES = [
    Case(name="a platform that there is passes", run=build("linux/arm64", "linux/x86_64")),
    Case(
        name="one that nobody knows is refused by its name",
        run=build("linux/arm64", "linux/riscv64"),
        told="platform linux/riscv64 cannot be had: no hosts configured for linux/riscv64",
    ),
    Case(
        name="one that is configured wrongly is refused with the mistake",
        run=build("linux/s390x"),
        told="platform linux/s390x cannot be had: dynamic.linux-s390x.type: required",
    ),
    Case(
        name="a parameter alone is no build: the rules ask for no slot",
        run=build("linux/riscv64", requests={"tekton.dev/pipelineruns": "1"}),
    ),
    Case(
        name="a resource alone is no platform: nothing in the run names one",
        run=build("linux/arm64", requests={"linux-licenses": "1"}),
    ),
    Case(
        name="without a host configuration nothing is refused",
        run=build("linux/riscv64"),
        offer=PlatformOffer(cluster="hub", configured=False, at=NOON),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_run_is_admissible_only_on_offered_platforms(case: Case) -> None:
    (state,) = states(Projector("hub"), case.offer, case.run)
    assert state.inadmissible == case.told


def test_blocked_run_becomes_admissible_when_platform_appears() -> None:
    projector = Projector("hub")
    (refused,) = states(projector, OFFER, build("linux/riscv64"))
    more = {**OFFER.platforms, "linux/riscv64": "linux-riscv64"}
    (state,) = states(projector, OFFER.model_copy(update={"platforms": more}))
    assert (bool(refused.inadmissible), state.inadmissible) == (True, None)
    assert state.generation == refused.generation + 1, "quota is to look at it again"


def test_repeated_offer_changes_nothing() -> None:
    projector = Projector("hub")
    assert len(states(projector, OFFER, build("linux/riscv64"))) == 1
    assert states(projector, OFFER.model_copy(update={"at": datetime.now(UTC)})) == []


def test_running_run_is_not_blocked_by_missing_platform() -> None:
    running = build("linux/riscv64", version=2)
    assert running.object is not None
    del running.object["spec"]["status"]
    running.object["status"] = {"startTime": "2026-01-01T12:00:01Z"}
    (state,) = states(Projector("hub"), OFFER, running)
    assert (state.phase, state.inadmissible) == ("running", None)


def test_released_machine_returns_its_slot() -> None:
    projector = Projector("hub")
    states(projector, build("linux/arm64", "linux/x86_64"))
    (state,) = states(projector, released())
    assert state.pod_sets[0].returned == {"linux-arm64": "1"}


def test_returned_slots_never_exceed_requests() -> None:
    (state,) = states(Projector("hub"), build("linux/arm64"), released("t-1"), released("t-2"))
    assert state.pod_sets[0].returned == {"linux-arm64": "1"}


@pytest.mark.parametrize(
    "said",
    [released(state="ready"), released(workload="pipelinerun-other-12345"), released(slots={})],
    ids=["a machine that is still there", "another run's machine", "one that stands for no slot"],
)
def test_no_slot_is_returned(said: HostState) -> None:
    (state,) = states(Projector("hub"), build("linux/arm64"), said)
    assert state.pod_sets[0].returned == {}


def test_returned_slots_stay_after_the_machine_message_is_gone() -> None:
    projector = Projector("hub")
    states(projector, build("linux/arm64"))
    (before,) = states(projector, released())
    fresh = Projector("hub")
    fresh.restore(before)
    assert states(fresh, build("linux/arm64")) == []
