"""Explanations of waiting workloads, one test for each cause, with all services in one world.

Each test asks over the bus, as `sluice explain` does. The answer must name the cause, the missing resource
and how much of it is missing.
"""

import asyncio
from typing import Any, Final

import pytest

from services.console.view import View
from services.ctl.inspect.explain import explained
from services.quota.queries.replica import ReadReplica
from services.quota.settings import QuotaSettings
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.explain import ExplainAnswer, ExplainRequest, Explanation
from shared.contracts.windows import WINDOWS
from shared.testing.world.memory_bus import MemoryBus
from tests.conformance.seeds.stage import (
    SERVICES,
    Stage,
    job,
    pipeline_run,
    pool,
    story,
)
from tests.simulation.forecasts.waiting_causes import (
    CPU,
    TAINT,
    Waiting,
    checked,
    created,
    displaces_others,
    flavored,
    is_put_out,
    kueue,
    limited,
    waits_for_a_machine,
    waits_for_a_spoke,
    waits_for_somebody_elses_check,
    waits_for_the_unready,
    was_not_ready_in_time,
)

SETTLED_SECONDS: Final = 60.0

FAIR: Final = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
RECLAIM: Final[dict[str, Any]] = {"preemption": {"reclaimWithinCohort": "Any"}}
BLOCK: Final = {"waitForPodsReady": {"timeout": "1h", "blockAdmission": True}}
IN_TIME: Final = {
    "waitForPodsReady": {"timeout": "10s", "requeuingStrategy": {"backoffBaseSeconds": 3600}}
}

