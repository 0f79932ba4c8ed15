"""`make bench-restart`: how long a new leader of quota reads before it decides, after much history.

The logs hold `--ended` workloads that have ended, and what lives beside them; the views are as quota
leaves them, without the ends. Then nats-server starts again, and a quota service after it. The run ends
with its first admission. The last line is ``restart: <CPU s> of quota, <CPU s> of nats-server; quota
<MiB>, nats-server <MiB>``. The status is 1 if a goal is missed; lines before the last name which.
"""

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from services.quota.app import assemble
from services.quota.settings import QuotaSettings
from shared.bus.admin.apply import apply_at
from shared.bus.embedded import EmbeddedServer
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import call
from shared.bus.streams import load, view_of
from shared.contracts import subjects
from shared.contracts.kube import kinds
from shared.contracts.messages.base import Message
from shared.contracts.messages.observed import Synced
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import Stream
from shared.runtime.service import utc_now
from shared.telemetry.logging import configure_logging
from shared.testing.builders import admission, cluster_queue_spec, job_owner, observed, workload

ENDED: Final = 1_000_000
WAITING: Final = 50_000
RUNNING: Final = 5_000
WINDOW: Final = 5_000
"""Messages between two waits for acknowledgements."""

SWEPT: Final = (Stream.WORKLOADS, Stream.ADMISSIONS, Stream.OUTCOMES)
QUEUES: Final = 50
POLL_SECONDS: Final = 0.05
MIB: Final = 1 << 20

QUOTA_CPU_SECONDS_MAX: Final = 30.0
"""Goal: CPU time of a new leader until it decides, on two cores."""

QUOTA_MIB_MAX: Final = 600.0
"""Goal: peak memory of quota until then."""

SERVER_MIB_MAX: Final = 1024.0
"""Goal: peak memory of nats-server since its start."""


def _state(number: int, **more: Any) -> WorkloadState:
    name = f"job-{number:07}"
    return workload(
        f"{name}-abcde", owner=job_owner(name), queue=f"queue-{number % QUEUES}", cpu=1, **more
    )


def _configuration(running: int) -> Iterator[Message]:
    """A flavor, and queues of which the first has room for one workload more than run."""
    yield observed(kinds.NAMESPACE, "team")
    yield observed(kinds.RESOURCE_FLAVOR, "default")
    for number in range(QUEUES):
        cpus = running // QUEUES + (number == 0)
        yield observed(kinds.CLUSTER_QUEUE, f"cq-{number}", cluster_queue_spec(cpus))
        spec = {"clusterQueue": f"cq-{number}"}
        yield observed(kinds.LOCAL_QUEUE, f"queue-{number}", spec, "team")
    yield Synced(cluster="hub", epoch="1", kinds=[], at=utc_now())


def _ended_workload(number: int) -> Iterator[Message]:
    """What is left in the logs of a workload that ended: four messages of it."""
    state = _state(number)
    yield state
    decision = admission(state, "released", cluster_queue=f"cq-{number % QUEUES}", number=number)
    yield decision
    yield _outcome(state, number)
    yield state.gone()


def _outcome(state: WorkloadState, number: int) -> Outcome:
    return Outcome(
        cluster=state.cluster, namespace=state.namespace, name=state.name, uid=state.uid,
        result="applied", action="release", term=1, number=number, at=utc_now(),
    )  # fmt: skip


def _living(begin: int, waiting: int, running: int) -> Iterator[Message]:
    for number in range(begin, begin + running):
        state = _state(number, phase="running", held=False, pods_active=True)
        yield state
        yield admission(state, cluster_queue=f"cq-{number % QUEUES}", number=number)
        yield _outcome(state, number)
    begin += running
    for number in range(begin, begin + waiting):
        state = _state(number)
        yield state
        yield admission(state, "waiting", cluster_queue="", number=number, pod_sets=[])


async def _publish(bus: NatsBus, messages: Iterator[Message]) -> None:
    for count, message in enumerate(messages, start=1):
        bus.publish(message)
        if count % WINDOW == 0:
            await bus.flush()
    await bus.flush()


