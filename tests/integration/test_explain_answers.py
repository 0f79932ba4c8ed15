"""Who answers explain requests, and errors, positions and the command."""

from typing import Any

from services.ctl.inspect.explain import explained
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.explain import (
    ExplainAnswer,
    ExplainRequest,
    PositionsAnswer,
    PositionsRequest,
)
from shared.testing.waiting import eventually
from tests.integration.explain_stage import NOON, SETTLED_SECONDS, Site


async def test_unknown_workload_and_malformed_request_get_an_error(site: Site) -> None:
    await site.queue()
    await site.workload("one")
    await site.synced()
    await site.explain("one", "Admitted")

    async def problem(question: bytes) -> str:
        data = await site.bus.request(
            ExplainRequest.subject, question, timeout_seconds=SETTLED_SECONDS
        )
        return ExplainAnswer.model_validate_json(data).problem

    assert await problem(b'{"namespace":"others","name":"one"}') == (
        "nothing is known of others/one"
    )
    assert await problem(b'{"name":"one"}') == "namespace: Field required"
    assert "JSON" in await problem(b"one")


async def test_positions_follow_the_queue_and_can_be_filtered(site: Site) -> None:
    await site.queue(cpu=0)
    for age, (name, namespace) in enumerate(
        (("d", "team"), ("c", "others"), ("b", "team"), ("a", "others"))
    ):
        await site.workload(name, age=age, namespace=namespace)
    await site.workload("urgent", priority=5)
    await site.synced()
    await site.explain("d", "ExceedsMaxQuota")

    async def ask(**fields: Any) -> list[tuple[str, int, int]]:
        question = PositionsRequest(**fields).model_dump_json(exclude_none=True).encode()
        data = await site.bus.request(
            PositionsRequest.subject, question, timeout_seconds=SETTLED_SECONDS
        )
        items = PositionsAnswer.model_validate_json(data).items
        return [(item.name, item.position, item.position_in_local_queue) for item in items]

    whole = [("urgent", 1, 1), ("a", 2, 1), ("b", 3, 2), ("c", 4, 2), ("d", 5, 3)]

    async def all_are_in() -> bool:
        return await ask() == whole

    await eventually(all_are_in)
    assert await ask(namespace="others") == [("a", 2, 1), ("c", 4, 2)]
    assert await ask(offset=1, limit=2) == [("a", 2, 1), ("b", 3, 2)]
    assert await ask(cluster_queue="none") == []


async def test_only_the_leader_answers_and_then_its_successor(site: Site) -> None:
    await site.queue(cpu=0)
    await site.workload("one")
    await site.synced()
    await site.explain("one", "ExceedsMaxQuota")
    await site.start_quota("b")
    # A standby that answered would know nothing of it, every other time.
    for _ in range(6):
        question = ExplainRequest(namespace="team", name="one").model_dump_json().encode()
        data = await site.bus.request(
            ExplainRequest.subject, question, timeout_seconds=SETTLED_SECONDS
        )
        assert ExplainAnswer.model_validate_json(data).items
    await site.stop_quota()
    assert (await site.explain("one", "ExceedsMaxQuota")).position == 1


async def test_former_leader_stops_answering_while_its_bus_is_connected(site: Site) -> None:
    await site.queue(cpu=0)
    await site.workload("one")
    await site.synced()
    await site.explain("one", "ExceedsMaxQuota")
    await site.start_quota("b")
    (_, former), (_, later) = site.running
    site.server.release("quota", former.holder)

    async def later_one_leads() -> bool:
        return await term_holder(site) == later.instance

    await eventually(later_one_leads)
    await site.workload("two")
    await site.explain("two", "ExceedsMaxQuota")

    async def later_one_answers_all() -> bool:
        """What the former one still remembers knows nothing of the second."""
        question = ExplainRequest(namespace="team", name="two").model_dump_json().encode()
        answers = [
            await site.bus.request(ExplainRequest.subject, question, timeout_seconds=2.0)
            for _ in range(6)
        ]
        return all(ExplainAnswer.model_validate_json(data).items for data in answers)

    await eventually(later_one_answers_all)


async def term_holder(site: Site) -> str:
    entry = await site.bus.latest("ADMISSIONS", "sluice.term.quota")
    assert entry is not None
    return Term.decode(entry.data).holder


