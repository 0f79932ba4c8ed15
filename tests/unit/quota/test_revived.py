"""What a leader has read is compared with the logs: an older state of what has ended is put right."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from services.quota.trust.revived import RevivedEntries
from shared.bus.port import Bus, Entry
from shared.contracts.messages.base import Message
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import admission, workload

NOW = datetime(2026, 1, 2, tzinfo=UTC)
AGE = timedelta(minutes=10)
WAITS: WorkloadState = workload("a")


def entry(sequence: int, *, message: Message = WAITS, age: timedelta = AGE) -> Entry:
    subject, time = message.subject, NOW - age
    return Entry(subject=subject, data=b"{}", headers={}, sequence=sequence, time=time)


class Log:
    """As much of a bus as asking for the last message of a subject takes."""

    def __init__(self, last: Entry | None) -> None:
        self.last = last
        self.asked = 0

    async def latest(self, _stream: str, _subject: str) -> Entry | None:
        self.asked += 1
        return self.last


async def put_right(message: Message, read: Entry, last: Entry | None) -> tuple[list[Entry], int]:
    """What is applied after such an entry was read, up to sequence 9; how often the log was asked."""
    log, applied = Log(last), list[Entry]()
    revived = RevivedEntries(bus=cast("Bus", log), now=lambda: NOW, age=AGE)
    revived.observe(message, read)
    await revived.look(lambda _, one: applied.append(one), read_up_to=lambda _: 9)
    return applied, log.asked


CASES: dict[str, tuple[Message, Entry | None, bool]] = {
    "a workload that has ended": (WAITS, entry(5), True),
    "a workload that lives": (WAITS, entry(3), False),
    "a change that is on its way": (WAITS, entry(10), False),
    "a workload whose history is gone": (WAITS, None, False),
    "a decision that holds quota": (admission(WAITS), entry(5), True),
}


@pytest.mark.parametrize(("message", "last", "is_put_right"), CASES.values(), ids=CASES)
async def test_what_is_newer_in_the_log_is_applied(
    message: Message, last: Entry | None, *, is_put_right: bool
) -> None:
    applied, asked = await put_right(message, entry(3, message=message), last)
    assert applied == ([last] if is_put_right else [])
    assert asked == 1


NEVER: dict[str, tuple[Message, timedelta]] = {
    "a workload that changed a moment ago": (WAITS, timedelta(minutes=9)),
    "a workload that is gone": (workload("a", phase="gone"), AGE),
    "a decision that holds nothing": (admission(WAITS, "released"), AGE),
}


@pytest.mark.parametrize(("message", "age"), NEVER.values(), ids=NEVER)
async def test_log_is_not_asked_about(message: Message, age: timedelta) -> None:
    read = entry(3, message=message, age=age)
    assert await put_right(message, read, entry(5)) == ([], 0)


async def test_what_is_decided_or_read_meanwhile_is_not_put_right() -> None:
    log, applied = Log(entry(5)), list[Entry]()
    revived = RevivedEntries(bus=cast("Bus", log), now=lambda: NOW, age=AGE)
    revived.observe(WAITS, entry(3))
    revived.forget(WAITS)
    await revived.look(lambda _, one: applied.append(one), read_up_to=lambda _: 9)
    assert applied == []
