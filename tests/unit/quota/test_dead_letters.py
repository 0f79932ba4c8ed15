"""Messages that quota cannot use become dead letters, which an operator tries again or drops."""

from shared.bus.follow import read
from shared.contracts.messages.admissions import Admission, PodSetAssignment
from shared.contracts.messages.outcomes import DeadLetter, RetryRequest
from shared.testing.waiting import eventually
from tests.unit.quota.service_setup import NOON, Setup, became
from tests.unit.quota.test_bounds import Spoiled

DRAFT = Admission(
    cluster="hub", namespace="team", name="odd", uid="u-odd", state="waiting", term=1, number=1,
    decided_at=NOON,
)  # fmt: skip
WORKLOAD = "sluice.workload.hub.team.odd"
DECISION = "sluice.admission.hub.team.odd"


async def letter(setup: Setup, subject: str) -> DeadLetter | None:
    return read(await setup.bus.latest("DEAD", f"sluice.dead.quota.{subject}"), DeadLetter)


async def became_letter(setup: Setup, subject: str, state: str, tries: int = 1) -> DeadLetter:
    async def yes() -> bool:
        found = await letter(setup, subject)
        return found is not None and (found.state, found.tries) == (state, tries)

    await eventually(yes)
    found = await letter(setup, subject)
    assert found is not None
    return found


async def retry(setup: Setup, of: DeadLetter) -> None:
    await setup.bus.publish(
        RetryRequest(
            cluster="hub", service="quota", original_subject=of.original_subject, tries=of.tries, at=NOON
        )
    )  # fmt: skip


async def test_unreadable_state_becomes_a_letter_once_and_a_readable_one_closes_it(
    setup: Setup,
) -> None:
    await setup.cluster(cpus=4)
    await setup.bus.publish(Spoiled.of(await setup.workload("odd")))
    await setup.start_quota()
    found = await became_letter(setup, WORKLOAD, "open")
    assert (found.service, found.body) == ("quota", '{"state": "from the future"}')
    letters = await setup.bus.last_sequence("DEAD")

    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("small")
    await became(setup, "small", "admitted")
    assert await setup.bus.last_sequence("DEAD") == letters, "the next leader writes no other one"

    await retry(setup, found)
    await became_letter(setup, WORKLOAD, "open", tries=2)
    await setup.workload("odd", generation=1)
    await became_letter(setup, WORKLOAD, "handled", tries=2)
    await became(setup, "odd", "admitted")


async def test_retry_lets_a_workload_go_on_whose_decision_could_not_be_read(setup: Setup) -> None:
    await setup.cluster(cpus=4)
    await setup.workload("odd")
    await setup.bus.publish(Spoiled.of(DRAFT))
    await setup.start_quota()
    found = await became_letter(setup, DECISION, "open")
    await became(setup, "odd", "waiting")

    await retry(setup, found)  # The newest message is the decision to wait, which can be read.

    await became_letter(setup, DECISION, "handled")
    await became(setup, "odd", "admitted")


async def test_decision_whose_amounts_fail_becomes_a_letter_and_a_dropped_one_stays_dropped(
    setup: Setup,
) -> None:
    await setup.cluster(cpus=4)
    used = PodSetAssignment(name="main", count=1, flavors={"cpu": "f"}, usage={"cpu": "much"})
    more = {"state": "admitted", "queue": "q", "cluster_queue": "cq", "pod_sets": [used]}
    await setup.bus.publish(DRAFT.model_copy(update=more))
    await setup.start_quota()
    found = await became_letter(setup, DECISION, "open")
    assert "much" in found.reason
    await retry(setup, found)
    found = await became_letter(setup, DECISION, "open", tries=2)
    await setup.bus.publish(found.closed("dropped", NOON))

    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("small")
    await became(setup, "small", "admitted")
    await became_letter(setup, DECISION, "dropped", tries=2)