async def test_explain_command_prints_sentences(site: Site) -> None:
    await site.queue(cpu=2)
    await site.workload("held", cpu="2", age=60)
    await site.workload("next", cpu="2", age=50, namespace="others")
    await site.workload("one", cpu="1", age=40)
    await site.synced()
    told = await site.explain("one", "WaitingForQuota")

    text = "\n".join(explained(told.model_dump(mode="json", exclude_none=True), NOON))

    for line in (
        "team/one in hub",
        "Reason:          WaitingForQuota",
        "Queue:           main -> ClusterQueue cq, priority 0",
        "(40s)",
        "Position:        2 in ClusterQueue cq, 1 in LocalQueue main",
        "Ahead:           1 of other namespaces",
        "cpu in flavor default: asked 1, free 0 (of which borrowable 0), at most 2",
        "Held by:         held 2",
        "What would help: 1 more cpu in flavor default must become free",
    ):
        assert line in text


async def test_lent_quota_names_its_borrowers_and_why_it_does_not_come_back(site: Site) -> None:
    await site.queue(cpu=2, cohortName="all")
    await site.queue("lender", cpu=2, cohortName="all")
    await site.local("lent", to="lender")
    for number, age in enumerate((60, 50)):
        await site.workload(f"big-{number}", cpu="2", age=age, namespace="others")
    await site.synced()
    await site.explain("big-1", "Admitted", namespace="others")
    await site.workload("own", cpu="1", queue="lent")

    told = await site.explain("own", "WaitingForQuota", everyone=True)

    (shortage,) = told.shortages
    names = [(each.namespace, each.name, each.cluster_queue) for each in shortage.holders]
    assert names == [("others", "big-0", "cq"), ("others", "big-1", "cq")]
    assert told.remedy.endswith(
        "ClusterQueue lender has lent cpu in flavor default to its cohort, and waits until those who "
        "borrow it end: spec.preemption.reclaimWithinCohort is Never, as where it is not set "
        "(Any or LowerPriority preempts them)"
    )
    lines = list(explained(told.model_dump(mode="json", exclude_none=True), NOON))
    assert (
        "  Held by:         others/big-0 2 (ClusterQueue cq), others/big-1 2 (ClusterQueue cq)"
        in lines
    )
    hidden = await site.explain("own", "WaitingForQuota")
    assert hidden.shortages[0].holders == []
    assert hidden.shortages[0].holders_elsewhere == 2


async def test_lent_quota_of_equal_priority_names_the_policy_that_would_take_it_back(
    site: Site,
) -> None:
    lower = {"reclaimWithinCohort": "LowerPriority"}
    await site.queue(cpu=2, cohortName="all")
    await site.queue("lender", cpu=2, cohortName="all", preemption=lower)
    await site.local("lent", to="lender")
    await site.workload("big", cpu="4", age=60, namespace="others")
    await site.synced()
    await site.explain("big", "Admitted", namespace="others")
    await site.workload("own", cpu="1", queue="lent")

    told = await site.explain("own", "WaitingForQuota")

    assert told.remedy.endswith(
        "ClusterQueue lender has lent cpu in flavor default to its cohort, and waits until those who "
        "borrow it end: spec.preemption.reclaimWithinCohort is LowerPriority, which preempts lower "
        "priorities only (Any preempts them)"
    )


async def test_message_to_a_victim_names_the_job_that_it_made_room_for(site: Site) -> None:
    await site.queue(cpu=2, preemption={"withinClusterQueue": "LowerPriority"})
    await site.workload("low", cpu="2")
    await site.synced()
    await site.explain("low", "Admitted")
    owner = {"api_version": "batch/v1", "kind": "Job", "plural": "jobs", "name": "h", "uid": "j-1"}
    await site.workload("high", cpu="2", priority=9, owner=owner)
    await site.explain("high", "WaitingForPreemptedWorkloads")

    async def names_the_job() -> bool:
        entry = await site.bus.latest("ADMISSIONS", "sluice.admission.hub.team.low")
        assert entry is not None
        message = Admission.decode(entry.data).message
        return "Preempted to accommodate a workload (UID: u-high, JobUID: j-1) due to" in message

    await eventually(names_the_job)
