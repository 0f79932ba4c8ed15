"""Attacks on the log of workloads, by states of what lives: little written makes much of it (T1, T2)."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.contracts.messages.observed import Observed, Synced
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import observed_object
from tests.attacks.attack import Attack
from tests.attacks.contents import project, running, write_as_east
from tests.attacks.field import Field
from tests.attacks.floods import bytes_of
from tests.attacks.ground import BreachError, Ground

LOG: Final = WorkloadState.stream
MUCH: Final = {f"{'p' * 63}.example.com/{number:050d}": "v" * 63 for number in range(2500)}
"""Half a megabyte of labels."""

CHANGES: Final = 20
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


async def revalues(ground: Ground) -> None:
    """Show Jobs with many labels, and then ever new values of the priority class that they name."""
    bus, operator = await ground.bus("classifier"), await ground.client("operator")
    jobs = [_job(number) for number in range(4)]
    async with running(partial(project, bus)):
        end = Synced(cluster="east", epoch="1", kinds=[], at=datetime.now(UTC))
        await write_as_east(ground, _priority_class(1), *jobs, end)
        await asyncio.sleep(1)
        before = await bytes_of(operator, LOG)
        if not before:
            raise BreachError(f"{LOG} has nothing: the attack attacks nothing")
        values = [_priority_class(value) for value in range(2, 7)]
        for value in values:
            await write_as_east(ground, value)
            await asyncio.sleep(0.2)
        await asyncio.sleep(1)
        grown = await bytes_of(operator, LOG) - before
    if before > len(jobs) * STATE_BYTES or grown > len(jobs) * len(values) * STATE_BYTES:
        raise BreachError(f"{LOG} has {before} bytes of {len(jobs)} jobs, and {grown} of values")


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
