"""Whatever amounts come in, the next leader reads what this one wrote; a bad entry harms only itself."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.classifier.projection.pods.requests import RequestsError, resolve_pod_sets
from services.quota.audit.auditor import Auditor
from services.quota.audit.contradictions import OpenContradictions
from services.quota.decider import Decider
from services.quota.wire import inbound, outbound
from services.quota.wire.workloads import workload_changed
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.quantities import amount
from shared.contracts.messages.admissions import HOLDING, Admission, PodSetAssignment
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import Finish, PodSet, WorkloadState
from shared.testing.builders import observed, workload
from tests.unit.quota.service_setup import NOON, SETTINGS, Setup, became

AMOUNTS = st.one_of(
    st.sampled_from(["7E", "9E", "12E", "-1", "0", "1.5", "0.0001", "1n", "9223372036854775807"]),
    st.integers(-(10**30), 10**30).map(str),
    st.sampled_from(["much", "", "1e18", "1e99", "NaN"]),
)
COUNTS = st.one_of(st.integers(-3, 5), st.sampled_from([2**31 - 1, 2**31, 10**15]))

HUGE_JOB = {"pod_sets": [PodSet(name="main", count=2, requests={"cpu": "7E"})]}


def recorded(cpu: str, count: int = 1) -> dict[str, Any]:
    assigned = {
        "name": "main",
        "count": count,
        "flavors": {"cpu": "f"},
        "resourceUsage": {"cpu": cpu},
    }
    return {"clusterQueue": "cq", "podSetAssignments": [assigned]}


async def test_leader_can_start_after_unsuspended_job_asks_huge_amounts(setup: Setup) -> None:
    await setup.cluster()
    await setup.start_quota()
    await setup.workload("huge", pods_active=True, held=False, phase="running", **HUGE_JOB)
    await became(setup, "huge", "admitted")
    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("huge", phase="finished", finish=Finish(success=True), **HUGE_JOB)
    await became(setup, "huge", "released")
    await setup.workload("small")
    await became(setup, "small", "admitted")


@pytest.mark.parametrize("cpu", ["-1", "12E", "much", "7E"])
async def test_unusable_recorded_admission_blocks_no_other_workload(setup: Setup, cpu: str) -> None:
    await setup.cluster(cpus=4)
    await setup.workload("odd", admission=recorded(cpu), held=False, phase="running")
    await setup.start_quota()
    await became(setup, "odd", "admitted")
    for assigned in (await setup.last("odd")).pod_sets:
        assert amount("cpu", assigned.usage["cpu"]) == (1000 if cpu != "7E" else 7 * 10**21)
    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("odd", phase="finished", finish=Finish(success=True))
    await setup.workload("small")
    await became(setup, "small", "admitted")


async def test_leader_reads_log_of_leader_that_wrote_too_large_amounts(setup: Setup) -> None:
    await setup.cluster()
    used = PodSetAssignment(name="main", count=2, flavors={"cpu": "f"}, usage={"cpu": "14E"})
    await setup.bus.publish(
        Admission(
            cluster="hub", namespace="team", name="huge", uid="u-huge", state="admitted", term=1,
            number=1, decided_at=NOON, queue="q", cluster_queue="cq", pod_sets=[used],
        )
    )  # fmt: skip
    await setup.workload("huge", pods_active=True, held=False, phase="running", **HUGE_JOB)
    await setup.start_quota()
    await setup.workload("huge", phase="finished", finish=Finish(success=True), **HUGE_JOB)
    await setup.workload("small")
    await became(setup, "small", "admitted")


@pytest.mark.parametrize("stream", ["WORKLOADS", "ADMISSIONS"])
async def test_undecodable_entry_holds_back_its_workload_only(setup: Setup, stream: str) -> None:
    await setup.cluster(cpus=4)
    good = await setup.workload("odd")
    await setup.workload("small")
    draft = Admission(
        cluster="hub", namespace="team", name="odd", uid="u-odd", state="waiting", term=1, number=1,
        decided_at=NOON,
    )  # fmt: skip
    message = good if stream == "WORKLOADS" else draft
    await setup.bus.publish(Spoiled.of(message))
    await setup.start_quota()
    await became(setup, "small", "admitted")
    if stream == "ADMISSIONS":
        await became(setup, "odd", "waiting")
        assert "cannot be used" in (await setup.last("odd")).message
    await setup.workload("odd", generation=1)
    await became(setup, "odd", "admitted")


class Spoiled(WorkloadState):
    """A message whose body no reader understands."""

    @classmethod
    def of(cls, message: Any) -> Any:
        spoiled = message.model_copy()
        object.__setattr__(spoiled, "encode", lambda: b'{"state": "from the future"}')
        return spoiled


class Audited:
    """A decider with one queue, and the auditor of what it reads and says."""

    def __init__(self) -> None:
        self.decider, self.auditor = Decider(SETTINGS), Auditor(OpenContradictions())
        for message in configuration():
            self.apply(message)

    def apply(self, message: Message) -> None:
        self.decider.apply(message)
        self.auditor.note(message)

    def problems(self) -> list[str]:
        found = self.auditor.examine(self.decider.engine, self.decider.synced)
        return [one.text for one in found or ()]


def configuration() -> Iterator[Message]:
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9223372036854775807"}]}
    group = {"coveredResources": ["cpu"], "flavors": [flavor]}
    for kind, name, namespace, spec in (
        (kinds.NAMESPACE, "team", None, {}),
        (kinds.RESOURCE_FLAVOR, "f", None, {}),
        (kinds.CLUSTER_QUEUE, "cq", None, {"namespaceSelector": {}, "resourceGroups": [group]}),
        (kinds.LOCAL_QUEUE, "q", "team", {"clusterQueue": "cq"}),
    ):
        body = {"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": spec}
        yield Observed(
            cluster="hub", group=kind.group, version=kind.version, plural=kind.plural,
            kind=kind.kind, namespace=namespace, name=name, uid=name, resource_version="1",
            object=body,
        )  # fmt: skip
    yield Synced(cluster="hub", epoch="1", kinds=[], at=NOON)


@st.composite
def states(draw: st.DrawFn, name: str) -> WorkloadState:
    pod_set = PodSet(
        name="main",
        count=draw(COUNTS),
        requests={"cpu": draw(AMOUNTS)},
        reclaimable=draw(COUNTS),
        returned=draw(st.dictionaries(st.just("cpu"), AMOUNTS)),
    )
    runs = draw(st.booleans())
    return WorkloadState(
        cluster="hub", namespace="team", name=name, uid=f"u-{name}", queue="q", created_at=NOON,
        phase="running" if runs else "waiting", pods_active=runs, held=not runs, version="1",
        pod_sets=[pod_set], executed_seconds=draw(COUNTS), requeue_count=draw(COUNTS),
        max_execution_seconds=draw(st.none() | COUNTS), priority=draw(COUNTS),
        admission=recorded(draw(AMOUNTS), draw(COUNTS)) if draw(st.booleans()) else None,
        running_pods=draw(st.none() | st.fixed_dictionaries({"main": COUNTS})),
    )  # fmt: skip


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(st.integers(0, 2), min_size=1, max_size=6), data=st.data())
def test_next_leader_reads_whatever_quota_publishes(drawn: list[int], data: st.DataObject) -> None:
    audited = Audited()
    decider = audited.decider
    number = 0
    for each in drawn:
        audited.apply(data.draw(states(f"w{each}")))
        for draft in decider.decide(NOON):
            number += 1
            admission = Admission.decode(draft.numbered(term=1, number=number, inputs={}).encode())
            for assigned in admission.pod_sets:
                assert all(amount(*used) >= 0 for used in assigned.usage.items())
            audited.auditor.note(admission)
            if admission.state in HOLDING:
                assert outbound.to_quota_held(admission).pod_sets
        assert audited.problems() == []
    later = NOON.replace(hour=13)
    for status in decider.queue_statuses(later):
        read = QueueStatus.decode(status.encode())
        for flavor in (*read.reservation, *read.usage):
            for used in flavor.resources:
                assert amount(used.name, used.total) >= amount(used.name, used.borrowed) >= 0


@settings(max_examples=150)
@given(cpus=st.lists(AMOUNTS, min_size=1, max_size=3), count=COUNTS)
def test_next_reader_parses_whatever_classifier_publishes(cpus: list[str], count: int) -> None:
    containers = [
        {"name": f"c{n}", "resources": {"requests": {"cpu": c}}} for n, c in enumerate(cpus)
    ]
    raw = {"name": "main", "count": count, "template": {"spec": {"containers": containers}}}
    try:
        pod_sets = resolve_pod_sets([raw], limit_ranges=[], runtime_class=lambda _name: None)
    except RequestsError as error:
        pod_sets = error.pod_sets
    else:
        assert all(amount("cpu", p.requests["cpu"]) * p.count < 2**63 * 1000 for p in pod_sets)
    for pod_set in pod_sets:
        read = PodSet.model_validate_json(pod_set.model_dump_json())
        assert 0 <= read.count < 2**31
        assert all(amount(*asked) >= 0 for asked in read.requests.items())


def test_uid_that_two_names_share_is_no_contradiction() -> None:
    """A spoke may write so: it lies about one of them."""
    audited = Audited()
    for name in ("w", "v"):
        audited.apply(workload(name, queue="q", uid="u", phase="running", pods_active=True))
        for draft in audited.decider.decide(NOON):
            audited.auditor.note(draft)
        assert audited.problems() == []
    audited.apply(workload("w", queue="q", uid="u", phase="gone"))
    for draft in audited.decider.decide(NOON):
        audited.auditor.note(draft)
    assert audited.problems() == []


def test_amount_that_next_leader_cannot_read_is_a_contradiction() -> None:
    audited = Audited()
    used = PodSetAssignment(name="main", count=1, flavors={"cpu": "f"}, usage={"cpu": "14E"})
    audited.auditor.note(
        Admission(
            cluster="hub", namespace="team", name="w", uid="u", state="admitted", term=1, number=1,
            decided_at=NOON, cluster_queue="cq", pod_sets=[used], unplanned=True,
        )
    )  # fmt: skip
    assert any("'14E' is no quantity" in problem for problem in audited.problems())


ODD_PLACEMENTS: dict[str, dict[str, Any]] = {
    "terms that are true": {"node_affinity": {"nodeSelectorTerms": True}},
    "a term that is a text": {"node_affinity": {"nodeSelectorTerms": ["zone"]}},
    "rules that are a number": {"node_affinity": {"nodeSelectorTerms": [{"matchExpressions": 5}]}},
}


@pytest.mark.parametrize("placement", ODD_PLACEMENTS.values(), ids=ODD_PLACEMENTS)
def test_unreadable_affinity_makes_its_workload_inadmissible_and_no_other(
    placement: dict[str, Any],
) -> None:
    pod_set = {"name": "main", "count": 1, "requests": {"cpu": "1"}, **placement}
    fact = workload_changed(workload("odd", pod_sets=[pod_set]))
    assert "nodeAffinity" in (fact.inadmissible or "")
    assert workload_changed(workload("sound")).inadmissible is None


@pytest.mark.parametrize("why", ["refused", "held_back"])
def test_what_the_cluster_refuses_to_start_has_no_place_in_a_queue(why: str) -> None:
    fact = workload_changed(workload("w"), **{why: "400 BadRequest"})
    assert (fact.inadmissible, fact.unresolved) == ("400 BadRequest", "400 BadRequest")


TAINTS = [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(9)]
FLAVORS = [{"name": f"f{number}"} for number in range(65)]


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        (
            kinds.RESOURCE_FLAVOR,
            {"nodeTaints": TAINTS},
            "spec.nodeTaints: 9 are too many: at most 8",
        ),
        (kinds.RESOURCE_FLAVOR, {"tolerations": TAINTS}, "spec.tolerations: 9 are too many"),
        (
            kinds.RESOURCE_FLAVOR,
            {"nodeLabels": {f"k{number}": "v" for number in range(9)}},
            "spec.nodeLabels: 9 are too many",
        ),
        (
            kinds.CLUSTER_QUEUE,
            {"resourceGroups": [{}] * 17},
            "spec.resourceGroups: 17 are too many",
        ),
        (
            kinds.CLUSTER_QUEUE,
            {"resourceGroups": [{"flavors": FLAVORS}]},
            "spec.resourceGroups[0].flavors: 65 are too many: at most 64",
        ),
        (
            kinds.COHORT,
            {"resourceGroups": [{"coveredResources": [str(n) for n in range(65)]}]},
            "spec.resourceGroups[0].coveredResources: 65 are too many",
        ),
    ],
)
def test_configuration_beyond_what_an_api_server_takes_is_not_used(
    kind: Kind, spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(inbound.TranslateError, match=re.escape(said)):
        inbound.observed_facts(observed(kind, "one", spec))