async def _drop_ends(bus: NatsBus) -> None:
    """Empty the views of what has ended, as `services.quota.ended_work` does one by one."""
    for log in SWEPT:
        target = (await bus.log_end(log)).last
        while True:
            info = await call(bus.connection.nc, f"STREAM.INFO.{view_of(log)}")
            if info["sources"][0]["lag"] == 0 and info["state"]["last_seq"] >= target:
                break
            await asyncio.sleep(POLL_SECONDS)
        await call(bus.connection.nc, f"STREAM.PURGE.{view_of(log)}", {"keep": 1})


async def _fill(url: str, ended: int, waiting: int, running: int) -> None:
    bus = NatsBus(url=url, instance="history", now=utc_now)
    await bus.start()
    await _publish(bus, _configuration(running))
    await _publish(bus, (message for number in range(ended) for message in _ended_workload(number)))
    if ended:
        await _drop_ends(bus)
    await _publish(bus, _living(ended, waiting, running))
    for log in SWEPT:
        state = (await call(bus.connection.nc, f"STREAM.INFO.{log}"))["state"]
        limit = load().configs()[log]["max_bytes"] / MIB
        print(f"{log}: {state['messages']} messages, {state['bytes'] / MIB:.0f} of {limit:.0f} MiB")
    await bus.stop()


async def _lead(url: str) -> None:
    """Lead until the first admission; print CPU seconds and peak MiB of this process."""
    loop = asyncio.get_running_loop()
    bus = NatsBus(url=url, instance="leader", service="quota", now=utc_now)
    began = loop.time()
    await bus.start()
    before = (await bus.log_end(Stream.ADMISSIONS)).last
    service = assemble(settings=QuotaSettings(), bus=bus, now=utc_now)
    running = asyncio.create_task(service.run())
    decided = subjects.subject_filter("admission")
    while await bus.at_or_after(Stream.ADMISSIONS, before + 1, subject=decided) is None:
        if running.done():
            running.result()
        await asyncio.sleep(POLL_SECONDS)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, loop.time() - began)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bus.stop()


def _server_use(pid: int) -> tuple[float, float]:
    """CPU seconds and peak MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) / 1024


def missed(*, quota_seconds: float, quota_mib: float, server_mib: float) -> list[str]:
    """A sentence for each goal that is missed: CPU seconds of quota, peak MiB of quota and of nats-server."""
    figures = (
        ("CPU of quota", quota_seconds, QUOTA_CPU_SECONDS_MAX, "s"),
        ("memory of quota", quota_mib, QUOTA_MIB_MAX, "MiB"),
        ("memory of nats-server", server_mib, SERVER_MIB_MAX, "MiB"),
    )
    return [
        f"goal missed: {what} is {figure:.1f} {unit}, at most {most:.0f} {unit}"
        for what, figure, most, unit in figures
        if figure > most
    ]


async def _measure(ended: int, waiting: int, running: int) -> int:
    """Print what a start costs; 1 if a goal is missed, else 0."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        server = await EmbeddedServer(Path(directory)).start()
        try:
            await apply_at(server.url)
            await _fill(server.url, ended, waiting, running)
            await server.stop()
            await server.start()
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __spec__.name, "--leader", server.url),
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await child.communicate()
            seconds, mib, wall = map(float, out.decode().split()[-3:])
            assert server.pid is not None
            server_seconds, server_mib = _server_use(server.pid)
        finally:
            await server.stop()
    print(f"{wall:.1f} s from the start of quota to its first decision")
    problems = missed(quota_seconds=seconds, quota_mib=mib, server_mib=server_mib)
    for problem in problems:
        print(problem)
    print(
        f"restart: {seconds:.1f} s of quota, {server_seconds:.1f} s of nats-server; "
        f"quota {mib:.0f} MiB, nats-server {server_mib:.0f} MiB"
    )
    return 1 if problems else 0


def main() -> int:
    """Fill a server of its own, start it again, and measure a leader; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leader", help="Lead at this server: for the child process.")
    parser.add_argument("--scale", type=float, default=1.0, help="Factor for all counts.")
    options = parser.parse_args()
    configure_logging(service="bench", level="error", format_="console", for_good=False)
    if options.leader:
        asyncio.run(_lead(options.leader))
        return 0
    counts = (int(options.scale * count) for count in (ENDED, WAITING, RUNNING))
    return asyncio.run(_measure(*counts))


if __name__ == "__main__":
    sys.exit(main())
