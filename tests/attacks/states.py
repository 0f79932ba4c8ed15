"""Attacks on the log of workloads, by states of what lives: little written makes much of it (T1, T2)."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from shared.bus.follow import recall
from shared.bus.port import Bus
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.attacks.attack import Attack
from tests.attacks.contents import project, running, write_as_east
from tests.attacks.field import Field
from tests.attacks.floods import bytes_of
from tests.attacks.ground import BreachError, Ground

LOG: Final = WorkloadState.stream
MUCH: Final = {f"{'p' * 63}.example.com/{number:050d}": "v" * 63 for number in range(2500)}
"""Half a megabyte of labels."""

CHANGES: Final = 20
VALUES: Final = (2, 3, 4, 5, 6)
FULL: Final = 0.8
STATE_BYTES: Final = 8 << 10
"""More than a state of a small job has."""


async def relabels(field: Field) -> None:
    """Give a waiting Job many labels, and then change one of them again and again."""
    waits = await field.waiting("Job", labels={**MUCH, "n": "0"})
    log = field.stage.system.server.streams[LOG]
    before = log.bytes
    for number in range(CHANGES):
        await field.patch(waits, {"metadata": {"labels": {"n": str(number)}}})
        await asyncio.sleep(1.0)
    if (grown := log.bytes - before) > CHANGES * STATE_BYTES // 2:
        raise BreachError(f"{CHANGES} labels became {grown} bytes of {LOG}")


async def hurries_through_queues(field: Field) -> None:
    """Move a waiting Job from queue to queue until the log of workloads would be full of its states."""
    waits = await field.waiting("Job")
    log = field.stage.system.server.streams[LOG]
    room, before = 512 << 10, log.last
    log._bytes_max = log.bytes + room
    while (log.last - before) * 1000 < 2 * room and log.fullness < FULL:
        queue = "own" if log.last % 2 else "full"
        await field.patch(waits, {"metadata": {"labels": {QUEUE: queue}}})
        await asyncio.sleep(0.5)


async def revalues(ground: Ground) -> None:
    """Show Jobs with many labels, and then ever new values of the priority class that they name."""
    bus, operator = await ground.bus("classifier"), await ground.client("operator")
    jobs = [_job(number) for number in range(4)]
    async with running(partial(project, bus)):
        end = Synced(cluster="east", epoch="1", kinds=[], at=datetime.now(UTC))
        await write_as_east(ground, _priority_class(1), *jobs, end)
        await eventually(partial(_have_priority, bus, 1, of=len(jobs)))
        before = await bytes_of(operator, LOG)
        for value in VALUES:
            await write_as_east(ground, _priority_class(value))
            await eventually(partial(_have_priority, bus, value, of=len(jobs)))
        grown = await bytes_of(operator, LOG) - before
    if before > len(jobs) * STATE_BYTES or grown > len(jobs) * len(VALUES) * STATE_BYTES:
        raise BreachError(f"{LOG} has {before} bytes of {len(jobs)} jobs, and {grown} of values")


async def _have_priority(bus: Bus, value: int, *, of: int) -> bool:
    """Whether all states say this priority."""
    found: list[int] = []
    handlers = {WorkloadState: lambda state, _: found.append(state.priority)}
    await recall(bus, handlers, filters=["sluice.workload.>"])
    return found == [value] * of


def _job(number: int) -> Observed:
    labels = {**MUCH, QUEUE: "none", PRIORITY_CLASS_LABEL: "p"}
    job = {
        "metadata": {
            "name": f"j{number}", "namespace": "a", "uid": f"u{number}", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": [{"name": "c"}]}}},
        "status": {},
    }  # fmt: skip
    return observed_object(kinds.JOB, as_body(job), cluster="east")


def _priority_class(value: int) -> Observed:
    metadata = {"name": "p", "uid": "p", "resourceVersion": str(value)}
    return observed_object(
        kinds.WORKLOAD_PRIORITY_CLASS,
        as_body({"metadata": metadata, "value": value}),
        cluster="east",
    )


def attacks() -> Iterator[Attack]:
    """The rows of a spoke."""
    yield Attack(
        threat="T2",
        way="spoke has the hub write large states of its jobs again and again",
        act=revalues,
        own=("sluice.observed.east.>", "sluice.workload.east.>"),
    )