WAITING: Final = (
    Waiting(
        cause="quota is in use",
        arrange=created(
            *pool("builds", CPU), job("first", "builds", {"cpu": 3}), job("mine", "builds", {"cpu": 2})
        ),
        reason="WaitingForQuota",
        short={"asked": "2", "free": "1", "most": "4", "limit": "nominalQuota 4 of ClusterQueue builds"},
        says=("Held by:         job-first-", "1 more cpu in flavor default-flavor must become free"),
    ),
    Waiting(
        cause="the request exceeds the maximum capacity",
        arrange=created(*pool("builds", CPU), job("mine", "builds", {"cpu": 9})),
        reason="ExceedsMaxQuota",
        short={"asked": "9", "free": "4", "most": "4", "limit": "nominalQuota 4 of ClusterQueue builds"},
        says=("raise the quota of cpu in flavor default-flavor above 4, or ask for less",),
    ),
    Waiting(
        cause="the request exceeds the borrowing limit",
        arrange=created(
            *limited("builds", 2, borrowingLimit="1"), *limited("lender", 9),
            job("mine", "builds", {"cpu": 5}),
        ),
        reason="ExceedsMaxQuota",
        short={"asked": "5", "most": "3", "limit": "borrowingLimit 1 of ClusterQueue builds"},
        says=("borrowingLimit 1 of ClusterQueue builds",),
    ),
    Waiting(
        cause="the borrowing limit is used up",
        arrange=created(
            *limited("builds", 2, borrowingLimit="1"), *limited("lender", 9),
            job("first", "builds", {"cpu": 3}), job("mine", "builds", {"cpu": 1}),
        ),
        reason="WaitingForQuota",
        short={"asked": "1", "free": "0", "most": "3", "limit": "borrowingLimit 1 of ClusterQueue builds"},
        says=("Held by:         job-first-",),
    ),
    Waiting(
        cause="the cohort has no free quota",
        arrange=created(
            *limited("builds", 2), *limited("lender", 3, "lending"),
            job("first", "lending", {"cpu": 3}), job("mine", "builds", {"cpu": 3}),
        ),
        reason="WaitingForQuota",
        short={"asked": "3", "free": "2", "borrowable": "0", "limit": "quota 5 of Cohort all"},
        says=("Held by:         job-first-", "1 more cpu"),
    ),
    Waiting(
        cause="another queue lends only a part of its quota",
        arrange=created(
            *limited("builds", 2), *limited("lender", 9, lendingLimit="1"),
            job("mine", "builds", {"cpu": 5}),
        ),
        reason="ExceedsMaxQuota",
        short={
            "asked": "5", "most": "3",
            "limit": "quota 3 of Cohort all; lendingLimit of ClusterQueue lender keeps 8",
        },
        says=("lendingLimit of ClusterQueue lender keeps 8",),
    ),
    Waiting(
        cause="the job does not tolerate the taint of the flavor",
        arrange=created(*flavored(nodeTaints=[TAINT]), job("mine", "builds", {"cpu": 1})),
        reason="NoMatchingFlavor",
        says=("untolerated taint gpu=yes:NoSchedule in flavor special",),
    ),
    Waiting(
        cause="the node selector does not match the flavor",
        arrange=created(
            *flavored(nodeLabels={"zone": "a"}),
            job("mine", "builds", {"cpu": 1}, pod={"nodeSelector": {"zone": "b"}}),
        ),
        reason="NoMatchingFlavor",
        says=("flavor special doesn't match node affinity",),
    ),
    Waiting(
        cause="no queue offers the resource",
        arrange=created(*pool("builds", CPU), job("mine", "builds", {"nvidia.com/gpu": 1})),
        reason="NoMatchingFlavor",
        says=("resource nvidia.com/gpu unavailable in ClusterQueue", "offer the resource"),
    ),
    Waiting(
        cause="the flavor is missing",
        arrange=created(*pool("builds", CPU)[1:], job("mine", "builds", {"cpu": 1})),
        reason="Suspended",
        says=("missing ResourceFlavor(s): default-flavor", "create the ResourceFlavor"),
    ),
    Waiting(
        cause="the ClusterQueue is stopped",
        arrange=created(*pool("builds", CPU, stopPolicy="Hold"), job("mine", "builds", {"cpu": 1})),
        reason="Suspended",
        says=("ClusterQueue builds is inactive", "is stopped", "resume the ClusterQueue"),
    ),
    Waiting(
        cause="the ClusterQueue is drained",
        arrange=created(
            *pool("builds", CPU, stopPolicy="HoldAndDrain"), job("mine", "builds", {"cpu": 1})
        ),
        reason="Suspended",
        says=("ClusterQueue builds is inactive", "is stopped"),
    ),
    Waiting(
        cause="the LocalQueue is stopped",
        arrange=created(
            *pool("builds", CPU),
            kueue("LocalQueue", "held", "team-a", spec={"clusterQueue": "builds", "stopPolicy": "Hold"}),
            job("mine", "held", {"cpu": 1}),
        ),
        reason="Suspended",
        says=("LocalQueue held is inactive", "resume the LocalQueue"),
    ),
    Waiting(
        cause="the LocalQueue is missing",
        arrange=created(*pool("builds", CPU), job("mine", "elsewhere", {"cpu": 1})),
        reason="Misconfigured",
        says=("LocalQueue elsewhere doesn't exist",),
    ),
    Waiting(
        cause="the ClusterQueue is missing",
        arrange=created(
            kueue("LocalQueue", "lost", "team-a", spec={"clusterQueue": "nowhere"}),
            job("mine", "lost", {"cpu": 1}),
        ),
        reason="Misconfigured",
        says=("ClusterQueue nowhere doesn't exist",),
    ),
    Waiting(
        cause="an admission check of its queue is missing",
        arrange=created(*checked("example.com/none")[1:], job("mine", "builds", {"cpu": 1})),
        reason="Suspended",
        says=("missing AdmissionCheck(s): gate", "create the AdmissionCheck"),
    ),
    Waiting(
        cause="the flavor's topology is not offered",
        arrange=created(
            *flavored(nodeLabels={"zone": "a"}, topologyName="racks"),
            job("mine", "builds", {"cpu": 1}),
        ),
        reason="Suspended",
        says=('there is no Topology "racks"', "take topologyName out of the ResourceFlavor"),
    ),
    Waiting(
        cause="its namespace is not selected",
        arrange=created(
            *pool("builds", CPU, namespaceSelector={"matchLabels": {"tier": "gold"}}),
            job("mine", "builds", {"cpu": 1}),
        ),
        reason="Misconfigured",
        says=("namespace doesn't match ClusterQueue selector", "change the namespace's labels"),
    ),
    Waiting(
        cause="the head of a StrictFIFO queue must start first",
        arrange=created(
            *pool("builds", CPU, queueingStrategy="StrictFIFO"),
            job("first", "builds", {"cpu": 3}), job("head", "builds", {"cpu": 2}),
            job("mine", "builds", {"cpu": 1}),
        ),
        reason="PendingEvaluation",
        says=(
            "ClusterQueue builds is StrictFIFO", "Position:        2 in", "Ahead:           job-head-",
            "the head must go first: 1 more cpu in flavor default-flavor must become free",
        ),
    ),
    Waiting(
        cause="preempted workloads must stop first",
        arrange=displaces_others,
        reason="WaitingForPreemptedWorkloads",
        says=("Pending the preemption of 1 workload(s)", "Preempts:        job-small-", "pods must end"),
    ),
    Waiting(
        cause="pods of another workload must be ready first",
        arrange=waits_for_the_unready,
        configuration=BLOCK,
        reason="WaitingForPodsReady",
        says=("Not ready:       job-first-", "their pods must become ready"),
    ),
    Waiting(
        cause="the workload was not ready in time and backs off",
        arrange=was_not_ready_in_time,
        configuration=IN_TIME,
        reason="PendingEvaluation",
        says=("PodsReadyTimeout (time 1)", "Not before:", "its back-off must end"),
    ),
    Waiting(
        cause="an admission check has not answered",
        arrange=waits_for_somebody_elses_check,
        reason="Reserved",
        says=("Check:           gate is Pending", "the owners of its checks must say that they are ready"),
    ),
    Waiting(
        cause="an admission check of its queue has no controller",
        arrange=created(*checked("example.com/audit"), job("mine", "builds", {"cpu": 1})),
        reason="Suspended",
        says=(
            "inactive AdmissionCheck(s): gate. gate: its controller has not said that it is active",
            "start the check's controller",
        ),
    ),
    Waiting(
        cause="the window of its check is closed",
        arrange=created(
            *checked("sluicegate.dev/window", annotations={WINDOWS: "0 3 * * * for 1h"}),
            job("mine", "builds", {"cpu": 1}),
        ),
        services=(*SERVICES, "dispatcher"),
        reason="PendingEvaluation",
        says=("gate is Retry: The next window opens at", "Not before:"),
    ),
    Waiting(
        cause="its machine is starting",
        arrange=waits_for_a_machine,
        reason="Reserved",
        says=("gate is Pending: ", "is starting"),
    ),
    Waiting(
        cause="no spoke is connected",
        arrange=waits_for_a_spoke,
        services=(*SERVICES, "dispatcher"),
        reason="Suspended",
        says=("references inactive AdmissionCheck(s): gate. gate: ", "north"),
    ),
    Waiting(
        cause="the workload is deactivated",
        arrange=is_put_out,
        reason="Deactivated",
        says=("The workload is deactivated", "set spec.active to true"),
    ),
    Waiting(
        cause="its user holds the run",
        arrange=created(
            *pool("builds", {"tekton.dev/pipelineruns": 9}, local="pipelines-queue"),
            pipeline_run("mine", status="PipelineRunPending"),
        ),
        reason="OnHold",
        says=("What would help: take the job off hold",),
    ),
    Waiting(
        cause="its priority class is missing",
        arrange=created(*pool("builds", CPU), job("mine", "builds", {"cpu": 1}, priority_class="urgent")),
        reason="Misconfigured",
        says=('WorkloadPriorityClass "urgent" not found',),
    ),
    Waiting(
        cause="the request breaks a LimitRange",
        arrange=created(
            *pool("builds", CPU),
            {
                "apiVersion": "v1", "kind": "LimitRange",
                "metadata": {"name": "small", "namespace": "team-a"},
                "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
            },
            job("mine", "builds", {"cpu": 2}),
        ),
        reason="Misconfigured",
        says=('["cpu"]: requests must not be above the limitRange max',),
    ),
    Waiting(
        cause="its fair share would be too high",
        arrange=created(
            *limited("builds", 1, **RECLAIM), *limited("rival", 1, "rivals"), *limited("lender", 2),
            job("first", "rivals", {"cpu": 2}), job("mine", "builds", {"cpu": 3}),
        ),
        configuration=FAIR,
        reason="WaitingForQuota",
        short={"asked": "3", "free": "2", "limit": "quota 4 of Cohort all"},
        says=("Fair shares:     ClusterQueue builds 500, ClusterQueue rival 250",),
    ),
)  # fmt: skip


