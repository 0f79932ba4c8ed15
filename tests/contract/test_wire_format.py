"""The JSON of each message is a promise: a change of it is read as a diff, and meant."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.contracts.messages import base
from shared.contracts.messages.admissions import Admission, PodSetAssignment, Term
from shared.contracts.messages.base import Message, UndecodableError
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.dispatches import Dispatch
from shared.contracts.messages.hosts import (
    HostAccess,
    HostSlot,
    HostState,
    Machine,
    OneTimeKey,
    PlatformOffer,
    PlatformState,
    SealKey,
)
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.outcomes import DeadLetter, Outcome, RetryRequest
from shared.contracts.messages.queues import (
    CohortShare,
    FlavorUsage,
    HistoryStart,
    QueueStatus,
    ResourceUsage,
)
from shared.contracts.messages.spokes import (
    CheckCondition,
    CopyState,
    Heartbeat,
    HubStatus,
    PairState,
    SpokeCounts,
    SpokeState,
)
from shared.contracts.messages.traces import Traced
from shared.contracts.messages.workloads import Finish, JobRef, PodSet, WorkloadState

WIRE = Path(__file__).parent / "wire"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ONE = {"cluster": "hub", "namespace": "team-a", "name": "job-train-3f2a1", "uid": "u-1"}

EXAMPLES: dict[str, Message] = {
    "observed": Observed(
        cluster="hub", group="batch", version="v1", plural="jobs", kind="Job", namespace="team-a",
        name="train", uid="u-1", resource_version="17",
        object={"metadata": {"name": "train", "uid": "u-1"}}, traceparent=TRACE,
    ),
    "observed-gone": Observed(
        cluster="hub", group="", version="v1", plural="namespaces", kind="Namespace",
        name="team-a", uid="u-2", resource_version="18", deleted=True,
    ),
    "synced": Synced(cluster="hub", epoch="7f3a-1", kinds=["jobs_batch"], at=NOON),
    "workload": WorkloadState(
        **ONE, phase="running", queue="main", priority=100, priority_class="high",
        priority_class_source="kueue.x-k8s.io/workloadpriorityclass", created_at=NOON, version="17",
        owner=JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="train", uid="u-1"),
        pod_sets=[PodSet(name="main", count=3, min_count=1, requests={"cpu": "1500m", "memory": "2Gi"},
                         node_selector={"disk": "ssd"}, reclaimable=1)],
        held=False, pods_active=True, pods_ready=True,
    ),
    "workload-finished": WorkloadState(
        **ONE, phase="finished", created_at=NOON, finish=Finish(success=False, message="OOM", at=NOON),
    ),
    "admission": Admission(
        **ONE, state="admitted", term=2, number=41, decided_at=NOON, queue="main", cluster_queue="team",
        priority=100, inputs={"OBSERVED": 90, "WORKLOADS": 12},
        pod_sets=[PodSetAssignment(name="main", count=3, flavors={"cpu": "spot"}, usage={"cpu": "4500m"})],
    ),
    "term": Term(term=2, holder="quota-a", began_at=NOON),
    "outcome": Outcome(
        **ONE, result="refused", action="release", term=2, number=41, message="spec is immutable", at=NOON
    ),
    "check": CheckState(
        **ONE, check="machines", service="provisioner", state="Retry", requeue_after_seconds=60, at=NOON
    ),
    "dispatch": Dispatch(
        spoke="west", cluster="hub", namespace="team-a", name="job-train-3f2a1", uid="u-1",
        state="withdrawn", number=1767268800000, attempt=41, started=True, at=NOON,
    ),
    "beat": Heartbeat(spoke="west", instance="patcher-west", number=3, at=NOON),
    "copy": CopyState(
        spoke="west", cluster="hub", namespace="team-a", name="job-train-3f2a1", uid="u-1",
        number=1767268800000, state="taken", message="Job team-a/train is there already", at=NOON,
    ),
    "home": HubStatus(
        **ONE,
        target=JobRef(api_version="batch/v1", kind="Job", plural="jobs", name="a", uid="u-1"),
        nominated=[], spoke="west", status={"active": 1}, at=NOON,
    ),
    "spoke": SpokeState(
        cluster="hub", spoke="west", active=True, reason="Active", message="Connected",
        counts=SpokeCounts(offered=1, chosen=12), latency_seconds=0.2, failures=1,
        free={"cpu": "3500m"}, at=NOON,
    ),
    "standing": CheckCondition(
        cluster="hub", check="elsewhere", active=False, reason="NoUsableClusters",
        message="Missing clusters: [east]", at=NOON,
    ),
    "pair": PairState(cluster="hub", spoke="west", problem="Secret west: there is none", at=NOON),
    "host": HostState(
        cluster="hub", namespace="team-a", name="build-arm64", uid="t-1", platform="linux/arm64",
        state="ready", host="i-1", address="10.0.0.7", provider="fake",
        secret={"host": "u-1@10.0.0.7", "user-dir": "/home/u-1"}, sealed="Ym94", at=NOON,
    ),
    "platform-offer": PlatformOffer(
        cluster="hub", platforms={"linux/arm64": "linux-arm64"},
        problems={"linux/s390x": "dynamic.linux-s390x.type: required"}, at=NOON,
    ),
    "seal-key": SealKey(cluster="hub", public_key="a2V5", at=NOON),
    "one-time-key": OneTimeKey(
        cluster="hub", id="5f2c", state="waiting", box="Ym94", expires_at=NOON, at=NOON
    ),
    "platform": PlatformState(
        cluster="hub", platform="linux/arm64", attempts={"t-1": 1}, refusals={}, at=NOON,
        failed_hosts={"t-1": ["arm-1"]}, failure_reasons={"t-1": {"arm-1": "no answer"}},
        seats=[HostSlot(uid="t-1", namespace="team-a", name="build-arm64", host="prod-arm64-6b1f",
                    address="10.0.0.7", user="u-1", state="preparing",
                    access=HostAccess(user="ec2-user", secret="arm64-ssh"))],
        machines=[Machine(name="prod-arm64-6b1f", provider="fake", tag="prod-arm64", state="running",
                          holder="t-1", task_run="team-a:build-arm64", address="10.0.0.7",
                          launched_at=NOON, deadline=NOON)],
    ),
    "queue": QueueStatus(
        cluster="hub", kind="ClusterQueue", name="team", pending=3, reserving=2, admitted=1,
        reservation=[
            FlavorUsage(
                name="spot", resources=[ResourceUsage(name="cpu", total="12", borrowed="2")]
            )
        ],
        active=True, reason="Ready", message="Can admit new workloads", at=NOON,
    ),
    "cohort": CohortShare(cluster="hub", name="research", uid="u-1", weighted_share=125, at=NOON),
    "traced": Traced(
        ended=17, batches=23, since={"WORKLOADS": 11, "ADMISSIONS": 20}, at=NOON
    ),
    "dead": DeadLetter(
        service="patcher", original_subject="sluice.admission.hub.a.b", original_sequence=9,
        reason="state: Field required", body="{}", at=NOON,
    ),
    "history": HistoryStart(log="ADMISSIONS", sequence=70, began_at=NOON, at=NOON),
    "history-shortened": HistoryStart(
        log="ADMISSIONS", sequence=70, began_at=NOON, at=NOON, others_until=NOON,
        shortened=["sluice.admission.hub.a.b"],
    ),
    "retry": RetryRequest(
        cluster="hub", service="patcher", original_subject="sluice.admission.hub.a.b", tries=1, at=NOON
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_encoded_message_equals_the_recorded_one(name: str, update_golden: bool) -> None:
    message, file = EXAMPLES[name], WIRE / f"{name}.json"
    text = message.model_dump_json(exclude_none=True, indent=2) + "\n"
    if update_golden:
        file.write_text(text)
    assert file.read_text() == text, "meant? then: pytest --update-golden, and review the diff"


@pytest.mark.parametrize("name", EXAMPLES)
def test_message_survives_encoding_and_decoding(name: str) -> None:
    message = EXAMPLES[name]
    headers = {base.TRACEPARENT: message.traceparent} if message.traceparent else {}
    assert type(message).decode(message.encode(), headers) == message


def test_unknown_fields_are_ignored() -> None:
    body = EXAMPLES["term"].encode().replace(b"{", b'{"later":1,', 1)
    assert Term.decode(body) == EXAMPLES["term"]


def test_invalid_body_is_refused_with_the_field() -> None:
    with pytest.raises(UndecodableError, match=r"term\.v1: holder: Field required"):
        Term.decode(b'{"term": 1, "began_at": "2026-01-01T00:00:00Z"}')


def test_every_message_type_has_an_example() -> None:
    def leaves(base: type[Message]) -> set[type[Message]]:
        # Services and tests may have made their own of one that is on the wire.
        below = [kind for kind in base.__subclasses__() if kind.__module__.startswith("shared.")]
        return set().union(*map(leaves, below)) if below else {base}

    assert leaves(Message) == {type(example) for example in EXAMPLES.values()}
