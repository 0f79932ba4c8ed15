"""`make bench-cluster`: Kueue's scalability load on the whole system, and what it costs.

The services run as processes, as `sluice dev` starts them; the load comes through the API server alone.
The last line is ``cluster: <workloads> in <wall> s, <CPU ms of the services> ms a workload``.
"""

import asyncio
import os
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from services.ctl.dev.app import BROKER, DevOptions, Running, running
from services.ctl.dev.supervisor import http_status
from services.ctl.programs import Program
from services.quota.bench import load
from services.simulator.app import Simulator
from services.simulator.bench.report import Requests, requests_served, summary
from services.simulator.bench.runner import Runner
from services.simulator.bench.without_quota import admit_without_quota
from services.simulator.bench.writer import Writer
from shared.kube.client import HttpKube
from shared.kube.port import Kube
from shared.runtime.command import CommandError
from shared.runtime.loop import run

OWN: Final = "runner"
TIMEOUT_SECONDS: Final = 1800.0
SETTLE_SECONDS: Final = 1.0
"""Between the creation of the queues and that of the first workload."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, including its ended children. Linux only."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    fields = stat.rpartition(")")[2].split()  # The name before it may contain blanks.
    return sum(int(value) for value in fields[11:15]) / _TICKS


def _cpu(system: Running) -> dict[str, float]:
    pids = {name: system.supervisor.pid(name) for name in system.supervisor.names}
    found = {name: cpu_seconds(pid) for name, pid in pids.items() if pid is not None}
    return {**found, OWN: cpu_seconds(os.getpid())}


async def _served(system: Running) -> Requests | None:
    if system.api_url is None:
        return None
    where = urlsplit(system.api_url)
    assert where.hostname is not None
    assert where.port is not None
    status, text = await http_status(where.hostname, where.port, "/metrics")
    return requests_served(text) if status == 200 else None


async def _bench(arguments: Namespace) -> int:
    if arguments.blind_writer:
        await _admit_beside_another(arguments)
        return 0
    if arguments.blind:
        await _bench_blind(arguments)
        return 0
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        options = DevOptions(
            directory=Path(folder),
            kubeconfig=arguments.kubeconfig,
            webhook=False,
            speed=1.0,
        )
        async with running(
            options, lambda text: print(f"bench: {text}", file=sys.stderr)
        ) as system:
            kube = system.kube()
            await _measure(kube, arguments, lambda: _cpu(system), lambda: _served(system))
    return 0


async def _bench_blind(arguments: Namespace) -> None:
    """Measure the runner alone; without a kubeconfig the simulator runs in this process."""

    async def unknown() -> None:
        return None

    def own() -> dict[str, float]:
        return {OWN: cpu_seconds(os.getpid())}

    if arguments.kubeconfig is not None:
        kube = HttpKube.from_kubeconfig(str(arguments.kubeconfig))
        await _measure(kube, arguments, own, unknown)
        return
    simulator = Simulator(behaviour=False)
    await simulator.start()
    try:
        await _measure(HttpKube.at(simulator.url), arguments, own, unknown)
    finally:
        await simulator.stop()


async def _admit_beside_another(arguments: Namespace) -> None:
    """Admit workloads that another runner creates, until a signal comes."""
    if arguments.kubeconfig is None:
        raise CommandError("--blind-writer", "needs --kubeconfig: the cluster that another loads")
    kube = HttpKube.from_kubeconfig(str(arguments.kubeconfig))
    loop = asyncio.get_running_loop()
    admitting = loop.create_task(admit_without_quota(kube, _writer(kube)))
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_, admitting.cancel)
    print("admits whatever waits; Ctrl-C ends it", file=sys.stderr)
    try:
        await admitting
    except asyncio.CancelledError:
        pass
    finally:
        await kube.close()


def _writer(kube: Kube) -> Writer:
    return Writer(kube=kube, now=lambda: datetime.now(UTC))


async def _measure(
    kube: HttpKube,
    arguments: Namespace,
    cpu_now: Callable[[], dict[str, float]],
    served_now: Callable[[], Awaitable[Requests | None]],
) -> None:
    try:
        writer = _writer(kube)
        runner = Runner(kube=kube, load=load(arguments.load), scale=arguments.scale, writer=writer)
        await runner.prepare()
        await asyncio.sleep(SETTLE_SECONDS)
        before, served_before = cpu_now(), await served_now()
        async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
            admitting = (
                group.create_task(admit_without_quota(kube, writer)) if arguments.blind else None
            )
            await runner.run()
            if admitting is not None:
                admitting.cancel()
        served = await served_now()
        cpu = {name: seconds - before.get(name, 0.0) for name, seconds in cpu_now().items()}
    finally:
        await kube.close()
    if served is not None and served_before is not None:
        served -= served_before
    timeline = runner.timeline
    for line in summary(timeline, ours=runner.requests, served=served, cpu=cpu):
        print(line)
    others = {OWN, Program.SIMULATOR.value}
    services = sum(seconds for name, seconds in cpu.items() if name not in others)
    each = 1000 * services / max(1, timeline.known)
    print(
        f"cluster: {timeline.known} in {timeline.wall:.1f} s, "
        f"{each:.2f} ms CPU a workload (services and {BROKER})"
    )


def main() -> int:
    """Run the load; print figures."""
    parser = ArgumentParser(prog="python -m services.ctl.bench_cluster", description=__doc__)
    parser.add_argument("--load", default="baseline", help="a file of services/quota/loads")
    parser.add_argument("--scale", type=float, default=1.0, help="0.1 creates a tenth of it")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster; default: the simulator")
    parser.add_argument(
        "--blind",
        action="store_true",
        help="nothing of ours but the runner, which admits what it creates",
    )
    parser.add_argument(
        "--blind-writer",
        action="store_true",
        help="load nothing: admit whatever waits in --kubeconfig's cluster, beside another's runner",
    )
    try:
        return run(_bench(parser.parse_args()))
    except CommandError as error:
        print(f"bench: {error}", file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
