"""What the judges of older states let pass and what they do not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from services.simulator.cluster.api import Api
from services.simulator.judge.message_logs import MessageLogs, Record
from services.simulator.judge.older_states import WrittenConditions, observed_in_order
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds
from shared.contracts.kube.conditions import ADMITTED, FINISHED, QUOTA_RESERVED
from shared.contracts.messages.admissions import Admission, AdmissionState
from shared.testing.builders import observed

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("states", "wrong"),
    [
        pytest.param([("a", 7, False), ("a", 9, False)], "", id="each is newer"),
        pytest.param([("a", 9, False), ("a", 9, False)], "", id="the same is said again"),
        pytest.param([("a", 9, False), ("a", 9, True)], "", id="it is gone as it was seen last"),
        pytest.param([("a", 9, False), ("a", "", True)], "", id="nobody knows how it was last"),
        pytest.param([("a", 9, True), ("b", 7, False)], "", id="another object has its name"),
        pytest.param([("a", 9, False), ("a", 7, False)], "7 comes after version 9", id="older"),
        pytest.param([("a", 9, False), ("a", 7, True)], "7 comes after version 9", id="older end"),
        pytest.param([("a", 9, True), ("a", 9, False)], "9 comes after version 9", id="ended"),
    ],
)
def test_older_state_of_an_object_behind_a_newer_one_is_found(
    states: Sequence[tuple[str, int | str, bool]], wrong: str
) -> None:
    message_logs = MessageLogs()
    for number, (uid, version, deleted) in enumerate(states):
        about = {"uid": uid}
        message = observed(kinds.JOB, "j", version=version, deleted=deleted, metadata=about)
        message_logs.observed.append(Record(sequence=number, time=AT, message=message))
    found = observed_in_order(message_logs)
    assert [one for one in found if not wrong or wrong not in one] == []
    assert bool(found) == bool(wrong)


@pytest.mark.parametrize(("seconds", "is_found"), [(1, False), (3, True)])
def test_older_state_counts_unless_the_log_had_lost_the_newer_one(
    seconds: int, is_found: bool
) -> None:
    message_logs = MessageLogs(lost_at={0: AT + timedelta(seconds=seconds)})
    for number, version in enumerate((9, 7)):
        message = observed(kinds.JOB, "j", version=version, metadata={"uid": "a"})
        time = AT + timedelta(seconds=2 * number)
        message_logs.observed.append(Record(sequence=number, time=time, message=message))
    assert bool(observed_in_order(message_logs)) == is_found


class History:
    """What one Workload said, and what was decided about it: each a second after the one before."""

    def __init__(self) -> None:
        self._now = AT
        api = Api(now=lambda: self._now, random=Random(1))
        self._kube = LocalKube(api)
        self._judge = WrittenConditions(api, now=lambda: self._now)
        self._message_logs = MessageLogs()

    async def begin(self) -> None:
        await self._kube.create(kinds.NAMESPACE, {"metadata": {"name": "team"}})
        pods = {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
        spec = {"podSets": [{"name": "main", "count": 1, "template": pods}]}
        metadata = {"name": "w", "namespace": "team"}
        await self._kube.create(kinds.WORKLOAD, {"metadata": metadata, "spec": spec})

    def decide(self, state: AdmissionState) -> None:
        self._now += timedelta(seconds=1)
        number = len(self._message_logs.admissions) + 1
        message = Admission(
            cluster="hub", namespace="team", name="w", uid="u", state=state, term=1, number=number,
            decided_at=self._now, cluster_queue="main",
        )  # fmt: skip
        self._message_logs.admissions.append(
            Record(sequence=number, time=self._now, message=message)
        )

    async def write(self, *true: str) -> None:
        """Write a status in which these conditions are true, and no others."""
        self._now += timedelta(seconds=1)
        conditions = [
            {
                "type": one,
                "status": "True" if one in true else "False",
                "reason": "r",
                "message": "m",
                "lastTransitionTime": "2026-01-01T12:00:00Z",
            }
            for one in (QUOTA_RESERVED, ADMITTED, FINISHED)
        ]
        status = {"status": {"conditions": conditions}}
        await self._kube.patch(kinds.WORKLOAD, "team", "w", status, subresource="status")

    def problems(self) -> list[str]:
        return self._judge.problems(self._message_logs)


async def told(*steps: AdmissionState | tuple[str, ...]) -> list[str]:
    """What is wrong about decisions, and the true conditions of statuses that were written."""
    history = History()
    await history.begin()
    for step in steps:
        if isinstance(step, str):
            history.decide(step)
        else:
            await history.write(*step)
    return history.problems()


RESERVED = (QUOTA_RESERVED,)
BOTH = (QUOTA_RESERVED, ADMITTED)


async def test_admission_that_an_eviction_ended_is_taken_back() -> None:
    assert await told("admitted", BOTH, "evicted", "waiting", ()) == []


async def test_reason_that_was_on_its_way_when_quota_was_given_anew_is_written() -> None:
    assert await told("admitted", BOTH, "evicted", "waiting", "admitted", ()) == []


async def test_end_of_a_job_takes_its_admission_back_before_that_is_decided() -> None:
    assert await told("admitted", BOTH, (FINISHED,), "released") == []


async def test_reason_of_before_takes_no_reservation_back() -> None:
    [found] = await told("waiting", "reserved", RESERVED, ())
    assert "team/w is QuotaReserved no more" in found


async def test_decision_that_comes_later_does_not_take_back() -> None:
    assert len(await told("admitted", BOTH, (), "waiting")) == 2


async def test_reservation_of_before_takes_no_admission_back() -> None:
    [found] = await told("reserved", RESERVED, "admitted", BOTH, RESERVED)
    assert "team/w is Admitted no more" in found
