"""The auditor stops admission after a mistake of the engine, and lets it go on when the mistake is gone."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from services.ctl.doctor.bus import stopped_admission
from services.quota.audit.auditor import Auditor
from services.quota.engine.fact_handlers import FactHandlers
from services.quota.engine.model.tree import remove_usage
from services.quota.engine.reservations import _detach
from services.quota.engine.scheduling.cycle import SchedulingCycle
from services.quota.metrics.service import AUDITS, HALTED
from shared.bus.order.terms import Terms
from shared.contracts.messages.explain import PositionsRequest
from shared.contracts.messages.workloads import Finish
from shared.telemetry import probes
from shared.testing.probing import acts
from shared.testing.waiting import PATIENCE_SECONDS, eventually
from tests.unit.quota.service_setup import Setup, became, explained

Plant = Callable[[pytest.MonkeyPatch], None]


def sum_lacks_one_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    reserve = SchedulingCycle._reserve

    def reserve_uncounted(self: Any, w: Any, cq: Any, grant: Any) -> None:
        reserve(self, w, cq, grant)
        remove_usage(cq.node, w.indexed_usage)

    monkeypatch.setattr(SchedulingCycle, "_reserve", reserve_uncounted)


def holder_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    on_workload = FactHandlers.on_workload

    def forget(self: Any, fact: Any) -> None:
        on_workload(self, fact)
        if fact.priority == FORGOTTEN:
            _detach(self._shard, self._shard.workloads[f"{fact.namespace}/{fact.name}"])

    monkeypatch.setattr(FactHandlers, "on_workload", forget)


def change_of_a_queue_forgets_its_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cluster_queue = FactHandlers.on_cluster_queue

    def forget(self: Any, fact: Any) -> None:
        on_cluster_queue(self, fact)
        for holder in list(self._shard.queues[fact.name].holders.values()):
            _detach(self._shard, holder)

    monkeypatch.setattr(FactHandlers, "on_cluster_queue", forget)


def everything_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cycle", "flavors"):
        where = f"services.quota.engine.scheduling.{module}.available"
        monkeypatch.setattr(where, lambda _node, _index: 1 << 62)


def replaced_leaders_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terms, "is_void", lambda _self, _entry: False)
    monkeypatch.setattr("services.quota.log_room.INTERVAL_SECONDS", 0.02)


FORGOTTEN = 7
"""Priority of a workload that the planted mistake forgets."""

ENDS: Any = {"phase": "finished", "finish": Finish(success=True)}


async def only_admit(setup: Setup) -> None:
    """Nothing else happens."""


async def touch(setup: Setup) -> None:
    await setup.workload("x", priority=FORGOTTEN)


async def change_the_queue(setup: Setup) -> None:
    """Nothing of a workload is said: the change itself is a reason to compare all."""
    await setup.cluster(cpus=1, cohort="all")


async def admit_too_much(setup: Setup) -> None:
    await setup.workload("w")


async def decide_as_replaced_leader(setup: Setup) -> None:
    stale = await setup.last("x")
    await setup.stop_quota()
    await setup.start_quota("b")
    await setup.workload("x", inadmissible="it is not admitted again")
    await setup.workload("w")
    await became(setup, "w", "waiting")
    await setup.workload("w", **ENDS)
    await became(setup, "w", "released")
    await setup.bus.publish(stale.replace(state="released", number=50))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A mistake, what makes it show, and a part of the sentence about it."""

    plant: Plant
    play: Callable[[Setup], Any]
    says: str


CASES = {
    "a sum lacks one holder": Case(
        plant=sum_lacks_one_holder,
        play=only_admit,
        says="uses 1 cpu of f by the log, 0 cpu of f by",
    ),
    "a holder is forgotten": Case(
        plant=holder_is_forgotten, play=touch, says="holds quota of cq by the log, no quota by"
    ),
    "a queue that changes forgets its holders": Case(
        plant=change_of_a_queue_forgets_its_holders,
        play=change_the_queue,
        says="holds quota of cq by the log, no quota by",
    ),
    "everything fits": Case(
        plant=everything_fits, play=admit_too_much, says="cq, of which 0 cpu of f was free"
    ),
    "a replaced leader is believed": Case(
        plant=replaced_leaders_are_believed,
        play=decide_as_replaced_leader,
        says=", behind messages of term ",
    ),
}


async def admitted_one(setup: Setup, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """Plant the mistake, admit `x` to a queue with room for one, and make the mistake show."""
    monkeypatch.setattr("shared.bus.leadership.PAUSE_SECONDS", 0.01)
    case.plant(monkeypatch)
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x")
    await became(setup, "x", "admitted")
    await case.play(setup)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_mistake_stops_admission_until_it_is_gone(
    setup: Setup,
    monkeypatch: pytest.MonkeyPatch,
    case: Case,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = AUDITS.labels("contradiction")._value.get()

    async def is_seen() -> bool:
        return bool(AUDITS.labels("contradiction")._value.get() > before)

    with acts(probes.CONTRADICTED):
        await admitted_one(setup, monkeypatch, case)
        await eventually(is_seen)
    assert case.says in capsys.readouterr().out

    await setup.workload("y")

    async def is_told() -> bool:
        answer = await explained(setup, "y")
        return any(item.message for item in answer.items)

    await eventually(is_told)
    if HALTED._value.get():
        assert "contradict" in (await explained(setup, "y")).items[0].message
        answer = await setup.bus.request(
            PositionsRequest.subject, b"{}", timeout_seconds=PATIENCE_SECONDS
        )
        assert stopped_admission(json.loads(answer))
    assert "admitted" not in await setup.states("y")
    await setup.workload("x", **ENDS)
    await setup.workload("w", **ENDS)
    await became(setup, "y", "admitted")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_without_the_auditor_the_same_mistake_admits_too_much(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    monkeypatch.setattr(Auditor, "examine", lambda *_: None)
    monkeypatch.setattr(Auditor, "problem", lambda _self: "")
    await admitted_one(setup, monkeypatch, case)
    await setup.workload("y")
    await became(setup, "y", "admitted")
    assert HALTED._value.get() == 0


async def test_job_that_runs_in_a_queue_that_does_not_exist_contradicts_nothing(
    setup: Setup,
) -> None:
    before = AUDITS.labels("contradiction")._value.get()
    unknown = "its priority class does not exist"
    await setup.cluster(cpus=1)
    await setup.start_quota()
    await setup.workload("x", unresolved=unknown, phase="running", pods_active=True)
    await became(setup, "x", "admitted")
    await setup.workload("x", unresolved=unknown)
    await became(setup, "x", "waiting")
    await setup.workload(
        "x", unresolved=unknown, queue="nowhere", phase="running", pods_active=True
    )
    await became(setup, "x", "evicted")
    evicted = await setup.last("x")
    assert evicted.cluster_queue == "cq", "the log names the last queue that counted it"
    assert evicted.unplanned

    await setup.workload("y")
    await became(setup, "y", "admitted")
    await setup.workload("z")  # Once it is decided about, what was decided before is examined.
    await became(setup, "z", "waiting")

    assert AUDITS.labels("contradiction")._value.get() == before