@pytest.mark.parametrize("waiting", WAITING, ids=lambda waiting: waiting.cause)
def test_explanation_names_the_cause_of_waiting(waiting: Waiting) -> None:
    async def tell(stage: Stage) -> None:
        mine = await waiting.arrange(stage)
        told = await settled(stage, mine, waiting.reason)
        assert await seen_by_a_follower(stage, mine) == told
        text = "\n".join(explained(told.model_dump(mode="json"), stage.system.world.now()))
        if waiting.short:
            short = told.shortages[0].model_dump()
            assert {name: short[name] for name in waiting.short} == dict(waiting.short), text
        else:
            assert not told.shortages, text
        assert all(words in text for words in waiting.says), text

    story(configuration=waiting.configuration, services=waiting.services)(tell)()


async def settled(stage: Stage, mine: Object, reason: str) -> Explanation:
    """The answer, once it has settled on this reason."""
    bus = MemoryBus(stage.system.server, instance="asker")
    await bus.start()
    question = question_about(mine)
    deadline = stage.now() + SETTLED_SECONDS
    while True:
        data = question.model_dump_json().encode()
        answer = await bus.request(ExplainRequest.subject, data, timeout_seconds=5)
        told = ExplainAnswer.model_validate_json(answer)
        if told.items and told.items[0].reason == reason:
            await bus.stop()
            return told.items[0]
        assert stage.now() < deadline, f"not {reason}, but {told}"
        await asyncio.sleep(1)


async def seen_by_a_follower(stage: Stage, mine: Object) -> Explanation:
    """What the console says, which only reads what is on the bus."""
    bus = MemoryBus(stage.system.server, instance="follower")
    await bus.start()
    configuration = stage.system.configuration
    view = View(
        bus=bus,
        now=stage.system.world.now,
        new_replica=lambda: ReadReplica(QuotaSettings(), configuration),
    )
    looking = asyncio.create_task(view.run())
    await stage.settle(5)
    answer = view.replica.explain(question_about(mine))
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    await bus.stop()
    (told,) = answer.items
    return told


def question_about(mine: Object) -> ExplainRequest:
    return ExplainRequest(namespace=mine["metadata"]["namespace"], name=mine["metadata"]["name"])


def test_at_least_twenty_causes_are_explained() -> None:
    assert len({waiting.cause for waiting in WAITING}) >= 20
